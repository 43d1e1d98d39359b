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

namespace ebb::doubles {
namespace {

os::OwnDescriptor copy_of(int fd) {
  os::OwnDescriptor copy([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
  if (!copy) throw std::runtime_error("no descriptor for the double");
  return copy;
}

os::OwnDescriptor new_event() {
  os::OwnDescriptor event([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE); });
  if (!event) throw std::runtime_error("no event for the double");
  return event;
}

void count_up(const os::OwnDescriptor& event) {
  const std::uint64_t one = 1;
  if (::write(event.fd(), &one, sizeof one) != sizeof one) throw std::runtime_error("the double's event is full");
}

}  // namespace

struct FakeSockets::State {
  struct Listening {
    os::OwnDescriptor event = new_event();  // counts the waiting
    std::deque<os::OwnDescriptor> waiting;
  };
  CallFaults<SocketCall> faults;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Listening>> names;
  os::OwnDescriptor process = new_event();
};

namespace {

using State = FakeSockets::State;

class FaultyConnection final : public os::LocalConnection {
 public:
  FaultyConnection(os::OwnDescriptor descriptor, std::shared_ptr<State> state)
      : inner_(os::connection_over(std::move(descriptor), ::getpid())), state_(std::move(state)) {}
  int fd() const noexcept override { return inner_->fd(); }
  pid_t peer() const noexcept override { return inner_->peer(); }
  Result<bool> send(std::span<const std::byte> message, int descriptor) override {
    const int error = state_->faults.next(SocketCall::send);
    if (error == EPIPE) return ended();
    if (error) return os::system_error("the double refuses to send", error);
    return inner_->send(message, descriptor);
  }
  Result<os::Received> receive(std::span<std::byte> into) override {
    const int error = state_->faults.next(SocketCall::receive);
    if (error == ECONNRESET) {
      static_cast<void>(ended());
      return os::Received{os::Received::Kind::closed};
    }
    if (error) return os::system_error("the double refuses to receive", error);
    return inner_->receive(into);
  }

 private:
  Error ended() {
    ::shutdown(fd(), SHUT_RDWR);
    return {Errc::closed, "the double's peer is gone"};
  }
  std::unique_ptr<os::LocalConnection> inner_;
  std::shared_ptr<State> state_;
};

class FaultyListener final : public os::LocalListener {
 public:
  FaultyListener(std::string name, std::shared_ptr<State::Listening> listening, std::shared_ptr<State> state)
      : name_(std::move(name)), listening_(std::move(listening)), state_(std::move(state)) {}
  ~FaultyListener() override {
    std::lock_guard lock(state_->mutex);
    state_->names.erase(name_);
    listening_->waiting.clear();
  }
  int fd() const noexcept override { return listening_->event.fd(); }
  Result<std::unique_ptr<os::LocalConnection>> accept() override {
    if (const int error = state_->faults.next(SocketCall::accept)) {
      return os::system_error("the double refuses to accept", error);
    }
    std::lock_guard lock(state_->mutex);
    if (listening_->waiting.empty()) return std::unique_ptr<os::LocalConnection>();
    std::uint64_t one = 0;
    if (::read(fd(), &one, sizeof one) != sizeof one) throw std::logic_error("the double's event lost count");
    os::OwnDescriptor accepted = std::move(listening_->waiting.front());
    listening_->waiting.pop_front();
    return std::unique_ptr<os::LocalConnection>(std::make_unique<FaultyConnection>(std::move(accepted), state_));
  }

 private:
  const std::string name_;
  std::shared_ptr<State::Listening> listening_;
  std::shared_ptr<State> state_;
};

}  // namespace

FakeSockets::FakeSockets() : state_(std::make_shared<State>()) {}

CallFaults<SocketCall>& FakeSockets::faults() { return state_->faults; }

Result<std::unique_ptr<os::LocalListener>> FakeSockets::listen(const std::string& name) {
  if (auto named = os::check_shared_name(name); !named) return named.error();
  if (const int error = state_->faults.next(SocketCall::listen)) {
    return os::system_error("the double refuses to listen", error);
  }
  std::lock_guard lock(state_->mutex);
  auto& listening = state_->names[name];
  if (listening) return Error{Errc::in_use, "another object of the double listens at " + name};
  listening = std::make_shared<State::Listening>();
  return std::unique_ptr<os::LocalListener>(std::make_unique<FaultyListener>(name, listening, state_));
}

Result<std::unique_ptr<os::LocalConnection>> FakeSockets::connect(const std::string& name) {
  if (auto named = os::check_shared_name(name); !named) return named.error();
  if (const int error = state_->faults.next(SocketCall::connect)) {
    return os::system_error("the double refuses to connect", error);
  }
  std::lock_guard lock(state_->mutex);
  const auto found = state_->names.find(name);
  if (found == state_->names.end()) return std::unique_ptr<os::LocalConnection>();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw std::runtime_error("no sockets for the double");
  }
  os::OwnDescriptor here([&] { return ends[0]; }), there([&] { return ends[1]; });
  found->second->waiting.push_back(std::move(there));
  count_up(found->second->event);
  return std::unique_ptr<os::LocalConnection>(std::make_unique<FaultyConnection>(std::move(here), state_));
}

Result<os::OwnDescriptor> FakeSockets::this_process() { return copy_of(state_->process.fd()); }

void FakeSockets::end_process() { count_up(state_->process); }

Result<std::size_t> FakeSockets::wait(std::span<os::Waiting> all, std::chrono::milliseconds limit) {
  if (const int error = state_->faults.next(SocketCall::wait)) {
    return os::system_error("the double refuses to wait", error);
  }
  return os::wait_for(all, limit);
}

}  // namespace ebb::doubles
