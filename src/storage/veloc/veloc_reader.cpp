#include "storage/veloc/veloc_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "storage/file_io.hpp"
#include "storage/format/hasher.hpp"

namespace ebb::storage {
namespace {

using os::round_up;
using Path = std::filesystem::path;

constexpr std::size_t kReadAtOnce = std::size_t{4} << 20;

}  // namespace

Result<void> VelocReader::read(const SharedVelocObject& object, std::uint64_t offset, std::span<std::byte> memory) const
    try {
  if (memory.empty()) return {};
  if (auto loaded = load(*object); !loaded) return loaded;
  const auto file = open_to_read(object);
  if (!file) return file.error();
  if (auto right = check_sum(*object, **file); !right) return right;
  if (auto got = read_extents(*object, *file, offset, memory); !got) return got;
  if (!object->blocks.empty()) return check_blocks(*object, *file, offset, memory);
  os::FileStatus status;
  if (const auto asked = files_.status((*file)->fd(), status); !asked)
    return file_error((*file)->name(), "asking for its status", asked.error);
  const auto held = objects_.lock();
  if (object->kept() && state_of(status) != object->file)
    return Error{Errc::damaged, (*file)->name() + ": it was changed while it was read"};
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for(*object);
}

Result<void> VelocReader::read_extents(const VelocObject& object, const SharedFile& file, std::uint64_t offset,
                                       std::span<std::byte> memory) const {
  Result<void> how;
  object.layout.for_each(offset, memory.size(), [&](std::uint64_t from, std::uint64_t length, std::uint64_t at) {
    if (!how) return;
    const auto got = read_whole(files_, file->fd(), memory.subspan(from, length), object.part.begin + at);
    if (!got)
      how = file_error(file->name(), "reading it", got.error);
    else if (static_cast<std::uint64_t>(got.value) < length)
      how = Error{Errc::damaged, file->name() + ": it ends before its regions do"};
  });
  object.layout.clear_gaps(offset, memory);
  return how;
}

// Those at either end may begin before the memory, or end after it.
Result<void> VelocReader::check_blocks(const VelocObject& object, const SharedFile& file, std::uint64_t offset,
                                       std::span<const std::byte> memory) const {
  const std::uint64_t block = block_bytes_, end = offset + memory.size();
  std::vector<std::byte> beyond;
  for (std::uint64_t number = offset / block; number * block < end; ++number) {
    const std::uint64_t from = number * block, length = std::min(block, object.bytes - from);
    std::span<const std::byte> bytes;
    if (from >= offset && from + length <= end) {
      bytes = memory.subspan(from - offset, length);
    } else {
      beyond.resize(length);
      if (auto got = read_extents(object, file, from, beyond); !got) return got;
      bytes = beyond;
    }
    if (checksum_of(bytes) == object.blocks[number]) continue;
    return Error{Errc::damaged, file->name() + ": bytes " + std::to_string(from) + " to " +
                                    std::to_string(from + length) + " of version " +
                                    std::to_string(object.name.version) + " of \"" + object.name.name +
                                    "\" do not match their checksum"};
  }
  return {};
}

Result<SharedFile> VelocReader::open_to_read(const SharedVelocObject& object) const {
  Path path;
  bool named = false, kept = false;
  {
    const auto held = objects_.lock();
    if (SharedFile open = object->reading.lock()) return open;
    path = object->path;
    named = object->named;
    kept = object->kept();
  }
  os::SysResult opened = files_.open(path, os::Open::read, false);
  if (!opened && opened.error == ENOENT && !named) {  // it has got its name meanwhile
    path = folders_.path_of(object->name);
    opened = files_.open(path, os::Open::read, false);
  }
  if (!opened && opened.error == ENOENT) {
    return Error{folders_.readonly() ? Errc::unknown_version : Errc::damaged,
                 path.string() + " is not there any more: somebody removed it"};
  }
  if (!opened) return file_error(path, "opening it", opened.error);
  auto file = std::make_shared<const os::File>(files_, static_cast<int>(opened.value), path.string(), false);
  os::FileStatus status;
  if (const auto asked = files_.status(file->fd(), status); !asked)
    return file_error(path, "asking for its status", asked.error);
  const auto held = objects_.lock();
  // With checksums, the bytes themselves say whether they are right: a file system may set its times late.
  const bool same = object->blocks.empty() ? state_of(status) == object->file : status.bytes == object->file.bytes;
  if (kept && !same) return Error{Errc::damaged, path.string() + ": it was changed after it was found or written"};
  object->reading = file;
  return SharedFile(std::move(file));
}

// Before the first bytes of what was found are given out; our own mark is enough where there is no checksum file.
Result<void> VelocReader::check_sum(VelocObject& object, const os::File& file) const {
  if (!sums_.wanted()) return {};
  const std::lock_guard lock(object.opening);
  if (object.sum_checked) return {};
  auto right = sums_.check(object.name, file, object.part, object.mark.empty());
  object.sum_checked = static_cast<bool>(right);
  return right;
}

Result<void> VelocReader::load(VelocObject& object) const {
  {
    const auto held = objects_.lock();
    if (object.description) return {};
  }
  std::vector<std::byte> bytes;
  Path path = object.mark;
  auto got = read_front(files_, path, kMaxHeader + kVelocMarkBegin, bytes);
  if (!got && got.error == ENOENT) {  // it has its own name by now
    path = folders_.mark_of(object.name);
    got = read_front(files_, path, kMaxHeader + kVelocMarkBegin, bytes);
  }
  if (!got) return file_error(path, "reading it", got.error);
  auto header = parse_veloc_mark(bytes);
  if (!header) return Error{header.error().code, path.string() + ": " + header.error().message};
  if (header->head.sequence != object.sequence)
    return Error{Errc::unknown_version, path.string() + " is of a later write"};
  const auto held = objects_.lock();
  if (object.description) return {};
  header->description.sequence = object.sequence;
  object.layout = VelocLayout::of(header->description.info);
  object.blocks = std::move(header->blocks);
  object.description = std::make_shared<const Description>(std::move(header->description));
  return {};
}

Result<void> VelocReader::read_all(const SharedVelocObject& object, const PersistentStorage::Sink& sink,
                                   const std::function<bool()>& ended) const {
  if (auto loaded = load(*object); !loaded) return loaded;
  std::vector<std::byte> memory;
  for (std::uint64_t at = 0; at < object->bytes; at += memory.size()) {
    if (ended && ended()) return Error{Errc::timed_out, "checking it was ended"};
    memory.resize(std::min<std::uint64_t>(round_up(kReadAtOnce, block_bytes_), object->bytes - at));
    if (auto got = read(object, at, memory); !got) return got;
    if (sink) sink(at, memory);
  }
  return {};
}

Result<std::vector<Checksum>> VelocReader::region_checksums(const SharedVelocObject& object) const {
  if (auto loaded = load(*object); !loaded) return loaded.error();
  std::vector<Hasher> hashers(object->description->info.regions.size());
  const auto add = [&](std::uint64_t at, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < hashers.size(); ++i) {
      const RegionInfo& region = object->description->info.regions[i];
      const std::uint64_t from = std::max<std::uint64_t>(at, region.offset);
      const std::uint64_t to = std::min<std::uint64_t>(at + bytes.size(), region.offset + region.bytes);
      if (from < to) hashers[i].add(bytes.subspan(from - at, to - from));
    }
  };
  if (auto got = read_all(object, add, {}); !got) return got.error();
  std::vector<Checksum> sums;
  for (const Hasher& one : hashers) sums.push_back(one.result());
  return sums;
}

}  // namespace ebb::storage
