#include "os/pin_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "os/own_descriptors.hpp"
#include "os/sys_result.hpp"
#include "os/user_directory.hpp"

namespace ebb::os {
namespace {

// Bytes of the file: a lock that is held while a ticket is taken, then the tickets.
constexpr off_t kDoor = 0, kFirstTicket = 1;
constexpr std::chrono::microseconds kShortestPause{50}, kLongestPause{1000};

struct flock bytes(short type, off_t from, off_t count) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = from;
  range.l_len = count;  // 0: to the end
  return range;
}

bool set_lock(int fd, short type, off_t from, off_t count) {
  struct flock range = bytes(type, from, count);
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0;
}

// The first byte that others have locked in a range. kNone: there is none; kUnknown: the kernel cannot say.
constexpr off_t kNone = -1, kUnknown = -2;
off_t locked_by_others(int fd, off_t from, off_t count) {
  struct flock range = bytes(F_WRLCK, from, count);
  if (::fcntl(fd, F_OFD_GETLK, &range) != 0) return kUnknown;
  return range.l_type == F_UNLCK ? kNone : range.l_start;
}

}  // namespace

NodePinQueue::NodePinQueue(std::string name, std::vector<std::filesystem::path> directories)
    : name_(std::move(name)), directories_(std::move(directories)) {}

std::vector<std::filesystem::path> NodePinQueue::usual_directories() {
  std::vector<std::filesystem::path> all;
  const char* named = std::getenv("XDG_RUNTIME_DIR");
  if (named && *named == '/') all.push_back(std::filesystem::path(named) / "ebbtide");
  all.emplace_back("/dev/shm/ebbtide-" + std::to_string(::geteuid()));
  return all;
}

bool NodePinQueue::wait(std::stop_token stop) {
  const Result<void> entered = enter();
  trouble_ = entered ? std::string() : entered.error().message;
  // A registration is some hundred microseconds; after a longer wait it is not worth looking so often.
  for (auto pause = kShortestPause; entered && !poll(); pause = std::min(pause + pause / 32, kLongestPause)) {
    if (stop.stop_requested()) {
      leave();
      return false;
    }
    std::this_thread::sleep_for(pause);
  }
  return true;
}

Result<void> NodePinQueue::enter() {
  leave();
  std::string why;
  for (const std::filesystem::path& directory : directories_) {
    const auto usable = open_user_directory(directory, kOthersWrite);
    std::string wrong = usable ? std::string() : usable.error().message;
    if (usable) {
      const std::string path = directory / (name_ + ".lock");
      fd_ = OwnDescriptors::of_process().open(
          [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); });
      process_ = ::getpid();
      if (fd_ >= 0 && locked_by_others(fd_, kDoor, 1) != kUnknown) return {};
      wrong = describe_errno(errno);
      leave();
    }
    why += (why.empty() ? "" : "; ") + directory.string() + ": " + wrong;
  }
  return Error{Errc::unsupported, "no queue '" + name_ + "' for the processes of this node: " + why};
}

// After all others: the number of a returned ticket is reused only if it was the last.
bool NodePinQueue::take_ticket() noexcept {
  if (!set_lock(fd_, F_WRLCK, kDoor, 1)) return false;
  off_t ticket = kFirstTicket, other = kNone;
  while ((other = locked_by_others(fd_, ticket, 0)) >= 0) ticket = other + 1;
  if (other == kNone && set_lock(fd_, F_WRLCK, ticket, 1)) ticket_ = ticket;
  set_lock(fd_, F_UNLCK, kDoor, 1);
  return ticket_ >= 0;
}

bool NodePinQueue::poll() noexcept {
  if (fd_ < 0 || process_ != ::getpid()) return false;
  if (ticket_ < 0 && !take_ticket()) return false;
  return ticket_ == kFirstTicket || locked_by_others(fd_, kFirstTicket, ticket_ - kFirstTicket) == kNone;
}

bool NodePinQueue::has_ticket() const noexcept { return ticket_ >= 0 && process_ == ::getpid(); }

void NodePinQueue::leave() noexcept {
  const int fd = std::exchange(fd_, -1);
  ticket_ = -1;
  // A child closed its copy when it began; the number may be another file's by now.
  if (fd < 0 || process_ != ::getpid()) return;
  // Unlocked, not only closed: a copy of the descriptor may exist.
  OwnDescriptors::of_process().close(fd, [fd] { set_lock(fd, F_UNLCK, kDoor, 0); });
}

}  // namespace ebb::os
