#include "os/text_file.hpp"

#include <array>
#include <cerrno>

namespace ebb::os {
namespace {

Error read_failed(const char* what, const std::filesystem::path& path, int error) {
  return {Errc::io_error, std::string(what) + " \"" + path.string() + "\" failed: " + describe_errno(error)};
}

}  // namespace

Result<std::string> read_text(Files& files, const std::filesystem::path& path) {
  const SysResult opened = files.open_read(path);
  if (!opened) return read_failed("opening", path, opened.error);
  const File file(files, static_cast<int>(opened.value), path.string(), false);
  std::string text;
  std::array<char, 4096> part;
  for (;;) {
    const SysResult got = files.read(file.fd(), part.data(), part.size(), text.size());
    if (!got && got.error == EINTR) continue;
    if (!got) return read_failed("reading", path, got.error);
    if (got.value == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got.value));
  }
}

}  // namespace ebb::os
