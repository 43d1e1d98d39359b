#include "os/memory_left.hpp"

#include <algorithm>
#include <string>

#include "os/files.hpp"
#include "os/memory_limits.hpp"
#include "os/pages.hpp"

namespace ebb::os {
namespace {

// Others may write here at the same time: each write is atomic and changes nothing, so theirs stay as they are, and the
// thread sanitizer is told so. Volatile, since a compiler may drop such a write.
[[gnu::no_sanitize_thread]] void touch(std::byte* memory, std::size_t bytes) {
  auto* const first = reinterpret_cast<volatile std::uint8_t*>(memory);
  for (std::size_t at = 0; at < bytes; at += kBlock) __atomic_fetch_or(first + at, std::uint8_t{0}, __ATOMIC_RELAXED);
}

}  // namespace

std::uint64_t available_host_memory() {
  PosixFiles files;
  const auto available = available_memory(files);
  const auto group = cgroup_memory(files);
  return std::min(available ? *available : UINT64_MAX, group ? group->left : UINT64_MAX);
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

}  // namespace ebb::os
