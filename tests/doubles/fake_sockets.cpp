#include "tests/doubles/fake_sockets.hpp"

#include <array>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/shared_memory.hpp"
#include "os/sys_result.hpp"

namespace ebb::platform::testing {
namespace {

OwnDescriptor copy_of(int fd) {
  OwnDescriptor copy([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
  if (!copy) throw std::runtime_error("no descriptor for the double");
  return copy;
}

OwnDescriptor new_event() {
  OwnDescriptor event([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE); });
  if (!event) throw std::runtime_error("no event for the double");
  return event;
}

void count_up(const OwnDescriptor& event) {
  const std::uint64_t one = 1;
  if (::write(event.fd(), &one, sizeof one) != sizeof one) throw std::runtime_error("the double's event is full");
}

}  // namespace

struct FakeSockets::State {
  struct Listening {
    OwnDescriptor event = new_event();  // counts the waiting
    std::deque<OwnDescriptor> waiting;
  };
  CallFaults<SocketCall> faults;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Listening>> names;
  OwnDescriptor process = new_event();
};

namespace {

using State = FakeSockets::State;

class FaultyConnection final : public LocalConnection {
 public:
  FaultyConnection(OwnDescriptor descriptor, std::shared_ptr<State> state)
      : inner_(connection_over(std::move(descriptor), ::getpid())), state_(std::move(state)) {}
  int fd() const noexcept override { return inner_->fd(); }
  pid_t peer() const noexcept override { return inner_->peer(); }
  Result<bool> send(std::span<const std::byte> message, int descriptor) override {
    const int error = state_->faults.next(SocketCall::send);
    if (error == EPIPE) return ended();
    if (error) return system_error("the double refuses to send", error);
    return inner_->send(message, descriptor);
  }
  Result<Received> receive(std::span<std::byte> into) override {
    const int error = state_->faults.next(SocketCall::receive);
    if (error == ECONNRESET) {
      static_cast<void>(ended());
      return Received{Received::Kind::closed};
    }
    if (error) return system_error("the double refuses to receive", error);
    return inner_->receive(into);
  }

 private:
  Error ended() {
    ::shutdown(fd(), SHUT_RDWR);
    return {Errc::closed, "the double's peer is gone"};
  }
  std::unique_ptr<LocalConnection> inner_;
  std::shared_ptr<State> state_;
};

class FaultyListener final : public LocalListener {
 public:
  FaultyListener(std::string name, std::shared_ptr<State::Listening> listening, std::shared_ptr<State> state)
      : name_(std::move(name)), listening_(std::move(listening)), state_(std::move(state)) {}
  ~FaultyListener() override {
    std::lock_guard lock(state_->mutex);
    state_->names.erase(name_);
    listening_->waiting.clear();
  }
  int fd() const noexcept override { return listening_->event.fd(); }
  Result<std::unique_ptr<LocalConnection>> accept() override {
    if (const int error = state_->faults.next(SocketCall::accept)) {
      return system_error("the double refuses to accept", error);
    }
    std::lock_guard lock(state_->mutex);
    if (listening_->waiting.empty()) return std::unique_ptr<LocalConnection>();
    std::uint64_t one = 0;
    if (::read(fd(), &one, sizeof one) != sizeof one) throw std::logic_error("the double's event lost count");
    OwnDescriptor accepted = std::move(listening_->waiting.front());
    listening_->waiting.pop_front();
    return std::unique_ptr<LocalConnection>(std::make_unique<FaultyConnection>(std::move(accepted), state_));
  }

 private:
  const std::string name_;
  std::shared_ptr<State::Listening> listening_;
  std::shared_ptr<State> state_;
};

}  // namespace

FakeSockets::FakeSockets() : state_(std::make_shared<State>()) {}

CallFaults<SocketCall>& FakeSockets::faults() { return state_->faults; }

Result<std::unique_ptr<LocalListener>> FakeSockets::listen(const std::string& name) {
  if (auto named = check_shared_name(name); !named) return named.error();
  if (const int error = state_->faults.next(SocketCall::listen)) {
    return system_error("the double refuses to listen", error);
  }
  std::lock_guard lock(state_->mutex);
  auto& listening = state_->names[name];
  if (listening) return Error{Errc::in_use, "another object of the double listens at " + name};
  listening = std::make_shared<State::Listening>();
  return std::unique_ptr<LocalListener>(std::make_unique<FaultyListener>(name, listening, state_));
}

Result<std::unique_ptr<LocalConnection>> FakeSockets::connect(const std::string& name) {
  if (auto named = check_shared_name(name); !named) return named.error();
  if (const int error = state_->faults.next(SocketCall::connect)) {
    return system_error("the double refuses to connect", error);
  }
  std::lock_guard lock(state_->mutex);
  const auto found = state_->names.find(name);
  if (found == state_->names.end()) return std::unique_ptr<LocalConnection>();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw std::runtime_error("no sockets for the double");
  }
  OwnDescriptor here([&] { return ends[0]; }), there([&] { return ends[1]; });
  found->second->waiting.push_back(std::move(there));
  count_up(found->second->event);
  return std::unique_ptr<LocalConnection>(std::make_unique<FaultyConnection>(std::move(here), state_));
}

Result<OwnDescriptor> FakeSockets::this_process() { return copy_of(state_->process.fd()); }

void FakeSockets::end_process() { count_up(state_->process); }

Result<std::size_t> FakeSockets::wait(std::span<Waiting> all, std::chrono::milliseconds limit) {
  if (const int error = state_->faults.next(SocketCall::wait)) {
    return system_error("the double refuses to wait", error);
  }
  return wait_for(all, limit);
}

}  // namespace ebb::platform::testing
