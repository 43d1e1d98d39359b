#include "storage/veloc/veloc_writer.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "storage/file_io.hpp"

namespace ebb::storage {

SharedVelocObject VelocWriter::make(ObjectId id, std::shared_ptr<const Description> description) const {
  auto object = std::make_shared<VelocObject>();
  object->id = id;
  object->name = {description->history, folders_.rank(), description->version};
  object->bytes = description->info.bytes;
  object->layout = VelocLayout::of(description->info);
  object->description = std::move(description);
  object->missing = block_count(object->bytes, block_bytes_);
  object->there.resize(object->missing);
  if (checksums_) object->blocks.resize(object->missing), object->raw.resize(object->missing);
  if (compact_bytes(*object->description) > 0) object->small.resize(object->bytes);
  object->path = folders_.unfinished_of(object->name, id);
  return object;
}

Result<bool> VelocWriter::put(VelocObject& object, std::uint64_t offset, std::span<const std::byte> bytes) const {
  if (auto written = write(object, offset, bytes); !written) return written.error();
  if (!count(object, offset, bytes.size(), true)) return false;
  if (auto finished = finish(object); !finished) {
    count(object, offset, bytes.size(), false);  // to be put again
    return finished.error();
  }
  return true;
}

bool VelocWriter::count(VelocObject& object, std::uint64_t offset, std::size_t bytes, bool there) const {
  const auto held = objects_.lock();
  bool whole = false;
  for (std::uint64_t at = offset; at < offset + bytes; at += block_bytes_) {
    const std::uint64_t block = at / block_bytes_;
    if (object.there[block] == there) continue;
    object.there[block] = there;
    object.missing += there ? std::size_t(-1) : 1;
    whole = object.missing == 0;
  }
  return whole;
}

Result<SharedFile> VelocWriter::open(VelocObject& object) const {
  const std::lock_guard lock(object.opening);
  if (object.writing) return object.writing;
  const auto opened = files_.open(object.path, object.created ? os::Open::write : os::Open::create, false);
  if (!opened) return file_error(object.path, "making it", opened.error);
  object.created = true;
  object.writing =
      std::make_shared<const os::File>(files_, static_cast<int>(opened.value), object.path.string(), false);
  return object.writing;
}

Result<void> VelocWriter::write(VelocObject& object, std::uint64_t offset, std::span<const std::byte> bytes) const try {
  const auto file = open(object);
  if (!file) return file.error();
  Result<void> written;
  object.layout.for_each(offset, bytes.size(), [&](std::uint64_t from, std::uint64_t length, std::uint64_t at) {
    if (!written) return;
    const auto put = write_whole(files_, (*file)->fd(), bytes.subspan(from, length), at);
    if (!put) written = file_error(object.path, "writing it", put.error);
  });
  if (!object.small.empty()) std::ranges::copy(bytes, object.small.begin() + static_cast<std::ptrdiff_t>(offset));
  if (written && !object.blocks.empty()) sum(object, offset, bytes);
  return written;
} catch (const std::bad_alloc&) {
  return no_memory_for(object);
}

void VelocWriter::sum(VelocObject& object, std::uint64_t offset, std::span<const std::byte> bytes) const {
  const std::size_t first = offset / block_bytes_;
  const std::span<Checksum> raw = std::span(object.raw).subspan(first, block_count(bytes.size(), block_bytes_));
  checksums_of(bytes, block_bytes_, raw);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const std::uint64_t at = i * block_bytes_, length = std::min<std::uint64_t>(block_bytes_, bytes.size() - at);
    object.blocks[first + i] = raw[i];
    if (!object.layout.has_gaps(offset + at, length)) continue;
    const std::span<const std::byte> block = bytes.subspan(at, length);
    std::vector<std::byte> clean(block.begin(), block.end());
    object.layout.clear_gaps(offset + at, clean);
    object.blocks[first + i] = checksum_of(clean);
  }
}

Result<void> VelocWriter::finish(VelocObject& object) const try {
  auto file = open(object);
  if (!file) return file.error();
  const int fd = (*file)->fd();
  const auto failed = [&](const char* what, int error) { return file_error(object.path, what, error); };
  const auto header = encode_veloc_header(object.description->info);
  if (const auto put = write_whole(files_, fd, header, 0); !put) return failed("writing it", put.error);
  if (const auto synced = files_.sync(fd); !synced) return failed("syncing it", synced.error);
  os::FileStatus status;
  if (const auto asked = files_.status(fd, status); !asked) return failed("asking for its status", asked.error);
  if (sums_.wanted()) {
    const auto sum = sums_.sum_of(**file, {0, object.layout.file_bytes});
    if (!sum) return sum.error();
    object.sum = *sum;
  }
  {
    const std::lock_guard lock(object.opening);
    object.writing.reset();
    object.sum_checked = true;
  }
  const auto held = objects_.lock();
  object.file = state_of(status);
  object.part.bytes = status.bytes;
  return {};
} catch (const std::bad_alloc&) {
  return no_memory_for(object);
}

}  // namespace ebb::storage
