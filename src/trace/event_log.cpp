#include "trace/event_log.hpp"

#include <array>
#include <cerrno>

namespace ebb::runtime {
namespace {

Error failed(const char* what, const std::string& path, int error) {
  return {Errc::io_error, std::string(what) + " \"" + path + "\" failed: " + platform::describe_errno(error)};
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::create(platform::Files& files, const std::filesystem::path& path) {
  const platform::SysResult opened = files.open_write(path);
  if (!opened) return failed("creating event_log", path.string(), opened.error);
  platform::File file(files, static_cast<int>(opened.value), path.string(), false);
  return std::unique_ptr<EventLog>(new EventLog(files, std::move(file)));
}

void EventLog::write(std::string_view text) {
  while (!text.empty() && !error_) {
    const platform::SysResult written = files_.write(file_.fd(), text.data(), text.size(), offset_);
    if (!written && written.error == EINTR) continue;
    if (!written) {
      error_ = failed("writing event_log", file_.name(), written.error);
      return;
    }
    offset_ += static_cast<std::uint64_t>(written.value);
    text.remove_prefix(static_cast<std::size_t>(written.value));
  }
}

Result<std::string> read_text(platform::Files& files, const std::filesystem::path& path) {
  const platform::SysResult opened = files.open_read(path);
  if (!opened) return failed("opening", path.string(), opened.error);
  const platform::File file(files, static_cast<int>(opened.value), path.string(), false);
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const platform::SysResult got = files.read(file.fd(), part.data(), part.size(), text.size());
    if (!got && got.error == EINTR) continue;
    if (!got) return failed("reading", path.string(), got.error);
    if (got.value == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got.value));
  }
}

}  // namespace ebb::runtime
