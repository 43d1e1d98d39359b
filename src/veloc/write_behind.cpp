#include "veloc/write_behind.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "veloc/say.hpp"

namespace ebb::veloc {

namespace {

constexpr const char* kCall = "cached_file_t";
constexpr std::size_t kPiece = 1 << 20;

// What is left of a call that may do a part: 0, or errno.
template <class Call>
int whole(std::size_t count, const Call& call) {
  for (std::size_t at = 0; at < count;) {
    const ssize_t moved = call(at);
    if (moved > 0)
      at += static_cast<std::size_t>(moved);
    else if (moved == 0)
      return ENODATA;
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

int write_whole(int file, const std::byte* bytes, std::size_t count, std::uint64_t offset) {
  return whole(count,
               [&](std::size_t at) { return ::pwrite(file, bytes + at, count - at, static_cast<off_t>(offset + at)); });
}

int read_whole(int file, std::byte* bytes, std::size_t count, std::uint64_t offset) {
  return whole(count,
               [&](std::size_t at) { return ::pread(file, bytes + at, count - at, static_cast<off_t>(offset + at)); });
}

Error failed_to(const std::filesystem::path& path, const char* what, int code) {
  return {Errc::io_error, path.string() + " cannot be " + what + ": " + std::generic_category().message(code)};
}

}  // namespace

// --- a file ----------------------------------------------------------------------------------------------------------

Error CachedFile::cannot(const char* what, int code) const { return failed_to(path_, what, code); }

Result<std::shared_ptr<CachedFile>> CachedFile::open(const std::filesystem::path& scratch,
                                                     const std::filesystem::path& path, int flags, unsigned mode) {
  int copy = -1;  // before the file: what cannot be written is not truncated either
  if ((flags & O_ACCMODE) != O_RDONLY) {
    std::string name = scratch / "veloc-cached-XXXXXX";
    copy = ::mkostemp(name.data(), O_CLOEXEC);
    if (copy < 0) {
      return Error{Errc::io_error, scratch.string() +
                                       " cannot be a scratch directory: " + std::generic_category().message(errno) +
                                       ": give a directory on this node's disk"};
    }
    ::unlink(name.c_str());
  }
  const int file = ::open(path.c_str(), flags | O_CLOEXEC, static_cast<mode_t>(mode));
  if (file >= 0) return SharedCachedFile(new CachedFile(path, file, copy, (flags & O_CREAT) != 0));
  const int code = errno;
  if (copy >= 0) ::close(copy);
  return failed_to(path, "opened", code);
}

CachedFile::~CachedFile() {
  ::close(file_);
  if (copy_ >= 0) ::close(copy_);
}

Result<void> CachedFile::write_copy(const std::byte* bytes, std::size_t count, std::uint64_t offset) const {
  if (copy_ < 0) return cannot("written", EBADF);
  if (const int code = write_whole(copy_, bytes, count, offset))
    return cannot("written in the scratch directory", code);
  return {};
}

Result<void> CachedFile::read(std::byte* bytes, std::size_t count, std::uint64_t offset) const {
  if (lost_) {
    return Error{Errc::io_error, path_.string() + " cannot be read: what was written to it could not be copied to it"};
  }
  const int code = read_whole(file_, bytes, count, offset);
  if (code == ENODATA) {
    return Error{Errc::invalid_argument, path_.string() + " ends before byte " + std::to_string(offset + count) +
                                             ", which is the end of what was to be read"};
  }
  if (code != 0) return cannot("read", code);
  return {};
}

Result<void> CachedFile::transfer(std::uint64_t offset, std::uint64_t count, std::span<std::byte> piece) {
  for (std::uint64_t at = 0; at < count; at += piece.size()) {
    const std::size_t bytes = std::min<std::uint64_t>(piece.size(), count - at);
    const int taken = read_whole(copy_, piece.data(), bytes, offset + at);
    const int put = taken == 0 ? write_whole(file_, piece.data(), bytes, offset + at) : 0;
    if (taken == 0 && put == 0) continue;
    lost_ = true;
    return taken != 0 ? cannot("read in the scratch directory", taken) : cannot("written", put);
  }
  return {};
}

Result<void> CachedFile::sync() const {
  if (::fsync(file_) != 0) return cannot("synced", errno);
  if (!made_) return {};
  const auto parent = std::filesystem::absolute(path_).parent_path();
  const int directory = ::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int code = directory < 0 || ::fsync(directory) != 0 ? errno : 0;
  if (directory >= 0) ::close(directory);
  if (code != 0) return failed_to(parent, "synced", code);
  return {};
}

// --- in the background -----------------------------------------------------------------------------------------------

WriteBehind::WriteBehind(std::size_t most) : most_(most), piece_(kPiece), thread_([this] { run(); }) {}

void WriteBehind::failed() {
  const std::lock_guard lock(mutex_);
  failed_ = true;
}

void WriteBehind::sync(const SharedCachedFile& file) {
  if (!guarded(kCall, [&] { return file->sync(); })) failed();
}

bool WriteBehind::add(const SharedCachedFile& file, std::uint64_t offset, std::uint64_t count) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return queue_.size() < most_ || stopping_; });
  if (stopping_) return false;
  if (count == 0) return true;
  unsynced_.insert(file);
  // The first is under way: it takes no more.
  Transfer* const last = queue_.size() > 1 ? &queue_.back() : nullptr;
  if (last && last->file == file && last->count > 0 && last->offset + last->count == offset) {
    last->count += count;
  } else {
    queue_.push_back({file, offset, count});
    added_.notify_one();
  }
  return true;
}

void WriteBehind::wait(const CachedFile& file) {
  std::unique_lock lock(mutex_);
  done_.wait(
      lock, [&] { return std::ranges::none_of(queue_, [&](const Transfer& one) { return one.file.get() == &file; }); });
}

void WriteBehind::close(SharedCachedFile file) {
  const std::lock_guard lock(mutex_);
  // Without anything to sync it is closed with its last owner, which is this; stop() syncs what there is.
  if (stopping_ || !unsynced_.contains(file)) return;
  queue_.push_back({std::move(file)});
  added_.notify_one();
}

bool WriteBehind::flush() {
  const std::lock_guard once(end_mutex_);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return queue_.empty(); });
  const std::set<SharedCachedFile> unsynced = std::exchange(unsynced_, {});
  lock.unlock();
  for (const SharedCachedFile& file : unsynced) sync(file);
  lock.lock();
  return !std::exchange(failed_, false);
}

void WriteBehind::run() {
  while (true) {
    Transfer next;  // a file that ends here is closed without the lock
    {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [&] { return !queue_.empty() || stopping_; });
      if (queue_.empty()) return;
      next = queue_.front();
      if (next.count == 0) unsynced_.erase(next.file);
    }
    if (next.count == 0) {
      sync(next.file);
    } else if (!guarded(kCall, [&] { return next.file->transfer(next.offset, next.count, piece_); })) {
      failed();
    }
    {
      const std::lock_guard lock(mutex_);
      queue_.pop_front();
    }
    done_.notify_all();
  }
}

void WriteBehind::stop() {
  const std::lock_guard once(end_mutex_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_one();
  done_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::set<SharedCachedFile> unsynced;
  {
    const std::lock_guard lock(mutex_);
    unsynced.swap(unsynced_);
  }
  for (const SharedCachedFile& file : unsynced) sync(file);
}

}  // namespace ebb::veloc
