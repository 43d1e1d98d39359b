#include "tests/doubles/memory_files.hpp"

#include <algorithm>
#include <cerrno>
#include <unistd.h>
#include <utility>

namespace ebb::doubles {
namespace {

constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 40;

bool aligned(const void* memory, std::size_t bytes, std::uint64_t offset) {
  return (reinterpret_cast<std::uintptr_t>(memory) | bytes | offset) % os::kBlock == 0;
}

os::FileStatus status_of(Inode inode, const FileTree::Node& node) {
  os::FileStatus out;
  out.kind = node.is_directory ? os::FileStatus::Kind::directory : os::FileStatus::Kind::file;
  out.bytes = node.contents.length();
  out.allocated = node.contents.pages() * os::kBlock;
  out.mode = node.is_directory ? 0700 : 0600;
  out.owner = ::geteuid();
  out.links = node.is_directory ? 2 : node.parent ? 1 : 0;
  out.device = 1;
  out.inode = inode;
  return out;
}

}  // namespace

MemoryFiles::MemoryFiles(FileTree tree, std::uint64_t capacity)
    : capacity_(capacity), before_(std::move(tree)), now_(before_), next_inode_(now_.next()) {}

MemoryFiles::MemoryFiles(Journal journal, std::uint64_t capacity)
    : capacity_(capacity), before_(std::move(journal.before)), now_(before_), changes_(std::move(journal.changes)) {
  for (const Change& change : changes_) {
    now_.apply(change);
    next_inode_ = std::max(next_inode_, change.inode + 1);
  }
  next_inode_ = std::max(next_inode_, now_.next());
  now_.sweep();
}

// --- the journal ---

void MemoryFiles::note(std::string text) {
  std::lock_guard lock(mutex_);
  change_locked({.kind = Change::Kind::note, .text = std::move(text)});
}

Journal MemoryFiles::journal() const {
  std::lock_guard lock(mutex_);
  return {before_, changes_};
}

std::size_t MemoryFiles::changes() const {
  std::lock_guard lock(mutex_);
  return changes_.size();
}

void MemoryFiles::set_capacity(std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

std::size_t MemoryFiles::open_files() const {
  std::lock_guard lock(mutex_);
  return open_.size();
}

void MemoryFiles::change_locked(Change change) {
  change.number = changes_.size() + 1;
  now_.apply(change);
  changes_.push_back(std::move(change));
}

// --- names ---

Inode MemoryFiles::create_locked(const FileTree::Place& place, const std::filesystem::path& path) {
  const Inode inode = next_inode_++;
  change_locked({.kind = Change::Kind::create,
                 .inode = inode,
                 .directory = place.directory,
                 .name = place.name,
                 .text = path.string()});
  return inode;
}

// What has neither a name nor a descriptor is gone.
void MemoryFiles::drop_if_unused_locked(Inode inode) {
  const FileTree::Node* const node = now_.find(inode);
  if (node == nullptr || node->parent != 0 || inode == kRoot) return;
  if (std::ranges::any_of(open_, [&](const auto& entry) { return entry.second.inode == inode; })) return;
  now_.erase(inode);
}

os::SysResult MemoryFiles::make_directory(const std::filesystem::path& path) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(path);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode) return os::SysResult::failed(EEXIST);
  change_locked({.kind = Change::Kind::make_directory,
                 .inode = next_inode_++,
                 .directory = place.directory,
                 .name = place.name,
                 .text = path.string()});
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place old = now_.resolve(from);
  const FileTree::Place fresh = now_.resolve(to);
  if (old.error || fresh.error) return os::SysResult::failed(old.error ? old.error : fresh.error);
  if (old.inode == 0) return os::SysResult::failed(ENOENT);
  if (old.inode == kRoot || fresh.inode == kRoot) return os::SysResult::failed(EBUSY);
  if (old.inode == fresh.inode) return os::SysResult::of(0);
  const bool moves_directory = now_.find(old.inode)->is_directory;
  for (Inode above = fresh.directory; above != 0; above = now_.find(above)->parent) {
    if (above == old.inode) return os::SysResult::failed(EINVAL);
  }
  if (fresh.inode) {
    const FileTree::Node& there = *now_.find(fresh.inode);
    if (there.is_directory != moves_directory) return os::SysResult::failed(moves_directory ? ENOTDIR : EISDIR);
    if (!there.names.empty()) return os::SysResult::failed(ENOTEMPTY);
  }
  change_locked({.kind = Change::Kind::rename,
                 .inode = old.inode,
                 .directory = old.directory,
                 .name = old.name,
                 .to_directory = fresh.directory,
                 .to_name = fresh.name,
                 .text = from.string() + " -> " + to.string()});
  if (fresh.inode) drop_if_unused_locked(fresh.inode);
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::remove(const std::filesystem::path& path) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(path);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode == 0) return os::SysResult::failed(ENOENT);
  if (place.inode == kRoot) return os::SysResult::failed(EBUSY);
  if (!now_.find(place.inode)->names.empty()) return os::SysResult::failed(ENOTEMPTY);
  change_locked({.kind = Change::Kind::remove,
                 .inode = place.inode,
                 .directory = place.directory,
                 .name = place.name,
                 .text = path.string()});
  drop_if_unused_locked(place.inode);
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept {
  std::lock_guard lock(mutex_);
  out.clear();
  const FileTree::Place place = now_.resolve(directory);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode == 0) return os::SysResult::failed(ENOENT);
  const FileTree::Node& node = *now_.find(place.inode);
  if (!node.is_directory) return os::SysResult::failed(ENOTDIR);
  for (const auto& [name, inode] : node.names) out.push_back(name);
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::sync_directory(const std::filesystem::path& directory) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(directory);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode == 0) return os::SysResult::failed(ENOENT);
  if (!now_.find(place.inode)->is_directory) return os::SysResult::failed(ENOTDIR);
  change_locked({.kind = Change::Kind::sync_directory, .inode = place.inode, .text = directory.string()});
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::status(const std::filesystem::path& path, os::FileStatus& out) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(path);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode == 0) return os::SysResult::failed(ENOENT);
  out = status_of(place.inode, *now_.find(place.inode));
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::describe(const std::filesystem::path& directory, os::FileSystem& out) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(directory);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode == 0) return os::SysResult::failed(ENOENT);
  out = {.kind = "pretended", .in_memory = false, .free_bytes = room_locked() * os::kBlock, .total_bytes = capacity_};
  return os::SysResult::of(0);
}

// --- descriptors ---

os::SysResult MemoryFiles::open_locked(Inode inode, bool readable, bool writable, bool direct,
                                       const std::filesystem::path& path) {
  if (now_.find(inode)->is_directory) return os::SysResult::failed(EISDIR);
  const int fd = next_fd_++;
  open_[fd] = {inode, readable, writable, direct, path.string()};
  return os::SysResult::of(fd);
}

os::SysResult MemoryFiles::open_unlinked(const std::filesystem::path& directory, bool direct) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(directory);
  if (place.error) return os::SysResult::failed(place.error);
  if (place.inode == 0) return os::SysResult::failed(ENOENT);
  if (!now_.find(place.inode)->is_directory) return os::SysResult::failed(ENOTDIR);
  return open_locked(create_locked({}, directory), true, true, direct, directory);
}

os::SysResult MemoryFiles::open_read(const std::filesystem::path& path) noexcept {
  return open(path, os::Open::read, false);
}

os::SysResult MemoryFiles::open_write(const std::filesystem::path& path) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(path);
  if (place.error) return os::SysResult::failed(place.error);
  const os::SysResult opened =
      open_locked(place.inode ? place.inode : create_locked(place, path), false, true, false, path);
  if (!opened || place.inode == 0) return opened;
  change_locked({.kind = Change::Kind::truncate,
                 .inode = place.inode,
                 .length_before = now_.find(place.inode)->contents.length(),
                 .length_after = 0,
                 .text = path.string()});
  return opened;
}

os::SysResult MemoryFiles::open(const std::filesystem::path& path, os::Open how, bool direct) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(path);
  if (place.error) return os::SysResult::failed(place.error);
  if (how == os::Open::create && place.inode) return os::SysResult::failed(EEXIST);
  if (how != os::Open::create && place.inode == 0) return os::SysResult::failed(ENOENT);
  const Inode inode = place.inode ? place.inode : create_locked(place, path);
  return open_locked(inode, true, how != os::Open::read, direct, path);
}

os::SysResult MemoryFiles::close(int fd) noexcept {
  std::lock_guard lock(mutex_);
  const auto node = open_.extract(fd);
  if (node.empty()) return os::SysResult::failed(EBADF);
  const Inode inode = node.mapped().inode;
  if (const auto held = locks_.find(inode); held != locks_.end() && held->second == fd) locks_.erase(held);
  drop_if_unused_locked(inode);
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::status(int fd, os::FileStatus& out) noexcept {
  std::lock_guard lock(mutex_);
  const auto file = open_.find(fd);
  if (file == open_.end()) return os::SysResult::failed(EBADF);
  out = status_of(file->second.inode, *now_.find(file->second.inode));
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::lock(const std::filesystem::path& path, os::Open how) noexcept {
  std::lock_guard lock(mutex_);
  const FileTree::Place place = now_.resolve(path);
  if (place.error) return os::SysResult::failed(place.error);
  if (how != os::Open::create && place.inode == 0) return os::SysResult::failed(ENOENT);
  if (locks_.contains(place.inode)) return os::SysResult::failed(EWOULDBLOCK);
  const Inode inode = place.inode ? place.inode : create_locked(place, path);
  const os::SysResult opened = open_locked(inode, true, how != os::Open::read, false, path);
  if (opened) locks_.emplace(inode, static_cast<int>(opened.value));
  return opened;
}

os::SysResult MemoryFiles::unlock(int fd) noexcept { return close(fd); }

// --- bytes ---

std::uint64_t MemoryFiles::room_locked() const {
  const std::uint64_t used = now_.pages(), all = capacity_ / os::kBlock;
  return all > used ? all - used : 0;
}

MemoryFiles::OpenFile* MemoryFiles::writable_locked(int fd) {
  const auto file = open_.find(fd);
  return file == open_.end() || !file->second.writable ? nullptr : &file->second;
}

os::SysResult MemoryFiles::read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept {
  std::lock_guard lock(mutex_);
  const auto file = open_.find(fd);
  if (file == open_.end() || !file->second.readable) return os::SysResult::failed(EBADF);
  if (file->second.direct && !aligned(memory, bytes, offset)) return os::SysResult::failed(EINVAL);
  const Contents& contents = now_.find(file->second.inode)->contents;
  if (offset >= contents.length()) return os::SysResult::of(0);
  const std::size_t part = std::min<std::uint64_t>(bytes, contents.length() - offset);
  contents.read(memory, offset, part);
  return os::SysResult::of(static_cast<std::int64_t>(part));
}

// `change` is given its file, its lengths and its path.
os::SysResult MemoryFiles::change_file(int fd, Change change) {
  const OpenFile& file = open_.at(fd);
  change.inode = file.inode;
  change.text = file.path;
  change.length_before = now_.find(file.inode)->contents.length();
  if (change.kind == Change::Kind::truncate) {
    change.length_after = change.bytes;
  } else if (change.kind == Change::Kind::punch) {
    change.length_after = change.length_before;
  } else {
    change.length_after = std::max(change.length_before, change.offset + change.bytes);
  }
  change_locked(std::move(change));
  return os::SysResult::of(0);
}

os::SysResult MemoryFiles::write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept {
  std::lock_guard lock(mutex_);
  const OpenFile* const file = writable_locked(fd);
  if (file == nullptr) return os::SysResult::failed(EBADF);
  if (file->direct && !aligned(memory, bytes, offset)) return os::SysResult::failed(EINVAL);
  if (offset > kLargestFile || bytes > kLargestFile - offset) return os::SysResult::failed(EFBIG);
  if (bytes == 0) return os::SysResult::of(0);
  const Contents& contents = now_.find(file->inode)->contents;
  const std::uint64_t room = room_locked();
  // As a disk does: as much as fits, and the error only when that is nothing.
  while (bytes > 0 && contents.missing(offset, bytes) > room) {
    const std::uint64_t last_page = (offset + bytes - 1) / os::kBlock * os::kBlock;
    bytes = last_page > offset ? last_page - offset : 0;
  }
  if (bytes == 0) return os::SysResult::failed(ENOSPC);
  auto pieces = std::make_shared<const std::vector<Piece>>(pieces_of(memory, bytes, offset));
  static_cast<void>(
      change_file(fd, {.kind = Change::Kind::write, .offset = offset, .bytes = bytes, .pieces = std::move(pieces)}));
  return os::SysResult::of(static_cast<std::int64_t>(bytes));
}

os::SysResult MemoryFiles::truncate(int fd, std::uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  if (!open_.contains(fd)) return os::SysResult::failed(EBADF);
  if (!writable_locked(fd)) return os::SysResult::failed(EINVAL);
  if (bytes > kLargestFile) return os::SysResult::failed(EFBIG);
  return change_file(fd, {.kind = Change::Kind::truncate, .bytes = bytes});
}

os::SysResult MemoryFiles::preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  const OpenFile* const file = writable_locked(fd);
  if (file == nullptr) return os::SysResult::failed(EBADF);
  if (bytes == 0) return os::SysResult::failed(EINVAL);
  if (offset > kLargestFile || bytes > kLargestFile - offset) return os::SysResult::failed(EFBIG);
  const std::uint64_t room = room_locked();
  if (bytes / os::kBlock > capacity_ / os::kBlock) return os::SysResult::failed(ENOSPC);
  if (now_.find(file->inode)->contents.missing(offset, bytes) > room) return os::SysResult::failed(ENOSPC);
  return change_file(fd, {.kind = Change::Kind::preallocate, .offset = offset, .bytes = bytes});
}

os::SysResult MemoryFiles::punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  if (!writable_locked(fd)) return os::SysResult::failed(EBADF);
  if (bytes == 0) return os::SysResult::failed(EINVAL);
  if (offset > kLargestFile || bytes > kLargestFile - offset) return os::SysResult::failed(EFBIG);
  return change_file(fd, {.kind = Change::Kind::punch, .offset = offset, .bytes = bytes});
}

Result<std::unique_ptr<os::Ring>> MemoryFiles::open_ring(unsigned) {
  return Error{Errc::unsupported, "files in memory have no ring"};
}

}  // namespace ebb::doubles
