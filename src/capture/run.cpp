#include "capture/run.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "capture/region.hpp"
#include "capture/writer.hpp"
#include "ebbtide/units.hpp"
#include "os/shared_memory.hpp"
#include "os/sys_result.hpp"

extern char** environ;

namespace ebb::capture {
namespace {

using platform::SharedFile;
using platform::TmpfsSharedMemory;

constexpr std::uint32_t kReadyAtFirst = 4;  // chunks
constexpr std::uint64_t kPage = 4096;

Result<std::string> directory_of(const std::string& given) {
  std::array<char, PATH_MAX> path{};
  struct stat found{};
  const std::string what = "--capture: \"" + given + "\" ";
  if (!::realpath(given.c_str(), path.data()) || ::stat(path.data(), &found) != 0) {
    return Error{Errc::invalid_argument, what + "is not there: name an existing directory"};
  }
  if (!S_ISDIR(found.st_mode)) return Error{Errc::invalid_argument, what + "is no directory: name one"};
  if (::access(path.data(), W_OK | X_OK) != 0) return Error{Errc::not_permitted, what + "cannot be written to"};
  if (std::strlen(path.data()) >= kPath / 2) {
    return Error{Errc::invalid_argument, what + "has a path of more than " + std::to_string(kPath / 2) + " bytes"};
  }
  return std::string(path.data());
}

std::vector<std::string> failures_of(Region* region) {
  std::vector<std::string> all;
  for (std::uint32_t at = 0; at < region->high.load(); ++at) {
    const Locked lock(region, at);
    const File& file = region->file[at];
    if (file.error) {
      all.push_back("\"" + std::string(file.path) + "\": " + platform::describe_errno(file.error) + " is not whole");
    }
  }
  return all;
}

/// Writes what runs left in the pool of which no process lives that would, and removes their regions. What is not
/// whole.
std::vector<std::string> finish_earlier_runs() {
  TmpfsSharedMemory memory;
  std::vector<std::string> notes;
  const auto names = memory.list();
  if (!names) return notes;  // creating a region says why
  for (const std::string& name : *names) {
    if (!name.starts_with("capture-")) continue;
    const auto file = memory.open(name);  // checks whose it is
    if (!file || !*file) continue;
    Region* const region = map_region((TmpfsSharedMemory::usual_directory() / name).c_str());
    if (!region) continue;
    const bool owned = ::kill(region->owner, 0) == 0 || errno != ESRCH;
    const bool served = region->writer.load() != 0 && ::kill(region->writer.load(), 0) == 0 && !writer_gone(region);
    if (!owned && !served) {
      end_capture(region);
      for (const std::string& failure : failures_of(region)) notes.push_back("an earlier run: " + failure);
      (void)memory.remove(name);  // or else the next run does it
    }
    ::munmap(region, region->bytes);
  }
  return notes;
}

// The name of a run's region is unique among the living: it has the process id.
std::string name_of_run() { return "capture-" + std::to_string(::getpid()); }

/// A region under its name; the destructor removes the name.
class OwnRegion {
 public:
  static Result<std::unique_ptr<OwnRegion>> create(const std::string& directory, std::uint64_t pool, bool defer) {
    auto own = std::make_unique<OwnRegion>();
    const auto chunks = static_cast<std::uint32_t>(std::min<std::uint64_t>(pool / kChunk, UINT32_MAX / 2));
    if (auto removed = own->memory_.remove(own->name_); !removed) return removed.error();
    auto file = own->memory_.create(own->name_);
    if (!file) return file.error();
    if (!*file) return Error{Errc::io_error, "shared memory \"" + own->name_ + "\" is there already"};
    const std::uint64_t first = pool_offset(chunks) + kReadyAtFirst * kChunk;
    if (auto room = (*file)->allocate({0, (first + kPage - 1) / kPage * kPage}); !room) return room.error();
    own->path_ = (TmpfsSharedMemory::usual_directory() / own->name_).string();
    // The library maps what the region says; here it says nothing yet.
    const std::array<platform::FileRange, 1> all{{{0, (first + kPage - 1) / kPage * kPage}}};
    auto head = (*file)->map(all);
    if (!head) return head.error();
    lay_out(reinterpret_cast<Region*>(head->data()), directory.c_str(), chunks, kReadyAtFirst, defer);
    own->region_ = map_region(own->path_.c_str());
    if (!own->region_) return Error{Errc::out_of_memory, "mapping the pool of " + format_bytes(pool) + " failed"};
    return own;
  }
  OwnRegion() = default;
  OwnRegion(const OwnRegion&) = delete;
  ~OwnRegion() {
    // A name that remains is removed by the next run with this process id.
    (void)memory_.remove(name_);
  }
  Region* region() const { return region_; }
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }

 private:
  TmpfsSharedMemory memory_;
  const std::string name_ = name_of_run();
  std::string path_;
  Region* region_ = nullptr;
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(const std::string& library, const std::string& region) {
  std::vector<std::string> all;
  std::string preload = "LD_PRELOAD=" + library;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    if (entry.starts_with("EBBTIDE_CAPTURE=")) continue;
    if (entry.starts_with("LD_PRELOAD=")) {
      if (entry.size() > 11) preload += ":" + entry.substr(11);
      continue;
    }
    all.push_back(entry);
  }
  all.push_back(preload);
  all.push_back("EBBTIDE_CAPTURE=" + region);
  return all;
}

/// The writer: a session of its own, so that no key of the terminal ends it; no descriptor, no preloaded library.
Result<pid_t> start_writer(const std::string& self, const std::string& name) {
  std::vector<std::string> words{self, "--writer", name};
  std::vector<std::string> variables;
  for (char** at = environ; *at; ++at) {
    if (std::strncmp(*at, "LD_PRELOAD=", 11) != 0) variables.emplace_back(*at);
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int fd : {0, 1, 2}) ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, self.c_str(), &actions, &attributes, pointers(words).data(), pointers(variables).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error) return platform::system_error("starting the writer \"" + self + "\" failed", error);
  return pid;
}

/// The signals that this process takes one by one while the program runs.
sigset_t taken_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int one : {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) ::sigaddset(&set, one);
  return set;
}

/// Waits until `program` has ended, and hands signals on to it. When the writer ends before that, the pool is written
/// here.
int wait_for(pid_t program, pid_t& writer, Region* region) {
  const sigset_t taken = taken_signals();
  for (;;) {
    int status = 0;
    if (writer > 0 && ::waitpid(writer, nullptr, WNOHANG) == writer) {
      writer = 0;
      end_capture(region);
    }
    if (::waitpid(program, &status, WNOHANG) == program) {
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    siginfo_t got{};
    const int signal = ::sigwaitinfo(&taken, &got);
    // A key of the terminal reached the program too; what another process sent is for it alone.
    if (signal > 0 && signal != SIGCHLD && got.si_code <= 0) ::kill(program, signal);
  }
}

std::string closing_line(const Region* region, bool defer) {
  const auto count = [](std::uint64_t number, const std::string& what) {
    return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
  };
  std::string line = count(region->files.load(), "file") + " captured, " + format_bytes(region->written.load()) +
                     " in " + count(region->pieces.load(), "piece");
  if (defer)
    line += "; " + count(region->deferred.load(), "call") + " of fsync deferred: all files were synced at the end";
  return line;
}

}  // namespace

Result<RunEnd> run_captured(const RunOptions& options) {
  if (options.pool < kLeastPool) {
    return Error{Errc::invalid_argument, "--pool: " + format_bytes(options.pool) + " is too small: at least " +
                                             format_bytes(kLeastPool) + " is needed"};
  }
  if (options.program.empty()) return Error{Errc::invalid_argument, "there is no PROGRAM: name one after --"};
  const auto directory = directory_of(options.directory);
  if (!directory) return directory.error();
  RunEnd end;
  end.notes = finish_earlier_runs();
  auto own = OwnRegion::create(*directory, options.pool, options.defer);
  if (!own) return own.error();
  Region* const region = (*own)->region();

  const sigset_t taken = taken_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &taken, &before);
  auto writer = start_writer(options.self, (*own)->name());
  if (!writer) return writer.error();
  for (std::uint32_t seen = 0; region->writer.load() == 0; seen = region->freed.load()) {
    if (::waitpid(*writer, nullptr, WNOHANG) == *writer) {
      return Error{Errc::io_error, "the writer \"" + options.self + "\" ended at once"};
    }
    wait_on(region->freed, seen, 10);
  }

  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &before);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> words = options.program, variables = environment_with(options.library, (*own)->path());
  pid_t program = 0;
  const int refused = ::posix_spawnp(&program, words[0].c_str(), nullptr, &attributes, pointers(words).data(),
                                     pointers(variables).data());
  ::posix_spawnattr_destroy(&attributes);

  end.status = refused ? (refused == ENOENT ? 127 : 126) : wait_for(program, *writer, region);
  region->ending = 1;
  wake_writer(region);
  bool writer_died = *writer == 0;
  if (int status = 0; !writer_died && ::waitpid(*writer, &status, 0) == *writer) writer_died = WIFSIGNALED(status);
  end_capture(region);
  end.failures = failures_of(region);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (refused) {
    end.closing = "\"" + options.program[0] + "\" cannot be run: " + platform::describe_errno(refused);
  } else {
    end.closing = closing_line(region, options.defer);
    if (writer_died) end.closing += "; the writer was killed, and the rest was written straight to the files";
  }
  return end;
}

int serve_captured(const std::string& name) {
  TmpfsSharedMemory memory;
  auto file = memory.open(name);
  if (!file || !*file) return 1;
  Region* const region = map_region((TmpfsSharedMemory::usual_directory() / name).c_str());
  if (!region) return 1;
  Writer(region, **file).run();
  if (::getppid() != region->owner) (void)memory.remove(name);  // which `ebbtide run` would have done
  return 0;
}

}  // namespace ebb::capture
