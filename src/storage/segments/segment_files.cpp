#include "storage/segments/segment_files.hpp"

#include <algorithm>
#include <cerrno>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

using os::SysResult;
using Path = std::filesystem::path;

Path SegmentFiles::path(std::uint64_t segment) const { return segment_path(directory_, segment); }

Error SegmentFiles::refused(const Path& path, const char* what, int error) const {
  if (error == EINVAL && direct_) {
    return {Errc::unsupported, path.string() + ": this file system has no O_DIRECT; open with direct_io off"};
  }
  return file_error(path, what, error);
}

Result<SharedFile> SegmentFiles::make(const SegmentHead& head, std::uint64_t bytes, bool synced, bool cached) {
  if (auto same = store_.in_place(); !same) return same.error();
  const Path name = path(head.segment);
  const bool direct = direct_ && !cached;
  const SysResult opened = files_.open(name, os::Open::create, direct);
  if (!opened) return refused(name, "making it", opened.error);
  auto file = std::make_shared<const os::File>(files_, static_cast<int>(opened.value), name.string(), direct);
  const char* what = "taking its space";
  SysResult made = files_.preallocate(file->fd(), 0, bytes);
  while (!made && made.error == EINTR) made = files_.preallocate(file->fd(), 0, bytes);
  if (!made && (made.error == EOPNOTSUPP || made.error == ENOSYS)) {
    what = "giving it its length";
    made = files_.truncate(file->fd(), bytes);
  }
  if (made) {
    const std::vector<std::byte> text = encode(head);
    AlignedBytes block(text.size());
    std::copy(text.begin(), text.end(), block.data());
    what = "writing its head";
    made = write_whole(files_, file->fd(), block.first(text.size()), 0, direct);
  }
  if (made && synced) {  // its head is synced with the first payloads: no record counts before that
    what = "syncing its directory";
    made = files_.sync_directory(directory_);
  }
  if (!made) {
    static_cast<void>(files_.remove(name));  // if that fails too, the file has no records
    return refused(name, what, made.error);
  }
  return keep_open(head.segment, std::move(file));
}

Result<SharedFile> SegmentFiles::open(std::uint64_t segment) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = find(segment); found != open_.end()) {
      open_.splice(open_.begin(), open_, found);
      return found->second;
    }
  }
  if (!readonly_) {
    if (auto same = store_.in_place(); !same) return same.error();
  }
  const Path name = path(segment);
  const SysResult opened = files_.open(name, readonly_ ? os::Open::read : os::Open::write, direct_);
  if (!opened && opened.error == ENOENT) return Error{Errc::unknown_version, name.string() + ": there is no such file"};
  if (!opened) return refused(name, "opening it", opened.error);
  auto file = std::make_shared<const os::File>(files_, static_cast<int>(opened.value), name.string(), direct_);
  return keep_open(segment, std::move(file));
}

SharedFile SegmentFiles::keep_open(std::uint64_t segment, SharedFile file) {
  SharedFile unused;  // closed after the lock is released
  std::lock_guard lock(mutex_);
  if (const auto found = find(segment); found != open_.end()) {  // another thread was faster
    unused = std::move(file);
    return found->second;
  }
  open_.emplace_front(segment, file);
  if (open_.size() > kMostOpen) {
    unused = std::move(open_.back().second);
    open_.pop_back();
  }
  return file;
}

Result<void> SegmentFiles::remove(std::uint64_t segment) {
  if (auto same = store_.in_place(); !same) return same;
  SharedFile unused;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = find(segment); found != open_.end()) {
      unused = std::move(found->second);
      open_.erase(found);
    }
  }
  const SysResult gone = files_.remove(path(segment));
  if (!gone && gone.error != ENOENT) return file_error(path(segment), "removing it", gone.error);
  return {};
}

}  // namespace ebb::storage
