#pragma once
// What the files here share: the calls that are never taken over, and the entry of a captured file.
#include <atomic>
#include <cstdint>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capture/region.hpp"

namespace ebb::capture {

inline constexpr int kPatience = 50;  // milliseconds between two looks at whether the writer lives

inline bool regular(int fd, struct stat& found) { return ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode); }
inline int flags_of(int fd) { return static_cast<int>(::syscall(SYS_fcntl, fd, F_GETFL)); }
inline off_t position_of(int fd) { return ::syscall(SYS_lseek, fd, off_t{0}, SEEK_CUR); }
inline void set_position(int fd, off_t to) { ::syscall(SYS_lseek, fd, to, SEEK_SET); }

inline std::uint32_t find(Region* region, const struct stat& file) { return find(region, file.st_dev, file.st_ino); }
inline bool is(const File& entry, const struct stat& file) { return has_key(entry, file.st_dev, file.st_ino); }

/// Waits for the writer with the lock given up; the entry may be another file's afterwards.
void wait_for_writer(Region* region, Locked& lock, std::atomic<std::uint32_t>& word, std::uint32_t seen);
/// What is in the pool of this entry's file is in the file when this returns; the entry may be another file's then.
void drain_locked(Region* region, Locked& lock, std::uint32_t at);

}  // namespace ebb::capture
