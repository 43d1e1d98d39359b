#include <algorithm>

#include "storage/file_io.hpp"
#include "storage/segment_scan.hpp"

namespace ebb::storage {
namespace {

using platform::kBlock;

constexpr std::size_t kPiece = 4 << 20;

class RecordCheck {
 public:
  RecordCheck(platform::Files& files, const std::filesystem::path& directory, const RecordHead& head,
              const std::function<void(std::uint64_t)>& progress)
      : files_(files), path_(segment_path(directory, head.place.segment)), head_(head), progress_(progress) {}

  Result<Header> run() {
    if (const std::string wrong = misfit(head_); !wrong.empty()) return damaged(head_.place.offset, wrong);
    const auto opened = files_.open(path_, platform::Open::read, false);
    if (!opened && opened.error == ENOENT) return gone("its segment is not there any more");
    if (!opened) return file_error(path_, "opening it", opened.error);
    file_ = platform::File(files_, static_cast<int>(opened.value), path_.string(), false);
    platform::FileStatus status;
    if (const auto known = files_.status(file_.fd(), status); !known) return file_error(path_, "measuring it", known.error);
    if (head_.record_bytes > status.bytes || head_.place.offset > status.bytes - head_.record_bytes) {
      return damaged(head_.place.offset, "the file ends before the record does");
    }
    std::vector<std::byte> bytes(head_.header_bytes);
    if (auto got = read(bytes, head_.place.offset); !got) return got.error();
    auto on_disk = parse_head(bytes, head_.place, status.bytes);
    if (!on_disk) return damaged(head_.place.offset, on_disk.error().message);
    if (on_disk->kind == RecordHead::Kind::dropped) return gone("it was dropped");
    if (*on_disk != head_) return damaged(head_.place.offset, "another record is in its place");
    auto header = parse_header(bytes, head_);
    if (!header) return damaged(head_.place.offset, header.error().message);
    name_ = header->description.history;
    if (auto checked = check_payload(header->blocks); !checked) return checked.error();
    return header;
  }

 private:
  std::string who() const {
    return "version " + std::to_string(head_.version) + (name_ ? " of history '" + *name_ + "'" : "");
  }
  Error damaged(std::uint64_t offset, const std::string& what) const {
    return {Errc::damaged, path_.string() + ", offset " + std::to_string(offset) + ": " + who() + ": " + what};
  }
  Error gone(const std::string& what) const {
    return {Errc::unknown_version, path_.string() + ": " + who() + ": " + what};
  }

  Result<void> read(std::span<std::byte> into, std::uint64_t offset) {
    const auto got = read_whole(files_, file_.fd(), into, offset);
    if (!got) {
      return file_error(path_, "reading " + std::to_string(into.size()) + " bytes at " + std::to_string(offset), got.error);
    }
    if (static_cast<std::size_t>(got.value) != into.size()) return damaged(offset, "the file ends before the record does");
    if (progress_) progress_(into.size());
    return {};
  }

  Result<void> check_payload(const std::vector<Checksum>& blocks) {
    const std::uint64_t block = head_.block_bytes;
    if (block == 0) return {};
    const std::uint64_t start = head_.place.offset + head_.header_bytes;
    const std::uint64_t step = std::max(block, kPiece / block * block);
    std::vector<std::byte> piece(std::min(step, head_.payload_bytes));
    for (std::uint64_t at = 0; at < head_.payload_bytes; at += step) {
      const auto part = std::span(piece).first(std::min(step, head_.payload_bytes - at));
      if (auto got = read(part, start + at); !got) return got;
      for (std::uint64_t i = 0; i < part.size(); i += block) {
        if (checksum_of(part.subspan(i, std::min<std::uint64_t>(block, part.size() - i))) != blocks[(at + i) / block]) {
          return damaged(start + at + i, "bytes " + std::to_string(at + i) + " and on of the payload do not match their checksum");
        }
      }
    }
    return {};
  }

  platform::Files& files_;
  const std::filesystem::path path_;
  const RecordHead head_;
  const std::function<void(std::uint64_t)>& progress_;
  platform::File file_;
  std::optional<std::string> name_;
};

}  // namespace

Result<Header> verify_record(platform::Files& files, const std::filesystem::path& directory, const RecordHead& head,
                             const std::function<void(std::uint64_t)>& progress) {
  return RecordCheck(files, directory, head, progress).run();
}

}  // namespace ebb::storage
