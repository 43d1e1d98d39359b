#include "veloc/relay.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace ebb::veloc {

namespace {

constexpr int kBackend = 0, kTurn = 1;  // bytes of the lock
constexpr std::string_view kNote = "rank-";
constexpr std::chrono::milliseconds kPoll{10};

Error failed(const std::filesystem::path& path, const char* what, int error) {
  return {Errc::io_error, path.string() + ": " + what + ": " + std::generic_category().message(error)};
}

struct flock lock_of(short kind, int byte) {
  struct flock lock{};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<Relay> Relay::open(const std::filesystem::path& folder) {
  std::error_code made;
  std::filesystem::create_directory(folder, made);
  if (made) return failed(folder, "making it", made.value());
  const std::filesystem::path file = folder / "lock";
  const int lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return failed(file, "opening it", errno);
  return Relay(folder, lock);
}

Relay::~Relay() {
  if (lock_ >= 0) ::close(lock_);
}

Result<void> Relay::take(short kind, int byte, bool wait) const {
  struct flock lock = lock_of(kind, byte);
  while (::fcntl(lock_, wait ? F_SETLKW : F_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    if (!wait && (errno == EAGAIN || errno == EACCES)) {
      struct flock held = lock_of(kind, byte);
      static_cast<void>(::fcntl(lock_, F_GETLK, &held));
      return Error{Errc::in_use, "process " + std::to_string(held.l_pid) + " has the lock of " + folder_.string()};
    }
    return failed(folder_ / "lock", "locking it", errno);
  }
  return {};
}

// The note is made with the lock held: the backend removes notes in its own turn alone.
Result<void> Relay::enter(int rank, Seconds limit) const {
  const auto until = std::chrono::steady_clock::now() + limit;
  auto taken = take(F_RDLCK, kTurn, false);
  while (!taken && taken.error().code == Errc::in_use && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kPoll);
    taken = take(F_RDLCK, kTurn, false);
  }
  if (!taken) return taken;
  const std::filesystem::path note = note_of(rank);
  const int file = ::open(note.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return failed(note, "making it", errno);
  ::close(file);
  return {};
}

Result<void> Relay::check_count(int ranks) const {
  const std::filesystem::path file = folder_ / "ranks";
  int found = 0;
  if (std::ifstream in(file); in && in >> found && found != ranks) {
    return Error{Errc::invalid_argument, "the jobs of this scratch have " + std::to_string(found) +
                                             " ranks, and this one has " + std::to_string(ranks) +
                                             ": start as many, or give a scratch and a persistent of its own"};
  }
  if (found == ranks) return {};
  const std::filesystem::path own = file.string() + "." + std::to_string(::getpid());
  std::ofstream(own) << ranks << '\n';
  std::error_code renamed;
  std::filesystem::rename(own, file, renamed);
  return renamed ? failed(file, "writing it", renamed.value()) : Result<void>();
}

Result<void> Relay::ask(int rank, const Due& due) const {
  const std::filesystem::path note = note_of(rank);
  // A line that an earlier kill has cut ends here.
  const std::string line = "\n" + due.name + " " + std::to_string(due.version) + "\n";
  const int file = ::open(note.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return failed(note, "opening it", errno);
  const auto put = ::write(file, line.data(), line.size());
  const int error = put < 0 ? errno : ENOSPC;
  ::close(file);
  return put == static_cast<ssize_t>(line.size()) ? Result<void>() : failed(note, "writing it", error);
}

bool Relay::has_backend() const {
  struct flock held = lock_of(F_WRLCK, kBackend);
  return ::fcntl(lock_, F_GETLK, &held) == 0 && held.l_type != F_UNLCK;
}

Result<void> Relay::serve() const { return take(F_WRLCK, kBackend, false); }

Result<void> Relay::await_ranks(bool wait) const { return take(F_WRLCK, kTurn, wait); }

std::vector<int> Relay::ranks() const {
  std::vector<int> all;
  std::error_code ignored;
  for (std::filesystem::directory_iterator at(folder_, ignored), end; at != end; at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(kNote)) continue;
    int rank = 0;
    const char* const last = name.data() + name.size();
    const auto [after, wrong] = std::from_chars(name.data() + kNote.size(), last, rank);
    if (wrong == std::errc() && after == last && rank >= 0) all.push_back(rank);
  }
  std::ranges::sort(all);
  return all;
}

Result<std::vector<Due>> Relay::due(int rank) const {
  std::ifstream in(note_of(rank));
  if (!in) return failed(note_of(rank), "opening it", errno);
  std::vector<Due> all;
  for (std::string line; std::getline(in, line) && !in.eof();) {  // at the end: it is not whole
    std::istringstream of(line);
    if (Due one; of >> one.name >> one.version) all.push_back(std::move(one));
  }
  return all;
}

Result<void> Relay::forget(int rank) const {
  std::error_code removed;
  std::filesystem::remove(note_of(rank), removed);
  if (removed) return failed(note_of(rank), "removing it", removed.value());
  return {};
}

void Relay::let_ranks_start() const { static_cast<void>(static_cast<bool>(take(F_UNLCK, kTurn, false))); }

}  // namespace ebb::veloc
