#pragma once
// What the hooks do with captured files. The rule: writes go to the pool, reads look there, and every rare call writes
// the file out first and is then the real one. Sizes and positions are always the kernel's.
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "capture/region.hpp"

namespace ebb::capture {

/// The C library's own function, with the arguments of the call.
class Real {
 public:
  template <class Call>
  Real(Call& call) : run_([](void* with) -> ssize_t { return (*static_cast<Call*>(with))(); }), with_(&call) {}
  ssize_t operator()() const { return run_(with_); }

 private:
  ssize_t (*run_)(void*);
  void* with_;
};

/// The run's memory; null: nothing is captured. Notices the writer's death.
Region* active();
/// The same, but null too while no file is captured: then nothing needs to be looked up.
Region* active_files();

/// Whether the file of a descriptor has a path below DIR; `path` has room for kPath bytes.
bool path_of(Region* region, int fd, char* path);

/// `at` -1: at the descriptor's position, which moves. `straight`: the real call, after what is in the pool.
ssize_t write_captured(int fd, const iovec* from, int count, off_t at, bool straight, Real real);
ssize_t read_captured(int fd, const iovec* to, int count, off_t at, bool straight, Real real);

/// What is in the pool of this file is in the file when this returns. Other files: nothing happens.
void drain(int fd);
void drain(Region* region, const struct stat& file);
/// The same, and no other process writes between that and the call.
ssize_t drain_and(int fd, Real real);
ssize_t drain_and(const struct stat& file, Real real);
void drain_all();
/// A file that has, or is about to get, another name; a directory: all files. After this its path is looked up again.
void drain_name(int directory, const char* path);
/// This file is no longer captured; one below DIR will not be.
void let_go(int fd);
/// A file that is about to be executed: no process may have it open for writing.
void drain_program(int directory, const char* path, int flags);
/// The error of an earlier write, once; 0: none. `defer`: fsync is owed, if that is how the run does it; then true.
int take_error(int fd, bool* defer);

/// Before a descriptor is closed: the error of an earlier write, once; 0: none.
int note_close(int fd);
/// Whether the file of this descriptor is regular and below DIR.
bool is_below(int fd);
/// Waits until nothing of any file is in the pool, and owes each an fsync. False: fsync is not deferred.
bool defer_all();

}  // namespace ebb::capture
