#pragma once
// Files on slow storage that are written in the background, for programs that write files themselves. It needs no
// VELOC_Init, and calls no MPI.
#include <cstddef>
#include <memory>
#include <string>
#include <sys/types.h>

namespace veloc {

/// A file that pwrite() fills at the speed of the scratch directory. A thread, one for all files, copies what was
/// written to the file itself, in the order of the calls.
///
///     veloc::cached_file_t file("/nvme/run");
///     if (!file.open("/lustre/run/out.bin", O_RDWR | O_CREAT, 0644)) return 1;
///     file.pwrite(data, bytes, offset);                  // returns when it is in /nvme/run
///     file.close();                                      // returns at once
///     if (!veloc::cached_file_t::flush()) return 1;      // out.bin is whole, and on stable storage
///
/// Thread safety: one file by one thread at a time, several files by several threads; flush() and shutdown() by any.
/// No call throws or ends the process: what fails answers false, with one line on stderr that says what and why.
class cached_file_t {
 public:
  /// `scratch`: a directory, or VELOC's configuration file, which names one.
  cached_file_t(const std::string& scratch);
  cached_file_t(const cached_file_t&) = delete;
  cached_file_t& operator=(const cached_file_t&) = delete;
  ~cached_file_t();  ///< closes it
  /// `flags` and `mode`: as of open(2), of the file itself, without O_APPEND and O_DIRECT. False too while this one has
  /// a file open.
  bool open(const std::string& name, int flags, mode_t mode);
  /// All `count` bytes, what was written before included: it waits for that.
  bool pread(void* buffer, size_t count, off_t offset);
  /// True: the bytes are in the scratch directory, from which a process that is killed loses what is not copied yet.
  /// Waits while VELOC_POSIX_CACHE_SIZE writes (65,536, or what the environment says) are not copied.
  bool pwrite(const void* buffer, size_t count, off_t offset);
  /// The file is synced and closed in the background.
  void close();
  /// Waits until all files have what was written to them, on stable storage. False: since the last call something could
  /// not be written, or synced.
  static bool flush();
  /// Waits as flush() does, and ends the thread: nothing can be written after it. The end of the process does the same.
  static void shutdown();

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace veloc
