#pragma once
#include <memory>
#include <string>

#include "os/local_socket.hpp"
#include "tests/doubles/call_faults.hpp"

namespace ebb::doubles {

enum class SocketCall : std::uint8_t { listen, connect, accept, send, receive, wait };

/// Sockets without names in the file system. Several objects that stand for several processes share one double. Calls
/// fail on command, with two errnos of their own meaning: a `send` that fails with EPIPE, and a `receive` that fails
/// with ECONNRESET, find the peer gone: the connection is closed at both ends, and the message is lost.
///
/// Thread safety: every method may be called from any thread; the shared state's mutex guards its names.
class FakeSockets final : public os::LocalSockets {
 public:
  FakeSockets();
  CallFaults<SocketCall>& faults();

  Result<std::unique_ptr<os::LocalListener>> listen(const std::string& name) override;
  Result<std::unique_ptr<os::LocalConnection>> connect(const std::string& name) override;
  /// Of a process of the double's, which ends when end_process() says so.
  Result<os::OwnDescriptor> this_process() override;
  void end_process();
  Result<std::size_t> wait(std::span<os::Waiting> all, std::chrono::milliseconds limit) override;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::doubles
