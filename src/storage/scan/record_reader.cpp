#include "storage/scan/record_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "storage/file_io.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

using os::File;

bool is_dropped(os::Files& files, const std::filesystem::path& directory, const RecordHead& head) {
  const std::filesystem::path path = segment_path(directory, head.place.segment);
  const auto opened = files.open(path, os::Open::read, false);
  if (!opened) return opened.error == ENOENT;
  const File file(files, static_cast<int>(opened.value), path.string(), false);
  std::array<std::byte, kSector> sector{};
  const auto got = read_whole(files, file.fd(), sector, head.place.offset);
  if (!got || got.value != static_cast<std::int64_t>(kSector)) return false;
  auto now = parse_head(sector, head.place, UINT64_MAX);
  return now && is_tombstone_of(*now, head);
}

RecordReader::RecordReader(os::Files& files, const std::filesystem::path& directory, const RecordHead& head)
    : files_(files), directory_(directory), path_(segment_path(directory, head.place.segment)), head_(head) {}

Result<void> RecordReader::open() {
  if (const std::string wrong = misfit(head_); !wrong.empty()) return damaged(head_.place.offset, wrong);
  const auto opened = files_.open(path_, os::Open::read, false);
  if (!opened && opened.error == ENOENT) {
    return fail(Errc::unknown_version, head_.place.offset, "its segment is not there any more");
  }
  if (!opened) {
    const Error error = file_error(path_, "opening it", opened.error);
    trouble_ = {path_, head_.place.offset, error.message};
    return error;
  }
  file_ = File(files_, static_cast<int>(opened.value), path_.string(), false);
  os::FileStatus status;
  if (const auto known = files_.status(file_.fd(), status); !known) {
    const Error error = file_error(path_, "measuring it", known.error);
    trouble_ = {path_, head_.place.offset, error.message};
    return error;
  }
  if (head_.record_bytes > status.bytes || head_.place.offset > status.bytes - head_.record_bytes) {
    return damaged(head_.place.offset, "the file ends before the record does");
  }
  std::vector<std::byte> bytes(head_.header_bytes);
  if (auto got = read(bytes, head_.place.offset); !got) return got;
  auto on_disk = parse_head(bytes, head_.place, status.bytes);
  if (!on_disk) return damaged(head_.place.offset, on_disk.error().message);
  if (is_tombstone_of(*on_disk, head_)) {
    return fail(Errc::unknown_version, head_.place.offset, "it was dropped");
  }
  if (*on_disk != head_) return damaged(head_.place.offset, "another record is in its place");
  auto header = parse_header(bytes, head_);
  if (!header) return damaged(head_.place.offset, header.error().message);
  header_ = std::move(*header);
  return {};
}

Result<std::span<const std::byte>> RecordReader::next() {
  if (head_.compact()) {
    const auto rest = std::span(std::as_const(header_->payload)).subspan(at_);
    at_ = head_.payload_bytes;
    return rest;
  }
  const std::uint64_t block = head_.block_bytes, start = head_.place.offset + head_.header_bytes;
  const std::uint64_t step = block == 0 ? kPiece : std::max(block, kPiece / block * block);
  const std::uint64_t many = std::min(step, head_.payload_bytes - at_);
  if (many == 0) return std::span<const std::byte>();
  if (piece_.empty()) piece_.resize(many);  // none is longer than the first
  const auto part = std::span(piece_).first(many);
  if (auto got = read(part, start + at_); !got) return got.error();
  for (std::uint64_t i = 0; block != 0 && i < many; i += block) {
    if (checksum_of(part.subspan(i, std::min(block, many - i))) == header_->blocks[(at_ + i) / block]) continue;
    return damaged(start + at_ + i,
                   "the payload block at byte " + std::to_string(at_ + i) + " does not match its checksum");
  }
  at_ += many;
  return std::span<const std::byte>(part);
}

Error RecordReader::fail(Errc code, std::uint64_t offset, const std::string& what) {
  trouble_ = {path_, offset, what};
  const std::string whose = header_ ? " of history '" + header_->description.history + "'" : "";
  return {code, path_.string() + ", offset " + std::to_string(offset) + ": version " + std::to_string(head_.version) +
                    whose + ": " + what};
}

Error RecordReader::damaged(std::uint64_t offset, const std::string& what) {
  if (file_.fd() >= 0 && is_dropped(files_, directory_, head_))
    return fail(Errc::unknown_version, head_.place.offset, "it was dropped");
  return fail(Errc::damaged, offset, what);
}

Result<void> RecordReader::read(std::span<std::byte> into, std::uint64_t offset) {
  const auto got = read_whole(files_, file_.fd(), into, offset);
  if (!got) {
    const std::string what = "reading " + std::to_string(into.size()) + " bytes at " + std::to_string(offset);
    const Error error = file_error(path_, what, got.error);
    trouble_ = {path_, offset, what + " failed with " + os::describe_errno(got.error)};
    return error;
  }
  if (static_cast<std::size_t>(got.value) != into.size())
    return damaged(offset, "the file ends before the record does");
  return {};
}

}  // namespace ebb::storage
