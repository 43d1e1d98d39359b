#pragma once
// One registration of memory at a time on a node: eight processes that register at once are 13 times slower than eight
// that do so one after another (hipc22 sec. IV-A).
#include <filesystem>
#include <stop_token>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ebbtide/error.hpp"

namespace ebb::os {

/// A ticket in a queue, taken anew for each registration. Used by one thread at a time.
class PinQueue {
 public:
  virtual ~PinQueue() = default;
  /// Takes a ticket and waits until it is called. False: `stop` came first, and the ticket is returned.
  virtual bool wait(std::stop_token stop) = 0;
  /// Returns the ticket: the next one is called.
  virtual void leave() noexcept = 0;
  /// Why the last wait() waited for no other process; empty: it did.
  virtual std::string trouble() const { return {}; }
};

/// The queue of one user's processes on a node. It is an optimisation: without a directory or a descriptor for it,
/// wait() returns at once.
///
/// A ticket is a lock on one byte of a file (an "open file description" lock), after all locked bytes; the first ticket
/// is called. The queue is thus in order, and a process that was just called goes to its end. The file is empty. When a
/// process ends, however it ends, the kernel releases its lock; a stopped process keeps it. Tickets survive neither
/// fork() nor exec(): in a child this object has none, and can take one.
class NodePinQueue final : public PinQueue {
 public:
  /// Processes that name the same file share a queue. `directories`: the first usable one, created if its parent
  /// exists; it must belong to the user and not be writable by others.
  explicit NodePinQueue(std::string name = "pin", std::vector<std::filesystem::path> directories = usual_directories());
  ~NodePinQueue() override { leave(); }
  NodePinQueue(const NodePinQueue&) = delete;
  /// $XDG_RUNTIME_DIR/ebbtide, then /dev/shm/ebbtide-<uid>.
  static std::vector<std::filesystem::path> usual_directories();

  bool wait(std::stop_token stop) override;
  void leave() noexcept override;
  std::string trouble() const override { return trouble_; }

  /// Opens the queue; no ticket yet. Error unsupported, with each directory and what is wrong with it.
  Result<void> enter();
  /// Never waits. Takes a ticket, unless another process is taking one at this moment; true: it is called.
  bool poll() noexcept;
  bool has_ticket() const noexcept;

 private:
  bool take_ticket() noexcept;

  const std::string name_;
  const std::vector<std::filesystem::path> directories_;
  std::string trouble_;
  int fd_ = -1;
  pid_t process_ = 0;  // which opened fd_
  off_t ticket_ = -1;  // -1: none
};

}  // namespace ebb::os
