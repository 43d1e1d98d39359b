#include "share/pool/pool_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "share/pool/job.hpp"

namespace ebb::share {
namespace {

using os::FileRange;
using os::SharedFile;
using os::SharedMapping;

constexpr std::string_view kEnding = ".pool";

Error no_member() { return {Errc::invalid_argument, "no such process is in the pool"}; }

}  // namespace

std::string pool_name(const std::string& job) { return job + std::string(kEnding); }

Error of_another_namespace() {
  return {
      Errc::unsupported,
      "this job has a pool in another PID namespace (another container's, or that of unshare or apptainer --pid), and "
      "processes that cannot see each other share no pool: run all of them in one namespace, name another job for "
      "each (EBBTIDE_JOB), or open without node_pool"};
}

bool may_use(const os::ProcessId& process, const SharedFile& file, os::Files& files) {
  const auto held = file.held(process);
  return !held || *held || os::is_running(files, process);
}

// Short enough for the address of a socket.
std::string socket_name(const std::string& job) {
  std::string name = "node-";
  const auto sum = storage::checksum_of(std::as_bytes(std::span(job)));
  for (std::size_t i = 0; i < 8; ++i) {
    for (const int nibble : {std::to_integer<int>(sum[i]) >> 4, std::to_integer<int>(sum[i]) & 15}) {
      name += "0123456789abcdef"[nibble];
    }
  }
  return name;
}

bool is_pool_name(std::string_view name) {
  return name.size() > kEnding.size() && name.ends_with(kEnding) &&
         is_job_identity(name.substr(0, name.size() - kEnding.size()));
}

std::string job_of_pool(std::string_view name) { return std::string(name.substr(0, name.size() - kEnding.size())); }

PoolFile::PoolFile(std::unique_ptr<SharedFile> file, PoolHeader header, SharedMapping tables)
    : file_(std::move(file)),
      header_(std::move(header)),
      mapped_(std::move(tables)),
      tables_(mapped_.data(), header_.shape) {}

Result<PoolFile> PoolFile::create(std::unique_ptr<SharedFile> file, const PoolHeader& header) {
  if (auto held = file->hold(kAgentProcess); !held) return held.error();
  const FileRange tables = header.shape.tables();
  if (auto done = file->punch(tables); !done) return done.error();
  if (auto done = file->allocate(tables); !done) return done.error();
  // The last page makes the file as long as it will ever be, so that slabs can be mapped before they have memory.
  const FileRange last = header.shape.slab(header.shape.slabs() - 1);
  if (auto done = file->allocate({last.offset + last.bytes - os::kBlock, os::kBlock}); !done) {
    return done.error();
  }
  auto mapped = file->map(std::array{tables});
  if (!mapped) return mapped.error();
  const auto block = encode(header);
  // The header's first word comes last: without it the header was never written.
  std::memcpy(mapped->data() + sizeof(std::uint64_t), block.data() + sizeof(std::uint64_t),
              block.size() - sizeof(std::uint64_t));
  std::uint64_t first = 0;
  std::memcpy(&first, block.data(), sizeof first);
  SharedWords(mapped->data())(0).store(first, std::memory_order_release);
  return PoolFile(std::move(file), header, std::move(mapped).value());
}

Result<PoolFile> PoolFile::open(std::unique_ptr<SharedFile> file) {
  const Result<std::uint64_t> size = file->size();
  if (!size) return size.error();
  std::vector<std::byte> first(std::min(*size, os::kBlock));
  if (auto read = file->read(0, first); !read) return read.error();
  auto header = parse_pool_header(first);
  if (!header) return header.error();
  const FileRange tables = header->shape.tables();
  if (*size < tables.bytes) return Error{Errc::damaged, "the pool's file ends within its tables"};
  // A file that was tampered with may have holes: nothing is touched before it has memory.
  if (auto done = file->allocate(tables); !done) return done.error();
  auto mapped = file->map(std::array{tables});
  if (!mapped) return mapped.error();
  return PoolFile(std::move(file), std::move(header).value(), std::move(mapped).value());
}

Result<Member> PoolFile::admit(const os::ProcessId& process, std::uint64_t share, std::uint64_t rank) {
  const Result<Member> member = tables_.next_member();
  if (!member) return member;
  const FileRange list = shape().list((*member).slot);
  if (auto done = file_->punch(list); !done) return done.error();
  if (auto done = file_->allocate(list); !done) return done.error();
  tables_.admit({*member, process, share, rank});
  return member;
}

Result<void> PoolFile::dismiss(Member member) {
  if (!tables_.dismiss(member)) return no_member();
  return file_->punch(shape().list(member.slot));
}

Result<MappedList> PoolFile::list(Member member) const {
  const auto found = member.slot < shape().processes ? tables_.process(member.slot) : std::nullopt;
  if (!found || found->member != member) return no_member();
  const FileRange range = shape().list(member.slot);
  if (auto done = file_->allocate(range); !done) return done.error();
  auto mapped = file_->map(std::array{range});
  if (!mapped) return mapped.error();
  std::byte* const memory = mapped->data();
  return MappedList{std::move(mapped).value(), HandoverList(memory, shape(), tables_, member)};
}

Result<void> PoolFile::allocate(std::uint32_t slab) { return file_->allocate(shape().slab(slab)); }

Result<void> PoolFile::punch(std::uint32_t slab) { return file_->punch(shape().slab(slab)); }

Result<SharedMapping> PoolFile::map(std::span<const std::uint32_t> slabs) const {
  std::vector<FileRange> ranges;
  for (const std::uint32_t slab : slabs) ranges.push_back(shape().slab(slab));
  return file_->map(ranges);
}

}  // namespace ebb::share
