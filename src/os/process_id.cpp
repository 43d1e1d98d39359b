#include "os/process_id.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "os/text_file.hpp"

namespace ebb::platform {
namespace {

// A letter; 0: there is no such process.
char state_of(Files& files, pid_t pid) {
  const Result<std::string> text = read_text(files, "/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = text ? (*text).rfind(')') : std::string::npos;
  return name_end != std::string::npos && name_end + 2 < (*text).size() ? (*text)[name_end + 2] : '\0';
}

}  // namespace

Result<ProcessId> process_id(Files& files, pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
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
  ProcessId found{pid, 0};
  if (std::from_chars(rest.data(), rest.data() + rest.size(), found.start).ec == std::errc{}) return found;
  return Error{Errc::io_error, "\"" + path + "\" does not say when the process started"};
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

}  // namespace ebb::platform
