#include "os/local_socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "os/files.hpp"
#include "os/pin_queue.hpp"
#include "os/shared_memory.hpp"
#include "os/sys_result.hpp"
#include "os/text_file.hpp"
#include "os/user_directory.hpp"

namespace ebb::os {
namespace {

constexpr int kBacklog = 1024;

Error socket_failed(const std::string& what, int error) {
  if (error == EPIPE || error == ECONNRESET) return {Errc::closed, what + ": the peer is gone"};
  return system_error(what, error);
}

OwnDescriptor open_socket() {
  return OwnDescriptor([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.native().copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int connect_to(int fd, const sockaddr_un& address) {
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

// The process at the other end; an error if it is another user's.
Result<pid_t> peer_of(int fd) {
  ucred found{};
  socklen_t bytes = sizeof found;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &found, &bytes) != 0) {
    return system_error("reading who the peer is failed", errno);
  }
  if (found.uid == ::geteuid()) return found.pid;
  return Error{Errc::not_permitted,
               "process " + std::to_string(found.pid) + " belongs to user " + std::to_string(found.uid)};
}

// The descriptors that came with a message. More than one fits, and each must be closed.
std::vector<OwnDescriptor> descriptors_in(msghdr& header) {
  std::vector<OwnDescriptor> all;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      all.emplace_back([fd] { return fd; });
    }
  }
  return all;
}

class SocketConnection final : public LocalConnection {
 public:
  SocketConnection(OwnDescriptor descriptor, pid_t peer) : descriptor_(std::move(descriptor)), peer_(peer) {}
  int fd() const noexcept override { return descriptor_.fd(); }
  pid_t peer() const noexcept override { return peer_; }
  Result<bool> send(std::span<const std::byte> message, int descriptor) override;
  Result<Received> receive(std::span<std::byte> into) override;

 private:
  OwnDescriptor descriptor_;
  const pid_t peer_;
};

Result<bool> SocketConnection::send(std::span<const std::byte> message, int descriptor) {
  if (message.empty() || message.size() > kMaxMessage) {
    return Error{Errc::invalid_argument, "a message of " + std::to_string(message.size()) +
                                             " bytes cannot be sent: expected 1 to " + std::to_string(kMaxMessage)};
  }
  iovec bytes{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<unsigned char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  }
  for (;;) {
    if (::sendmsg(fd(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EAGAIN) return false;
    if (errno != EINTR) return socket_failed("sending to process " + std::to_string(peer_) + " failed", errno);
  }
}

Result<Received> SocketConnection::receive(std::span<std::byte> into) {
  iovec bytes{into.data(), into.size()};
  alignas(cmsghdr) std::array<unsigned char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  // ECONNRESET says once that the peer left without receiving all; what it had sent is still there.
  ssize_t got = -1;
  do {
    got = ::recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  if (got < 0 && errno == EAGAIN) return Received{};
  if (got < 0) return socket_failed("receiving from process " + std::to_string(peer_) + " failed", errno);
  std::vector<OwnDescriptor> descriptors = descriptors_in(header);
  const auto length = static_cast<std::size_t>(got);
  if (length > into.size()) {
    return Error{Errc::damaged, "process " + std::to_string(peer_) + " sent a message of " + std::to_string(length) +
                                    " bytes: expected at most " + std::to_string(into.size())};
  }
  if (descriptors.size() > 1 || (header.msg_flags & MSG_CTRUNC)) {
    return Error{Errc::damaged, "process " + std::to_string(peer_) + " sent more than one descriptor with a message"};
  }
  if (length == 0) return Received{Received::Kind::closed};  // send() sends no empty message
  Received received{Received::Kind::message, length};
  if (!descriptors.empty()) received.descriptor = std::move(descriptors.front());
  return received;
}

class SocketListener final : public LocalListener {
 public:
  SocketListener(OwnDescriptor descriptor, std::filesystem::path path, const struct stat& made)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), made_(made) {}
  ~SocketListener() override {
    descriptor_.close([this] {
      struct stat now{};
      const bool ours = ::lstat(path_.c_str(), &now) == 0 && now.st_dev == made_.st_dev && now.st_ino == made_.st_ino;
      if (ours) ::unlink(path_.c_str());
    });
  }
  int fd() const noexcept override { return descriptor_.fd(); }
  Result<std::unique_ptr<LocalConnection>> accept() override;

 private:
  OwnDescriptor descriptor_;
  const std::filesystem::path path_;
  const struct stat made_;
};

Result<std::unique_ptr<LocalConnection>> SocketListener::accept() {
  OwnDescriptor accepted([this] { return ::accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  if (!accepted && (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)) {
    return std::unique_ptr<LocalConnection>();
  }
  if (!accepted) return system_error("accepting at \"" + path_.string() + "\" failed", errno);
  const Result<pid_t> peer = peer_of(accepted.fd());
  if (!peer) return peer.error();
  return connection_over(std::move(accepted), *peer);
}

// Frees a path that a dead listener left, or is leaving; an errno, EADDRINUSE if a living one has it.
int remove_dead(const std::filesystem::path& path, const sockaddr_un& address) {
  const auto gone = [](int error) { return error == ENOENT ? 0 : error; };
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) return gone(errno);
  if (!S_ISSOCK(found.st_mode)) return EEXIST;
  const OwnDescriptor probe = open_socket();
  if (!probe) return errno;
  const int connected = connect_to(probe.fd(), address);
  if (connected != ECONNREFUSED) return connected == ENOENT ? 0 : EADDRINUSE;
  return ::unlink(path.c_str()) == 0 ? 0 : gone(errno);
}

}  // namespace

std::unique_ptr<LocalConnection> connection_over(OwnDescriptor descriptor, pid_t peer) {
  return std::make_unique<SocketConnection>(std::move(descriptor), peer);
}

Result<std::size_t> wait_for(std::span<Waiting> all, std::chrono::milliseconds limit) {
  std::vector<pollfd> polled;
  for (Waiting& one : all) {
    one.ready = false;
    const int events = (one.to_receive ? POLLIN : 0) | (one.to_send ? POLLOUT : 0);
    polled.push_back({one.fd, static_cast<short>(events), 0});
  }
  const auto capped = std::clamp<std::chrono::milliseconds::rep>(limit.count(), 0, INT_MAX);
  const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(capped));
  if (ready < 0 && errno != EINTR) return system_error("waiting for sockets failed", errno);
  if (ready <= 0) return std::size_t{0};
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents & POLLNVAL) throw std::logic_error("wait() for a closed descriptor");
    all[i].ready = polled[i].revents != 0;
  }
  return static_cast<std::size_t>(ready);
}

// The kernel tells of every descriptor what it is; of a pidfd alone, a process.
Result<pid_t> LocalSockets::process_of(const OwnDescriptor& pidfd) {
  PosixFiles files;
  const auto text = read_text(files, "/proc/self/fdinfo/" + std::to_string(pidfd.fd()));
  if (!text) return text.error();
  constexpr std::string_view kLine = "\nPid:";
  const std::size_t at = (*text).find(kLine);
  pid_t process = 0;
  if (at != std::string::npos) process = static_cast<pid_t>(std::atoi((*text).c_str() + at + kLine.size()));
  if (process > 0) return process;
  return Error{Errc::invalid_argument, "the descriptor that came with a message is no pidfd of a process that runs"};
}

Result<bool> LocalSockets::gone(const OwnDescriptor& process) {
  Waiting one{process.fd()};
  const auto ready = wait({&one, 1}, std::chrono::milliseconds{0});
  if (!ready) return ready.error();
  return one.ready;
}

UnixSockets::UnixSockets() : UnixSockets(NodePinQueue::usual_directories()) {}

Result<std::filesystem::path> UnixSockets::path_of(const std::string& name) const {
  if (auto named = check_shared_name(name); !named) return named.error();
  std::string why;
  for (const std::filesystem::path& directory : directories_) {
    std::filesystem::path path = directory / name;
    const auto usable = open_user_directory(directory, kOthersWrite);
    const bool fits = path.native().size() < sizeof(sockaddr_un::sun_path);
    if (usable && fits) return path;
    why += (why.empty() ? "" : "; ") + directory.string() + ": " +
           (usable ? "its name is too long for a socket" : usable.error().message);
  }
  return Error{Errc::unsupported, "no directory for the socket \"" + name + "\": " + why};
}

Result<std::unique_ptr<LocalListener>> UnixSockets::listen(const std::string& name) {
  const auto path = path_of(name);
  if (!path) return path.error();
  const std::string what = "listening at \"" + (*path).string() + "\" failed";
  const sockaddr_un address = address_of(*path);
  OwnDescriptor opened = open_socket();
  if (!opened) return system_error(what, errno);
  // The socket's own mode becomes that of its name.
  if (::fchmod(opened.fd(), 0600) != 0) return system_error(what, errno);
  const auto bind = [&] {
    return ::bind(opened.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  };
  int error = bind();
  if (error == EADDRINUSE) {
    error = remove_dead(*path, address);
    if (error == 0) error = bind();
  }
  if (error == EADDRINUSE) return Error{Errc::in_use, what + ": another process listens there"};
  if (error != 0) return system_error(what, error);
  struct stat made{};
  if (::lstat((*path).c_str(), &made) != 0) return system_error(what, errno);
  if (::listen(opened.fd(), kBacklog) != 0) return system_error(what, errno);
  return std::unique_ptr<LocalListener>(std::make_unique<SocketListener>(std::move(opened), *path, made));
}

Result<std::unique_ptr<LocalConnection>> UnixSockets::connect(const std::string& name) {
  const auto path = path_of(name);
  if (!path) return path.error();
  const std::string what = "connecting to \"" + (*path).string() + "\" failed";
  OwnDescriptor opened = open_socket();
  if (!opened) return system_error(what, errno);
  const int error = connect_to(opened.fd(), address_of(*path));
  if (error == ENOENT || error == ECONNREFUSED) return std::unique_ptr<LocalConnection>();
  if (error == EAGAIN) return Error{Errc::timed_out, what + ": too many processes wait to be accepted"};
  if (error != 0) return system_error(what, error);
  const Result<pid_t> peer = peer_of(opened.fd());
  if (!peer) return peer.error();
  return connection_over(std::move(opened), *peer);
}

Result<OwnDescriptor> UnixSockets::this_process() {
  OwnDescriptor opened([] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)); });
  if (!opened) return system_error("opening a pidfd of this process failed", errno);
  return opened;
}

Result<std::size_t> UnixSockets::wait(std::span<Waiting> all, std::chrono::milliseconds limit) {
  return wait_for(all, limit);
}

}  // namespace ebb::os
