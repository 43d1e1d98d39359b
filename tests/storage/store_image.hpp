#pragma once
// A store made by hand, in memory, and the files that it is read through.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "storage/format/record.hpp"
#include "storage/scan/record_reader.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/doubles/no_files.hpp"

namespace ebb::test {

using Bytes = std::vector<std::byte>;

/// One directory of files, to be read.
/// Thread safety: every method may be called from any thread, while the files stay as they are.
class ImageFiles : public doubles::NoFiles {
 public:
  using SysResult = os::SysResult;
  std::map<std::string, Bytes> files;

  SysResult open(const Path& path, os::Open, bool) noexcept override {
    const auto found = files.find(path.filename().string());
    if (found == files.end()) return SysResult::failed(ENOENT);
    const std::lock_guard lock(mutex_);
    opens_[next_] = &found->second;
    return SysResult::of(next_++);
  }
  SysResult close(int fd) noexcept override {
    const std::lock_guard lock(mutex_);
    return opens_.erase(fd) ? SysResult::of(0) : SysResult::failed(EBADF);
  }
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    const Bytes* const file = find(fd);
    if (file == nullptr || offset > static_cast<std::uint64_t>(INT64_MAX)) return SysResult::failed(EINVAL);
    if (offset >= file->size()) return SysResult::of(0);
    const std::size_t many = std::min<std::size_t>(bytes, file->size() - offset);
    std::memcpy(memory, file->data() + offset, many);
    return SysResult::of(static_cast<std::int64_t>(many));
  }
  SysResult list(const Path&, std::vector<std::string>& out) noexcept override {
    out.clear();
    for (const auto& [name, bytes] : files) out.push_back(name);
    return SysResult::of(0);
  }
  SysResult status(const Path& path, os::FileStatus& out) noexcept override {
    const auto found = files.find(path.filename().string());
    if (path == kDirectory) {
      out = {os::FileStatus::Kind::directory, 0, 0, 0700, ::geteuid(), 2};
    } else if (found == files.end()) {
      return SysResult::failed(ENOENT);
    } else {
      out = {os::FileStatus::Kind::file, found->second.size(), 0, 0600, ::geteuid(), 1};
    }
    return SysResult::of(0);
  }
  SysResult status(int fd, os::FileStatus& out) noexcept override {
    const Bytes* const file = find(fd);
    if (file == nullptr) return SysResult::failed(EBADF);
    out = {os::FileStatus::Kind::file, file->size(), 0, 0600, ::geteuid(), 1};
    return SysResult::of(0);
  }
  std::size_t open_files() const { return opens_.size(); }

  static constexpr const char* kDirectory = "/store";

 private:
  const Bytes* find(int fd) {
    const std::lock_guard lock(mutex_);
    const auto found = opens_.find(fd);
    return found == opens_.end() ? nullptr : found->second;
  }
  std::mutex mutex_;
  std::map<int, const Bytes*> opens_;
  int next_ = 3;
};

inline Bytes random_bytes(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

/// Regions 0, 1, ... of these sizes, packed as the runtime packs them.
inline storage::Description describe(std::string history, Version version, std::vector<std::size_t> sizes,
                                     std::string metadata = {}) {
  storage::Description out{std::move(history), version, {{}, std::move(metadata), 0}};
  std::uint32_t id = 0;
  for (const std::size_t bytes : sizes) {
    const std::uint64_t offset = (out.info.bytes + 255) / 256 * 256;
    out.info.regions.push_back({id++, bytes, offset});
    out.info.bytes = offset + bytes;
  }
  return out;
}

/// Appends to segments as a writer would.
class StoreImage {
 public:
  static constexpr std::uint32_t kBlockBytes = 4096;

  StoreImage() : StoreImage(1) {}
  explicit StoreImage(std::uint8_t id) {
    head.store.fill(static_cast<std::byte>(id));
    head.owner = 1000;
    head.created_ns = 1'700'000'000'000'000'000;
    files["store"] = storage::encode(head);
  }

  Bytes& segment(std::uint64_t number) {
    Bytes& out = files[storage::segment_name(number)];
    if (out.empty()) out = storage::encode(storage::SegmentHead{head.store, number});
    return out;
  }
  storage::RecordPlace place(std::uint64_t number) { return {head.store, number, segment(number).size()}; }

  /// A record with random payload; its head.
  storage::RecordHead add(std::uint64_t number, const storage::Description& description) {
    return add(number, description, random_bytes(description.info.bytes, sequence));
  }
  storage::RecordHead add(std::uint64_t number, const storage::Description& description, const Bytes& payload) {
    storage::RecordHead record;
    record.place = place(number);
    record.sequence = sequence++;
    record.written_ns = head.created_ns + static_cast<std::int64_t>(record.sequence);
    record.block_bytes = kBlockBytes;
    std::vector<storage::Checksum> sums;
    for (std::size_t at = 0; at < payload.size(); at += kBlockBytes) {
      sums.push_back(storage::checksum_of(
          std::span(payload).subspan(at, std::min<std::size_t>(kBlockBytes, payload.size() - at))));
    }
    const Bytes header = storage::encode(record, description, sums);
    Bytes& to = segment(number);
    to.insert(to.end(), header.begin(), header.end());
    to.insert(to.end(), payload.begin(), payload.end());
    to.resize(os::round_up(to.size()));
    histories[{number, record.place.offset}] = description.history;
    return record;
  }
  /// Small ones that share a block, one behind the other; their heads.
  std::vector<storage::RecordHead> add_block(std::uint64_t number,
                                             const std::vector<std::pair<storage::Description, Bytes>>& small) {
    std::vector<storage::RecordHead> heads;
    Bytes block(os::kBlock);
    std::size_t end = 0;
    for (const auto& [description, payload] : small) {
      storage::RecordHead record;
      record.place = {head.store, number, segment(number).size() + end};
      record.sequence = sequence++;
      record.written_ns = head.created_ns + static_cast<std::int64_t>(record.sequence);
      record.record_bytes = storage::compact_bytes(description);
      if (heads.size() + 1 == small.size()) record.record_bytes = block.size() - end;  // the last has the rest
      const Bytes bytes = storage::encode_compact(record, description, payload);
      std::ranges::copy(bytes, block.begin() + static_cast<std::ptrdiff_t>(end));
      end += record.record_bytes;
      histories[{number, record.place.offset}] = description.history;
      heads.push_back(record);
    }
    Bytes& to = segment(number);
    to.insert(to.end(), block.begin(), block.end());
    return heads;
  }
  /// Blocks that no head was written for.
  void leave(std::uint64_t number, std::size_t blocks, std::byte fill = std::byte{0}) {
    Bytes& to = segment(number);
    to.resize(to.size() + os::kBlock);  // where the head would be
    to.resize(to.size() + (blocks - 1) * os::kBlock, fill);
  }
  void rewrite(const storage::RecordHead& record) {
    const auto sector = storage::encode(record);
    std::copy(sector.begin(), sector.end(),
              segment(record.place.segment).begin() + static_cast<std::ptrdiff_t>(record.place.offset));
  }
  void drop(const storage::RecordHead& record) {
    drop_as(storage::tombstone(record, histories.at({record.place.segment, record.place.offset})));
  }
  /// As it was done once, before a dropped head said its name.
  void drop_unnamed(storage::RecordHead record) {
    record.kind = storage::RecordHead::Kind::dropped;
    drop_as(record);
  }
  void drop_as(const storage::RecordHead& record) {
    if (record.shares_block()) return list({{record.place.offset, record.kind}}, record.place.segment);
    rewrite(record);
    Bytes& in = segment(record.place.segment);  // and punches the rest
    const auto at = in.begin() + static_cast<std::ptrdiff_t>(record.place.offset);
    std::fill(at + os::kBlock, at + static_cast<std::ptrdiff_t>(record.record_bytes), std::byte{0});
  }

  /// Appends a list of drops.
  void list(const std::vector<storage::Drop>& drops, std::uint64_t number) {
    const Bytes blocks = storage::encode(place(number), drops);
    Bytes& to = segment(number);
    to.insert(to.end(), blocks.begin(), blocks.end());
  }

  storage::StoreHead head;
  std::map<std::string, Bytes> files;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> histories;  // by segment and offset
  std::uint64_t sequence = 1;
};

inline Result<storage::ScannedStore> scan(const std::map<std::string, Bytes>& files, bool use_index = false) {
  ImageFiles image;
  image.files = files;
  return storage::scan_store(image, ImageFiles::kDirectory, use_index);
}

/// Reads all of a record, and checks it.
inline Result<storage::Header> read_record(os::Files& files, const std::filesystem::path& directory,
                                           const storage::RecordHead& head, std::uint64_t* bytes = nullptr) {
  storage::RecordReader reader(files, directory, head);
  if (auto opened = reader.open(); !opened) return opened.error();
  for (;;) {
    auto piece = reader.next();
    if (!piece) return piece.error();
    if (piece->empty()) return reader.header();
    if (bytes != nullptr) *bytes += piece->size();
  }
}

/// "history/version" of all records, ascending by place.
inline std::vector<std::string> names(const storage::ScannedStore& store) {
  std::vector<std::string> out;
  for (const auto& segment : store.segments) {
    for (const auto& record : segment.records)
      out.push_back(record.history + "/" + std::to_string(record.head.version));
  }
  return out;
}

}  // namespace ebb::test
