#include "share/agent/start_agent.hpp"

#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "os/files.hpp"

namespace ebb::share {

std::optional<std::filesystem::path> agent_program() {
  std::error_code ignored;
  std::vector<std::filesystem::path> beside;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&agent_program), &info) != 0 && info.dli_fname != nullptr) {
    beside.push_back(std::filesystem::absolute(info.dli_fname, ignored).parent_path());
  }
  beside.push_back(std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path());
  for (const std::filesystem::path& folder : beside) {
    for (const char* name : {"ebbtide-agent", "../bin/ebbtide-agent"}) {
      const std::filesystem::path program = folder / name;
      if (::access(program.c_str(), X_OK) == 0) return program;
    }
  }
  return {};
}

Result<void> start_agent(const std::filesystem::path& program, const std::string& job) {
  std::vector<char*> environment;
  for (char** one = environ; *one != nullptr; ++one) {
    if (!std::string_view(*one).starts_with("LD_PRELOAD=")) environment.push_back(*one);
  }
  environment.push_back(nullptr);
  std::string path = program.string(), name = job;
  char* arguments[] = {path.data(), name.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd < 3; ++fd) ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_RDWR, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, path.c_str(), &actions, &attributes, arguments, environment.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  const auto failed = [&](const std::string& why) {
    return Error{Errc::io_error, path + " cannot be started: " + why};
  };
  if (error != 0) return failed(os::describe_errno(error));
  // The agent is not a child of this process. The child exits once the agent listens, or has exited.
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno == ECHILD) return {};  // the program ignores its children's ends
    if (errno != EINTR) return failed(os::describe_errno(errno));
  }
  if (WIFSIGNALED(status)) return Error{Errc::closed, path + " was killed while it was started"};
  if (WEXITSTATUS(status) != 0) return failed("it ended with status " + std::to_string(WEXITSTATUS(status)));
  return {};
}

}  // namespace ebb::share
