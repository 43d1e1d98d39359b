// What of a file in memory is on its disk: syncs, those that fail, and reading it from there.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "tests/doubles/memory_files.hpp"

namespace ebb::doubles {

os::SysResult MemoryFiles::sync(int fd) noexcept {
  std::lock_guard lock(mutex_);
  const auto file = open_.find(fd);
  if (file == open_.end()) return os::SysResult::failed(EBADF);
  const bool fails = until_failure_ > 0 && --until_failure_ == 0;
  change_locked({.kind = fails ? Change::Kind::failed_sync : Change::Kind::sync,
                 .inode = file->second.inode,
                 .text = file->second.path});
  return fails ? os::SysResult::failed(EIO) : os::SysResult::of(0);
}

void MemoryFiles::fail_sync(std::uint64_t nth) {
  std::lock_guard lock(mutex_);
  until_failure_ = nth;
}

os::SysResult MemoryFiles::drop_cached(int fd) noexcept {
  std::lock_guard lock(mutex_);
  const auto file = open_.find(fd);
  if (file == open_.end()) return os::SysResult::failed(EBADF);
  const auto failed = [](const Change& change) { return change.kind == Change::Kind::failed_sync; };
  if (std::ranges::none_of(changes_, failed)) return os::SysResult::of(0);
  const Inode inode = file->second.inode;
  const SyncFates fates(changes_);
  FileTree disk = before_;
  bool any = false;
  for (const Change& change : changes_) {
    const SyncFate fate = fates.of(change);
    const bool lost = change.inode == inode && (fate == SyncFate::lost || fate == SyncFate::gone);
    any = any || (lost && fate == SyncFate::lost);
    if (!lost && change.inode == inode) disk.apply(change);
  }
  if (!any) return os::SysResult::of(0);
  change_locked({.kind = Change::Kind::drop_cached,
                 .inode = inode,
                 .text = file->second.path,
                 .contents = std::make_shared<const Contents>(disk.find(inode)->contents)});
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::next_data(int fd, std::uint64_t from) noexcept {
  std::lock_guard lock(mutex_);
  const auto file = open_.find(fd);
  if (file == open_.end()) return os::SysResult::failed(EBADF);
  const Contents& contents = now_.find(file->second.inode)->contents;
  for (std::uint64_t at = from; at < contents.length(); at = (at / os::kBlock + 1) * os::kBlock) {
    if (contents.written(at / os::kBlock)) return os::SysResult::of(static_cast<std::int64_t>(at));
  }
  return os::SysResult::failed(ENXIO);
}

}  // namespace ebb::doubles
