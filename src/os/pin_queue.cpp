#include "os/pin_queue.hpp"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "os/own_descriptors.hpp"
#include "os/sys_result.hpp"

namespace ebb::platform {
namespace {

// The file's bytes, none of which is ever written: the door, held while a place is taken, and the places behind it.
constexpr off_t kDoor = 0, kFirstPlace = 1;
constexpr std::chrono::microseconds kLook{100};

struct flock bytes(short type, off_t from, off_t count) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = from;
  range.l_len = count;  // 0: to the end of all
  return range;
}

bool set_lock(int fd, short type, off_t from, off_t count) {
  struct flock range = bytes(type, from, count);
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0;
}

// The first byte of some lock of others in a range. kNone: there is none; kUnknown: the kernel does not say.
constexpr off_t kNone = -1, kUnknown = -2;
off_t locked_by_others(int fd, off_t from, off_t count) {
  struct flock range = bytes(F_WRLCK, from, count);
  if (::fcntl(fd, F_OFD_GETLK, &range) != 0) return kUnknown;
  return range.l_type == F_UNLCK ? kNone : range.l_start;
}

// What is wrong with a directory; empty: nothing.
std::string unusable(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return describe_errno(errno);
  struct stat state{};
  if (::lstat(directory.c_str(), &state) != 0) return describe_errno(errno);
  if (!S_ISDIR(state.st_mode)) return "it is no directory";
  if (state.st_uid != ::geteuid()) return "it belongs to user " + std::to_string(state.st_uid);
  if (state.st_mode & (S_IWGRP | S_IWOTH)) return "others may write to it";
  return {};
}

}  // namespace

PinQueue::PinQueue(std::string name, std::vector<std::filesystem::path> directories)
    : name_(std::move(name)), directories_(std::move(directories)) {}

std::vector<std::filesystem::path> PinQueue::usual_directories() {
  std::vector<std::filesystem::path> all;
  const char* named = std::getenv("XDG_RUNTIME_DIR");
  if (named && *named == '/') all.push_back(std::filesystem::path(named) / "ebbtide");
  all.emplace_back("/dev/shm/ebbtide-" + std::to_string(::geteuid()));
  return all;
}

Result<PinQueue::Ticket> PinQueue::enter() const {
  std::string why;
  for (const std::filesystem::path& directory : directories_) {
    std::string wrong = unusable(directory);
    if (wrong.empty()) {
      const std::string path = directory / (name_ + ".lock");
      Ticket place(OwnDescriptors::of_process().open(
          [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600); }));
      if (place.fd_ >= 0 && locked_by_others(place.fd_, kDoor, 1) != kUnknown) return place;
      wrong = describe_errno(errno);
    }
    why += (why.empty() ? "" : "; ") + directory.string() + ": " + wrong;
  }
  return Error{Errc::unsupported, "no line '" + name_ + "' for the processes of this node: " + why};
}

Result<PinQueue::Ticket> PinQueue::acquire(const std::atomic<bool>& stop, std::chrono::nanoseconds at_most) const {
  const auto begin = std::chrono::steady_clock::now();
  Result<Ticket> place = enter();
  if (!place) return place;
  while (!place->poll()) {
    if (stop) return Error{Errc::closed, "the wait for our turn at '" + name_ + "' was ended"};
    if (std::chrono::steady_clock::now() - begin >= at_most) {
      return Error{Errc::timed_out, "our turn at '" + name_ + "' did not come in time"};
    }
    std::this_thread::sleep_for(kLook);
  }
  return place;
}

PinQueue::Ticket::Ticket(int fd) : fd_(fd), process_(::getpid()) {}

PinQueue::Ticket::Ticket(Ticket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), process_(other.process_), ticket_(std::exchange(other.ticket_, -1)) {}

PinQueue::Ticket& PinQueue::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  leave();
  fd_ = std::exchange(other.fd_, -1);
  process_ = other.process_;
  ticket_ = std::exchange(other.ticket_, -1);
  return *this;
}

// Behind all that stand there: numbers of places that were left come again only when nobody stands behind them.
bool PinQueue::Ticket::stand_in_line() noexcept {
  if (!set_lock(fd_, F_WRLCK, kDoor, 1)) return false;
  off_t ticket = kFirstPlace, other = kNone;
  while ((other = locked_by_others(fd_, ticket, 0)) >= 0) ticket = other + 1;
  if (other == kNone && set_lock(fd_, F_WRLCK, ticket, 1)) ticket_ = ticket;
  set_lock(fd_, F_UNLCK, kDoor, 1);
  return ticket_ >= 0;
}

bool PinQueue::Ticket::poll() noexcept {
  if (fd_ < 0 || process_ != ::getpid()) return false;
  if (ticket_ < 0 && !stand_in_line()) return false;
  return ticket_ == kFirstPlace || locked_by_others(fd_, kFirstPlace, ticket_ - kFirstPlace) == kNone;
}

bool PinQueue::Ticket::in_line() const noexcept { return ticket_ >= 0 && process_ == ::getpid(); }

void PinQueue::Ticket::leave() noexcept {
  const int fd = std::exchange(fd_, -1);
  ticket_ = -1;
  // A child closed its copy when it began; the number may stand for something else by now.
  if (fd < 0 || process_ != ::getpid()) return;
  // Unlocked, not only closed: a copy of the descriptor may exist.
  OwnDescriptors::of_process().close(fd, [fd] { set_lock(fd, F_UNLCK, kDoor, 0); });
}

}  // namespace ebb::platform
