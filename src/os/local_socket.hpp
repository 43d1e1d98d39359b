#pragma once
// Local sockets between the processes of one user on a node. Real: UnixSockets. Double: tests/doubles/fake_sockets.hpp.
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"

namespace ebb::os {

/// The longest message.
inline constexpr std::size_t kMaxMessage = 64 << 10;

/// What receive() found.
struct Received {
  enum class Kind {
    message,
    nothing,  // yet
    closed,   // the peer closed the connection, or is gone; no message follows
  } kind = Kind::nothing;
  std::size_t bytes = 0;
  OwnDescriptor descriptor{};  // that came with the message, if one did
};

/// One end of a connection. Messages arrive whole, in order, or not at all. Nothing here waits.
/// Thread safety: one thread at a time.
class LocalConnection {
 public:
  virtual ~LocalConnection() = default;
  /// For LocalSockets::wait().
  virtual int fd() const noexcept = 0;
  /// The process at the other end, as it was when it connected or listened. 0: one of another PID namespace, which this
  /// process does not see.
  virtual pid_t peer() const noexcept = 0;
  /// Sends a message of 1 to kMaxMessage bytes, with a copy of `descriptor` unless it is -1. False: the peer has to
  /// receive others first. Errors: invalid_argument (its length), closed (the peer is gone), io_error.
  virtual Result<bool> send(std::span<const std::byte> message, int descriptor = -1) = 0;
  /// The next message, to the beginning of `into`. Errors: damaged (the message is longer than `into`, or brought more
  /// than one descriptor: it is discarded), io_error.
  virtual Result<Received> receive(std::span<std::byte> into) = 0;
};

/// Thread safety: one thread at a time.
class LocalListener {
 public:
  virtual ~LocalListener() = default;
  /// For LocalSockets::wait().
  virtual int fd() const noexcept = 0;
  /// Null: no process is waiting. The peer may have left already, as one has that tried to listen here. Error
  /// not_permitted: a process of another user, whose connection is closed.
  virtual Result<std::unique_ptr<LocalConnection>> accept() = 0;
};

/// What wait() waits for: that `fd` has something to receive or accept, or takes a message again, or is closed by the
/// peer; that the process of a pidfd has ended.
struct Waiting {
  int fd = -1;
  bool to_send = false;
  bool ready = false;  // set by wait()
  bool to_receive = true;
};

/// Thread safety: every method may be called from any thread.
class LocalSockets {
 public:
  virtual ~LocalSockets() = default;
  /// Replaces what a dead listener left under this name. One process at a time calls this for a name: its caller holds
  /// the queue of the node's processes. Errors: in_use (another process listens), not_permitted, unsupported (no usable
  /// directory), invalid_argument (the name), io_error.
  virtual Result<std::unique_ptr<LocalListener>> listen(const std::string& name) = 0;
  /// Null: no process listens. Errors: not_permitted (a process of another user listens), timed_out (too many
  /// processes wait to be accepted), unsupported, invalid_argument, io_error.
  virtual Result<std::unique_ptr<LocalConnection>> connect(const std::string& name) = 0;
  /// A pidfd of this process, to be sent to another.
  virtual Result<OwnDescriptor> this_process() = 0;
  /// Waits until one of `all` is ready, and returns how many are. 0: the time is over, or a signal came.
  virtual Result<std::size_t> wait(std::span<Waiting> all, std::chrono::milliseconds limit) = 0;
  /// The process of a pidfd, which may have been sent by another process. Error invalid_argument: it is no pidfd, or
  /// its process has ended.
  static Result<pid_t> process_of(const OwnDescriptor& pidfd);
  /// Whether the process of a pidfd has ended; its memory is unmapped then.
  Result<bool> gone(const OwnDescriptor& process);
};

/// A connection over a connected descriptor. `peer`: the process at its other end.
std::unique_ptr<LocalConnection> connection_over(OwnDescriptor descriptor, pid_t peer);
/// poll(), as LocalSockets::wait().
Result<std::size_t> wait_for(std::span<Waiting> all, std::chrono::milliseconds limit);

/// Sockets in the first usable of some directories: the inter-process queue's. A socket has mode 0600.
class UnixSockets final : public LocalSockets {
 public:
  UnixSockets();
  explicit UnixSockets(std::vector<std::filesystem::path> directories) : directories_(std::move(directories)) {}
  Result<std::unique_ptr<LocalListener>> listen(const std::string& name) override;
  Result<std::unique_ptr<LocalConnection>> connect(const std::string& name) override;
  Result<OwnDescriptor> this_process() override;
  Result<std::size_t> wait(std::span<Waiting> all, std::chrono::milliseconds limit) override;

 private:
  Result<std::filesystem::path> path_of(const std::string& name) const;
  const std::vector<std::filesystem::path> directories_;
};

}  // namespace ebb::os
