#include "trace/event_log.hpp"

#include <cerrno>

namespace ebb::trace {
namespace {

Error failed(const char* what, const std::string& path, int error) {
  return {Errc::io_error, std::string(what) + " \"" + path + "\" failed: " + os::describe_errno(error)};
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::create(os::Files& files, const std::filesystem::path& path) {
  const os::SysResult opened = files.open_write(path);
  if (!opened) return failed("creating event_log", path.string(), opened.error);
  os::File file(files, static_cast<int>(opened.value), path.string(), false);
  return std::unique_ptr<EventLog>(new EventLog(files, std::move(file)));
}

void EventLog::write(std::string_view text) {
  while (!text.empty() && !error_) {
    const os::SysResult written = files_.write(file_.fd(), text.data(), text.size(), offset_);
    if (!written && written.error == EINTR) continue;
    if (!written) {
      error_ = failed("writing event_log", file_.name(), written.error);
      return;
    }
    offset_ += static_cast<std::uint64_t>(written.value);
    text.remove_prefix(static_cast<std::size_t>(written.value));
  }
}

}  // namespace ebb::trace
