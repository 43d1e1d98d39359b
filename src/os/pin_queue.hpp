#pragma once
// One at a time on a node: a line in which the processes of one user wait for their turn to do what slows all of them
// down when several do it at once (registering memory: eight processes at once are 13 times slower than one by one).
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ebbtide/error.hpp"

namespace ebb::platform {

/// A line at a file of the user's. It is an optimisation: whoever cannot have it may go on without.
///
/// Each place in the line is a lock on one byte of the file (an "open file description" lock), taken behind all that
/// are locked; the turn is the first one's. So the line is in order, and who has just had the turn is behind everybody
/// else. Nothing is in the file: a place is gone when its process is, however that ended, for the kernel drops the
/// lock. Places are neither inherited by fork() nor kept by exec().
///
/// Thread safety: every method may be called from any thread; a Ticket by one thread at a time.
class PinQueue {
 public:
  /// The processes of this user that name the same file meet. `directories`: the first one that can be used, made if
  /// its parent exists; it must be the user's own and not writable by others.
  explicit PinQueue(std::string name, std::vector<std::filesystem::path> directories = usual_directories());
  /// $XDG_RUNTIME_DIR/ebbtide, then /dev/shm/ebbtide-<uid>.
  static std::vector<std::filesystem::path> usual_directories();

  /// A place in the line, and the turn once poll() said so. Left when it is gone. Moved from, it is none.
  /// In a child of the process that took it, it is none either.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { leave(); }
    /// Never waits. True: it is our turn, until this place is left. The first call takes the place, if no other process
    /// is just taking one.
    bool poll() noexcept;
    /// poll() has taken the place: from here on nobody who comes later is before us.
    bool in_line() const noexcept;
    void leave() noexcept;

   private:
    friend class PinQueue;
    explicit Ticket(int fd);
    bool stand_in_line() noexcept;
    int fd_ = -1;
    pid_t process_ = 0;
    off_t ticket_ = -1;  // -1: not in the line yet
  };

  /// At the line, not in it yet. Error unsupported, with each directory and what is wrong with it.
  Result<Ticket> enter() const;
  /// Waits for our turn, looking every 100 us. Error closed: `stop` was set; timed_out: it was not ours within
  /// `at_most` (a process that was stopped by a signal may stand before us); unsupported, as enter().
  Result<Ticket> acquire(const std::atomic<bool>& stop, std::chrono::nanoseconds at_most) const;

 private:
  const std::string name_;
  const std::vector<std::filesystem::path> directories_;
};

}  // namespace ebb::platform
