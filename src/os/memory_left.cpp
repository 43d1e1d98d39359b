#include "os/memory_left.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "os/files.hpp"
#include "os/pages.hpp"

namespace ebb::platform {
namespace {

// The number that follows `key` in a system file; nothing if the file or the number ("max") is missing.
std::optional<std::uint64_t> number_in(const char* path, std::string_view key) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "re"), &std::fclose);
  std::array<char, 256> line{};
  while (file && std::fgets(line.data(), line.size(), file.get())) {
    std::string_view rest = line.data();
    if (!rest.starts_with(key)) continue;
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t", key.size()), rest.size()));
    std::uint64_t number = 0;
    if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec == std::errc{}) return number;
  }
  return {};
}

// What the control group has left after dropping its file cache.
std::uint64_t left_of_group() {
  const auto most = number_in("/sys/fs/cgroup/memory.max", "");
  if (!most) return UINT64_MAX;
  std::uint64_t used = number_in("/sys/fs/cgroup/memory.current", "").value_or(0);
  for (const char* files : {"inactive_file ", "active_file "}) {
    used -= std::min(used, number_in("/sys/fs/cgroup/memory.stat", files).value_or(0));
  }
  return *most - std::min(*most, used);
}

void touch(std::byte* memory, std::size_t bytes) {
  // Atomic, since others may write here at the same time; volatile, since a compiler may drop a write that changes
  // nothing.
  auto* const first = reinterpret_cast<volatile std::uint8_t*>(memory);
  for (std::size_t at = 0; at < bytes; at += kBlock) __atomic_fetch_or(first + at, std::uint8_t{0}, __ATOMIC_RELAXED);
}

}  // namespace

std::uint64_t available_host_memory() {
  const auto available = number_in("/proc/meminfo", "MemAvailable:");
  return std::min(available ? *available << 10 : UINT64_MAX, left_of_group());
}

std::uint64_t memory_to_keep(std::uint64_t available, std::uint64_t processes) {
  const std::uint64_t of_each = std::uint64_t{64} << 20;
  return std::min(available / 4, std::max(4 * of_each, std::min(processes, available / of_each) * of_each));
}

Result<void> check_left(std::size_t bytes, std::uint64_t keep, std::uint64_t group_left) {
  // Where plenty of pages are free, skip the slower check.
  const std::uint64_t needed = bytes + keep;
  const std::uint64_t left = std::min(group_left, free_host_memory() >= needed ? needed : available_host_memory());
  if (left >= needed) return {};
  return Error{Errc::out_of_memory, std::to_string(bytes) + " more bytes would leave the system less than " +
                                        std::to_string(keep) + ": " + std::to_string(left) + " are available"};
}

Result<void> touch_if_left(std::byte* memory, std::size_t bytes, std::uint64_t keep, std::uint64_t group_left) {
  Result<void> left = check_left(bytes, keep, group_left);
  if (left) touch(memory, bytes);
  return left;
}

}  // namespace ebb::platform
