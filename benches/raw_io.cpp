#include "benches/raw_io.hpp"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "benches/common.hpp"
#ifdef EBB_HAVE_URING
#include <liburing.h>
#endif

namespace bench {
namespace {

constexpr std::size_t kHuge = 2 << 20;
constexpr std::size_t kFinalists = 5;
constexpr int kTurns = 5;

[[noreturn]] void fail(int error, const char* what) { throw std::system_error(error, std::generic_category(), what); }

void by_threads(int fd, bool write, std::uint64_t span, const Way& way, std::byte* memory) {
  std::atomic<std::uint64_t> next{0};
  std::atomic<int> error{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < way.depth; ++t) {
    threads.emplace_back([&, t] {
      std::size_t turn = 0;
      for (std::uint64_t at; (at = next.fetch_add(way.request)) < span; turn += way.request) {
        std::byte* mine = memory + t * way.part() + turn % way.part();
        const std::size_t bytes = std::min<std::uint64_t>(way.request, span - at);
        const auto offset = static_cast<off_t>(at);
        const ssize_t moved = write ? ::pwrite(fd, mine, bytes, offset) : ::pread(fd, mine, bytes, offset);
        if (moved != static_cast<ssize_t>(bytes)) error = moved < 0 ? errno : EIO;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) fail(error, "bare transfer");
}

#ifdef EBB_HAVE_URING
// Owns an initialised ring.
struct Uring {
  explicit Uring(unsigned depth) {
    if (const int error = -io_uring_queue_init(depth, &ring, 0)) fail(error, "io_uring_queue_init");
  }
  ~Uring() { io_uring_queue_exit(&ring); }
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;
  io_uring ring{};
};

void by_uring(int fd, bool write, std::uint64_t span, const Way& way, std::byte* memory) {
  Uring uring(way.depth);
  std::uint64_t next = 0, done = 0;
  std::vector<std::size_t> asked(way.depth), turns(way.depth);
  const auto start = [&](unsigned slot) {
    const std::size_t bytes = asked[slot] = std::min<std::uint64_t>(way.request, span - next);
    io_uring_sqe* sqe = io_uring_get_sqe(&uring.ring);
    std::byte* mine = memory + slot * way.part() + turns[slot] % way.part();
    turns[slot] += way.request;
    if (write)
      io_uring_prep_write(sqe, fd, mine, static_cast<unsigned>(bytes), next);
    else
      io_uring_prep_read(sqe, fd, mine, static_cast<unsigned>(bytes), next);
    sqe->user_data = slot;
    next += bytes;
  };
  for (unsigned slot = 0; slot < way.depth && next < span; ++slot) start(slot);
  while (done < span) {
    const int submitted = io_uring_submit_and_wait(&uring.ring, 1);
    if (submitted < 0 && submitted != -EINTR) fail(-submitted, "io_uring_submit_and_wait");
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&uring.ring, &cqe) == 0) {
      const auto slot = static_cast<unsigned>(cqe->user_data);
      const int moved = cqe->res;
      io_uring_cqe_seen(&uring.ring, cqe);
      if (moved != static_cast<int>(asked[slot])) fail(moved < 0 ? -moved : EIO, "bare transfer");
      done += asked[slot];
      if (next < span) start(slot);
    }
  }
}
#endif

// Of the fastest of those that were tried.
Best best_again(RawFile& file, bool write, std::uint64_t span, std::vector<Best> tried) {
  std::ranges::sort(tried, std::ranges::greater(), &Best::bytes_per_s);
  tried.resize(std::min(tried.size(), kFinalists));
  std::vector<std::vector<double>> rates(tried.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t i = 0; i < tried.size(); ++i) {
      if (write) file.fresh(span);  // what was never written takes longer
      rates[i].push_back(file.rate(write, span, tried[i].way));
    }
  }
  for (std::size_t i = 0; i < tried.size(); ++i) tried[i].bytes_per_s = median(rates[i]);
  return *std::ranges::max_element(tried, {}, &Best::bytes_per_s);
}

}  // namespace

Buffer make_buffer(std::size_t bytes) {
  const std::size_t unit = bytes < kHuge ? 4096 : kHuge;
  const std::size_t rounded = (bytes + unit - 1) / unit * unit;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(unit, rounded));
  if (!memory) throw std::bad_alloc();
  ::madvise(memory, rounded, MADV_HUGEPAGE);  // refused where there are none: then ours has none either
  std::memset(memory, 1, bytes);
  return Buffer(memory);
}

RawFile::RawFile(const std::filesystem::path& directory) {
  fd_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
  if (fd_ < 0) fail(errno, "open a file with O_TMPFILE and O_DIRECT");
}

RawFile::~RawFile() { ::close(fd_); }

void RawFile::fresh(std::uint64_t span) {
  if (::ftruncate(fd_, 0)) fail(errno, "ftruncate");
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(span))) fail(errno, "fallocate");
}

void RawFile::sync() {
  if (::fdatasync(fd_)) fail(errno, "fdatasync");
}

double RawFile::rate(bool write, std::uint64_t span, const Way& way) {
  const Buffer memory = make_buffer(way.depth * way.part());
  const Clock::time_point start = Clock::now();
#ifdef EBB_HAVE_URING
  if (way.uring)
    by_uring(fd_, write, span, way, memory.get());
  else
#endif
    by_threads(fd_, write, span, way, memory.get());
  return static_cast<double>(span) / seconds(Clock::now() - start);
}

std::vector<Way> ways() {
  std::vector<Way> all;
#ifdef EBB_HAVE_URING
  const std::vector<bool> engines = {false, true};
#else
  const std::vector<bool> engines = {false};
#endif
  for (const bool uring : engines) {
    for (const std::size_t request : {std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{4} << 20}) {
      for (const unsigned depth : {1u, 2u, 4u, 8u, 16u}) all.push_back({uring, depth, request});
    }
  }
  return all;
}

BestRates find_best(RawFile& file, std::uint64_t span, std::size_t memory) {
  std::vector<Way> tried = ways();
  for (Way way : ways()) {
    way.memory = memory;
    if (way.part() > way.request) tried.push_back(way);
  }
  std::vector<Best> found[2];  // reading, writing
  for (const Way& way : tried) {
    file.fresh(span);
    for (const bool write : {true, false}) found[write].push_back({way, file.rate(write, span, way)});
  }
  return {best_again(file, true, span, std::move(found[1])), best_again(file, false, span, std::move(found[0]))};
}

}  // namespace bench
