#include "os/boot.hpp"

#include <charconv>
#include <string>

#include "os/text_file.hpp"

namespace ebb::os {

std::array<std::byte, 16> boot_id(Files& files) {
  std::array<std::byte, 16> id{};
  auto text = read_text(files, "/proc/sys/kernel/random/boot_id");  // 32 hexadecimal digits, with hyphens between
  if (!text) return id;
  std::erase(*text, '-');
  if (text->size() < 2 * id.size()) return id;
  for (std::size_t i = 0; i < id.size(); ++i) {
    unsigned value = 0;
    const char* const at = text->data() + 2 * i;
    if (std::from_chars(at, at + 2, value, 16).ptr != at + 2) return {};
    id[i] = static_cast<std::byte>(value);
  }
  return id;
}

}  // namespace ebb::os
