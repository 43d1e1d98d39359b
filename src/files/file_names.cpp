#include "files/file_names.hpp"

#include <charconv>

namespace ebb::files {

std::string FileName::prefix() const { return name + std::string(kMark) + std::to_string(version) + "/"; }

std::string FileName::text() const { return "version " + std::to_string(version) + " of file \"" + name + "\""; }

std::optional<FileHistory> parse_history(std::string_view history) {
  const std::size_t slash = history.rfind('/');
  if (slash == std::string_view::npos) return {};
  const std::string_view before = history.substr(0, slash), part = history.substr(slash + 1);
  const std::size_t mark = before.rfind(kMark);
  if (mark == std::string_view::npos) return {};
  const std::string_view number = before.substr(mark + kMark.size());
  FileHistory found{{std::string(before.substr(0, mark)), 0}, std::string(part)};
  const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), found.file.version);
  if (failed != std::errc{} || end != number.data() + number.size() || number != std::to_string(found.file.version))
    return {};
  return found;
}

}  // namespace ebb::files
