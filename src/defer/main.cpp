// ebbtide-defer DIR DIRTY LIBRARY PROGRAM ARGUMENT...: what `ebbtide run --defer-fsync` becomes. It starts the program,
// is its writer, and syncs when it has ended. DIRTY is in bytes; 0: a quarter of the memory that is available.
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <sys/wait.h>

#include "defer/writer.hpp"
#include "ebbtide/units.hpp"
#include "os/memory_left.hpp"
#include "os/sys_result.hpp"

namespace {

using namespace ebb::defer;
using ebb::os::describe_errno;
constexpr int kRefused = 2, kNotStored = 1, kNotFound = 127, kNotRun = 126;

int say(int status, const std::string& line) {
  std::fprintf(stderr, "ebbtide: run: %s\n", line.c_str());
  return status;
}

/// The memory of this run; this thread owns it. Null: errno says why.
RunMemory* create(const std::string& directory, dev_t device, int fd) {
  static robust_list_head mine;  // the kernel reads it when this thread ends, in whatever way
  if (fd < 0 || ::ftruncate(fd, sizeof(RunMemory)) != 0) return nullptr;
  void* const at = ::mmap(nullptr, sizeof(RunMemory), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return nullptr;
  auto* const memory = new (at) RunMemory{};
  memory->magic = kMagic;
  memory->device = device;
  memory->length = directory.copy(memory->directory, kLongestPath - 1);
  memory->owner = static_cast<std::uint32_t>(::gettid());
  memory->entry.next = &mine.list;
  mine.list.next = &memory->entry;
  mine.futex_offset = offsetof(RunMemory, owner) - offsetof(RunMemory, entry);
  return ::syscall(SYS_set_robust_list, &mine, sizeof mine) == 0 ? memory : nullptr;
}

/// A list in the environment, with one more at its end.
void append(const char* name, const std::string& value) {
  const char* const before = std::getenv(name);
  ::setenv(name, (before && *before ? before + (":" + value) : value).c_str(), 1);
}

/// Hands signals on to the program until it has ended, and returns its status.
int wait_for(pid_t program, const sigset_t& taken) {
  for (int status = 0;;) {
    if (::waitpid(program, &status, WNOHANG) == program) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    siginfo_t got{};
    const int signal = ::sigwaitinfo(&taken, &got);
    // A key of the terminal reached the program too; what another process sent is for it alone.
    if (signal > 0 && signal != SIGCHLD && got.si_code <= 0) ::kill(program, signal);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) return say(kRefused, "ebbtide-defer is started by `ebbtide run`");
  std::array<char, PATH_MAX> path{};
  const int root = ::realpath(words[1], path.data()) ? ::open(path.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  struct stat found{};
  const std::string directory = path.data(), what = "--defer-fsync: \"" + std::string(words[1]) + "\": ";
  if (root < 0 || ::fstat(root, &found) != 0) return say(kRefused, what + describe_errno(errno) + ": name a directory");
  if (directory.size() >= kLongestPath) return say(kRefused, what + "its path is too long");
  const std::uint64_t given = std::strtoull(words[2], nullptr, 10);
  const int shared = ::memfd_create("ebbtide-run", MFD_CLOEXEC);
  RunMemory* const memory = create(directory, found.st_dev, shared);
  if (!memory) return say(kRefused, "shared memory: " + describe_errno(errno));

  sigset_t taken, before;
  ::sigemptyset(&taken);
  for (const int one : {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::sigaddset(&taken, one);
  ::sigprocmask(SIG_BLOCK, &taken, &before);
  const std::string place = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(shared);
  const pid_t program = ::fork();
  if (program < 0) return say(kRefused, "starting the program: " + describe_errno(errno));
  if (program == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    append("LD_PRELOAD", words[3]);
    append("ASAN_OPTIONS", "verify_asan_link_order=0");  // a sanitized program demands that its library is the first
    ::setenv(kVariable, place.c_str(), 1);
    ::execvp(words[4], words + 4);
    return say(errno == ENOENT ? kNotFound : kNotRun, std::string(words[4]) + ": " + describe_errno(errno));
  }
  Writer writer(*memory, root, given ? given : ebb::os::available_host_memory() / 4);
  const int status = wait_for(program, taken);
  const auto ended = std::chrono::steady_clock::now();
  for (const timespec none{}; ::sigtimedwait(&taken, nullptr, &none) > 0;) continue;  // meant for the program
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const Synced synced = writer.finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - ended;
  for (const auto& [file, error] : synced.failures) {
    say(0, "\"" + file + "\" is not on stable storage: " + describe_errno(error));
  }
  std::array<char, 64> when{};
  const std::time_t now = std::time(nullptr);
  const std::size_t length = std::strftime(when.data(), when.size(), "%Y-%m-%d %H:%M:%S", std::localtime(&now));
  std::snprintf(when.data() + length, when.size() - length, ", %.2f s after the program ended", took.count());
  const bool whole = synced.failures.empty();
  say(0, "deferred calls: " + std::to_string(synced.calls) + "; files " +
             (whole ? "on stable storage" : "synced, but for those named above") + ": " + std::to_string(synced.files) +
             " (" + ebb::format_bytes(synced.bytes) + "), below \"" + directory + "\", at " + when.data());
  return whole ? status : kNotStored;
}
