#include "os/process_id.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "os/text_file.hpp"

namespace ebb::os {
namespace {

// A letter; 0: there is no such process.
char state_of(Files& files, pid_t pid) {
  const Result<std::string> text = read_text(files, "/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = text ? (*text).rfind(')') : std::string::npos;
  return name_end != std::string::npos && name_end + 2 < (*text).size() ? (*text)[name_end + 2] : '\0';
}

// `which`: a number, or "self".
Result<ProcessId> process_in_proc(Files& files, const std::string& which) {
  const std::string path = "/proc/" + which + "/stat";
  const Result<std::string> text = read_text(files, path);
  if (!text) return text.error();
  // "PID (NAME) STATE ...": the name may contain anything; the start is the 20th field after it.
  constexpr int kStart = 20;
  const std::size_t name_end = (*text).rfind(')');
  std::string_view rest =
      name_end == std::string::npos ? std::string_view() : std::string_view(*text).substr(name_end + 1);
  for (int field = 0; field < kStart && !rest.empty(); ++field) {
    rest.remove_prefix(1);  // the space before it
    if (field + 1 < kStart) rest.remove_prefix(std::min(rest.find(' '), rest.size()));
  }
  ProcessId found;
  std::from_chars((*text).data(), (*text).data() + (*text).size(), found.pid);
  if (std::from_chars(rest.data(), rest.data() + rest.size(), found.start).ec == std::errc{}) return found;
  return Error{Errc::io_error, "\"" + path + "\" does not say when the process started"};
}

}  // namespace

Result<ProcessId> process_id(Files& files, pid_t pid) { return process_in_proc(files, std::to_string(pid)); }

Result<ProcessId> this_process(Files& files) {
  auto found = process_in_proc(files, "self");
  if (!found || found->pid == ::getpid()) return found;
  return Error{Errc::unsupported, "/proc shows the processes of another PID namespace: this process is number " +
                                      std::to_string(::getpid()) + ", and number " + std::to_string(found->pid) +
                                      " there; mount /proc in its own namespace (unshare --mount-proc)"};
}

std::uint64_t pid_namespace() {
  constexpr ino_t kFirst = 0xEFFFFFFC;  // PROC_PID_INIT_INO of Linux
  struct stat found{};
  return ::stat("/proc/self/ns/pid", &found) == 0 && found.st_ino != kFirst ? found.st_ino : 0;
}

bool is_running(Files& files, const ProcessId& process) {
  const auto now = process_id(files, process.pid);
  if (!now || *now != process) return false;
  const char state = state_of(files, process.pid);
  return state != '\0' && state != 'Z';
}

bool is_stopped(Files& files, pid_t pid) {
  const char state = state_of(files, pid);
  return state == 'T' || state == 't';
}

}  // namespace ebb::os
