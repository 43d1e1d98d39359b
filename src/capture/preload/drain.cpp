// Writes files out of the pool: before a call that needs their bytes, at fsync and close, and when one is let go.
#include <cerrno>

#include "capture/preload/captured.hpp"
#include "capture/preload/entry.hpp"

namespace ebb::capture {

void wait_for_writer(Region* region, Locked& lock, std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  lock.unlock();
  if (writer_gone(region)) {
    end_capture(region);
  } else {
    wake_writer(region);
    wait_on(word, seen, kPatience);
  }
  lock.lock();
}

void drain_locked(Region* region, Locked& lock, std::uint32_t at) {
  File& file = region->file[at];
  file.space_from = file.space_to = 0;  // the call that follows may take it away
  while (file.first.load() != kNone) {
    const std::uint32_t seen = file.changes.load();
    file.urgent = 1;
    wait_for_writer(region, lock, file.changes, seen);
  }
}

namespace {

void mark_stale(Region* region, const struct stat& file) {
  const std::uint32_t at = find(region, file);
  if (at == kNone) return;
  const Locked lock(region, at);
  if (is(region->file[at], file)) region->file[at].stale_path = 1;
}

void drain_program(Region* region, const struct stat& file) {
  for (;;) {
    const std::uint32_t at = find(region, file);
    if (at == kNone) return;
    File& entry = region->file[at];
    Locked lock(region, at);
    drain_locked(region, lock, at);
    if (!is(entry, file) || entry.state.load() != FileState::open || region->through.load()) return;
    if (entry.error || entry.sync_owed.load()) return;  // it stays open; executing it fails with ETXTBSY
    entry.closed = 1;
    const std::uint32_t seen = entry.changes.load();
    wait_for_writer(region, lock, entry.changes, seen);
  }
}

}  // namespace

void drain(Region* region, const struct stat& file) {
  const std::uint32_t at = find(region, file);
  if (at == kNone || (region->file[at].first.load() == kNone && region->file[at].space_to.load() == 0)) return;
  const int before = errno;
  Locked lock(region, at);
  if (is(region->file[at], file)) drain_locked(region, lock, at);
  errno = before;
}

void drain(int fd) {
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  if (region && regular(fd, found)) drain(region, found);
  errno = before;
}

ssize_t drain_and(const struct stat& file, Real real) {
  Region* const region = active_files();
  const std::uint32_t at = region ? find(region, file) : kNone;
  if (at == kNone) return real();
  const int before = errno;
  Locked lock(region, at);
  if (is(region->file[at], file)) drain_locked(region, lock, at);
  errno = before;
  return real();
}

ssize_t drain_and(int fd, Real real) {
  struct stat found{};
  const int before = errno;
  const bool known = active_files() && regular(fd, found);
  errno = before;
  return known ? drain_and(found, real) : real();
}

void drain_all() {
  Region* const region = active_files();
  if (!region) return;
  const int before = errno;
  for (std::uint32_t at = 0; at < region->high.load(); ++at) {
    if (region->file[at].first.load() == kNone) continue;
    Locked lock(region, at);
    drain_locked(region, lock, at);
  }
  errno = before;
}

void drain_name(int directory, const char* path) {
  Region* const region = active_files();
  struct stat found{};
  if (!region || !path) return;
  const int before = errno;
  if (::fstatat(directory, path, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISREG(found.st_mode)) {
      drain(region, found);
      mark_stale(region, found);
    } else if (S_ISDIR(found.st_mode)) {
      drain_all();
      for (std::uint32_t at = 0; at < region->high.load(); ++at) {
        const Locked lock(region, at);
        region->file[at].stale_path = 1;
      }
    }
  }
  errno = before;
}

void let_go(int fd) {
  Region* const region = active();
  struct stat found{};
  char path[kPath];
  const int before = errno;
  if (region && regular(fd, found)) {
    std::uint32_t at = find(region, found);
    if (at == kNone && path_of(region, fd, path)) {
      at = find_or_add(region, found.st_dev, found.st_ino, FileState::through, path);
      if (at == kNone) {  // no place to remember it: then no file is captured any more
        region->ending = 1;
        wake_writer(region);
        while (!writer_gone(region)) wait_on(region->freed, region->freed.load(), kPatience);
        end_capture(region);
      }
    }
    if (at != kNone) {
      Locked lock(region, at);
      File& file = region->file[at];
      if (is(file, found)) {
        drain_locked(region, lock, at);
        // One that the writer is about to open is dealt with by the first write, which finds no chunk either way.
        while (is(file, found) && file.state.load() == FileState::requested && !region->through.load()) {
          const std::uint32_t seen = file.changes.load();
          if (file.state.load() == FileState::requested) wait_for_writer(region, lock, file.changes, seen);
        }
        if (is(file, found)) file.state = FileState::through;
      }
    }
  }
  errno = before;
}

void drain_program(int directory, const char* path, int flags) {
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  if (region && path && ::fstatat(directory, path, &found, flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)) == 0) {
    drain_program(region, found);
  }
  errno = before;
}

int take_error(int fd, bool* defer) {
  *defer = false;
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  int error = 0;
  if (region && regular(fd, found)) {
    const std::uint32_t at = find(region, found);
    if (at != kNone) {
      Locked lock(region, at);
      File& file = region->file[at];
      if (is(file, found)) {
        if (!region->defer) drain_locked(region, lock, at);
        error = file.error;
        file.error = 0;
        *defer = !error && region->defer && file.state.load() == FileState::open && !region->through.load();
        if (*defer) {
          file.sync_owed = 1;
          region->deferred.fetch_add(1);
        }
      }
    }
  }
  errno = before;
  return error;
}

int note_close(int fd) {
  Region* const region = active_files();
  struct stat found{};
  const int before = errno;
  int error = 0;
  if (region && regular(fd, found) && (flags_of(fd) & O_ACCMODE) != O_RDONLY) {
    const std::uint32_t at = find(region, found);
    if (at != kNone) {
      const Locked lock(region, at);
      File& file = region->file[at];
      if (is(file, found)) {
        error = file.error;
        file.error = 0;
        file.closed = 1;
      }
    }
  }
  errno = before;
  return error;
}

bool defer_all() {
  Region* const region = active();
  if (!region || !region->defer) return false;
  const int before = errno;
  for (std::uint32_t at = 0; at < region->high.load(); ++at) {
    if (region->file[at].state.load() != FileState::open) continue;
    const Locked lock(region, at);
    if (region->file[at].state.load() == FileState::open) region->file[at].sync_owed = 1;
  }
  region->deferred.fetch_add(1);
  errno = before;
  return true;
}

}  // namespace ebb::capture
