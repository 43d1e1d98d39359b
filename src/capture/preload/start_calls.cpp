// The calls that start programs. A program that was just written is complete and closed; one that gets another
// environment is captured too.
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <iterator>
#include <spawn.h>
#include <unistd.h>

#include "capture/preload/captured.hpp"
#include "capture/preload/hook.hpp"

extern char** environ;

namespace {

using ebb::capture::drain_program;

constexpr std::size_t kLongest = 4096;

bool names(const char* entry, const char* name) {
  const std::size_t length = std::strlen(name);
  return std::strncmp(entry, name, length) == 0 && entry[length] == '=';
}

const char* ours(const char* name) {
  for (char** at = environ; at && *at; ++at) {
    if (names(*at, name)) return *at;
  }
  return nullptr;
}

// Calls `start` with an environment that has what capture needs.
template <class Start>
auto with_environment(char* const* given, Start start) {
  const char *region = ours("EBBTIDE_CAPTURE"), *library = ours("LD_PRELOAD");
  if (!given || given == environ || !region || !library || !ebb::capture::active()) return start(given);
  bool has_region = false, has_library = false;
  std::size_t count = 0;
  for (; given[count]; ++count) {
    has_region |= names(given[count], "EBBTIDE_CAPTURE");
    has_library |= names(given[count], "LD_PRELOAD");
  }
  if ((has_region && has_library) || count > kLongest) return start(given);
  char* fresh[kLongest + 3];
  std::memcpy(fresh, given, count * sizeof(char*));
  if (!has_region) fresh[count++] = const_cast<char*>(region);
  if (!has_library) fresh[count++] = const_cast<char*>(library);
  fresh[count] = nullptr;
  return start(static_cast<char* const*>(fresh));
}

void drain_file(const char* path) {
  if (path && std::strchr(path, '/')) drain_program(AT_FDCWD, path, 0);
}

}  // namespace

EBB_HOOK(int, execve, const char* path, char* const* words, char* const* environment) {
  drain_file(path);
  return with_environment(environment, [&](char* const* all) { return EBB_REAL(execve)(path, words, all); });
}
EBB_HOOK(int, execv, const char* path, char* const* words) { return hook_execve(path, words, environ); }
EBB_HOOK(int, fexecve, int fd, char* const* words, char* const* environment) {
  drain_program(fd, "", AT_EMPTY_PATH);
  return with_environment(environment, [&](char* const* all) { return EBB_REAL(fexecve)(fd, words, all); });
}
EBB_HOOK(int, execvpe, const char* name, char* const* words, char* const* environment) {
  drain_file(name);
  return with_environment(environment, [&](char* const* all) { return EBB_REAL(execvpe)(name, words, all); });
}
EBB_HOOK(int, execvp, const char* name, char* const* words) { return hook_execvpe(name, words, environ); }

namespace {

// The words of a call with a list, on the stack of `then`.
template <class Then>
int with_words(const char* first, va_list* values, Then then) {
  char* words[1024];
  std::size_t count = 0;
  for (const char* word = first; word; word = va_arg(*values, const char*)) {
    if (count == std::size(words) - 1) {
      errno = E2BIG;
      return -1;
    }
    words[count++] = const_cast<char*>(word);
  }
  words[count] = nullptr;
  return then(static_cast<char* const*>(words));
}

}  // namespace

EBB_HOOK(int, execl, const char* path, const char* first, ...) {
  va_list values;
  va_start(values, first);
  const int done = with_words(first, &values, [&](char* const* words) { return hook_execve(path, words, environ); });
  va_end(values);
  return done;
}
EBB_HOOK(int, execlp, const char* name, const char* first, ...) {
  va_list values;
  va_start(values, first);
  const int done = with_words(first, &values, [&](char* const* words) { return hook_execvpe(name, words, environ); });
  va_end(values);
  return done;
}
EBB_HOOK(int, execle, const char* path, const char* first, ...) {
  va_list values;
  va_start(values, first);
  const int done = with_words(
      first, &values, [&](char* const* words) { return hook_execve(path, words, va_arg(values, char* const*)); });
  va_end(values);
  return done;
}

EBB_HOOK(int, posix_spawn, pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  drain_file(path);
  return with_environment(
      environment, [&](char* const* all) { return EBB_REAL(posix_spawn)(pid, path, actions, attributes, words, all); });
}
EBB_HOOK(int, posix_spawnp, pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
         const posix_spawnattr_t* attributes, char* const* words, char* const* environment) {
  drain_file(name);
  return with_environment(environment, [&](char* const* all) {
    return EBB_REAL(posix_spawnp)(pid, name, actions, attributes, words, all);
  });
}
