#include "os/memory_limits.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "os/text_file.hpp"

namespace ebb::os {
namespace {

template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// The names of a control group version's files, and of the file cache's lines in `memory.stat`.
struct GroupNames {
  const char* root;
  std::array<std::string_view, 2> limits;  // above the second of version 2 the kernel throttles allocations
  const char* used;
  std::array<std::string_view, 2> files;
};
constexpr GroupNames kVersion1 = {"/sys/fs/cgroup/memory",
                                  {"memory.limit_in_bytes", {}},
                                  "memory.usage_in_bytes",
                                  {"total_inactive_file ", "total_active_file "}};
constexpr GroupNames kVersion2 = {
    "/sys/fs/cgroup", {"memory.max", "memory.high"}, "memory.current", {"inactive_file ", "active_file "}};

// Memory in use by a group's processes; file cache is not counted, since the kernel drops it first.
std::uint64_t held_in(Files& files, const std::string& group, const GroupNames& names) {
  const auto current = read_text(files, group + names.used);
  std::uint64_t held = current ? base::leading_number(*current).value_or(0) : 0;
  if (const auto stat = read_text(files, group + "memory.stat")) {
    for_each_line(*stat, [&](std::string_view line) {
      for (const std::string_view key : names.files) {
        if (line.starts_with(key)) held -= std::min(held, base::leading_number(line.substr(key.size())).value_or(0));
      }
    });
  }
  return held;
}

// Of the group `path` and its ancestors. In a container the path may be one of the host's and not visible: the root is
// then the container's own group.
void least_limit(Files& files, const GroupNames& names, std::string path, std::optional<CgroupMemory>& least) {
  for (;;) {
    const std::string group = names.root + path + "/";
    std::optional<std::uint64_t> limit;
    for (const std::string_view name : names.limits) {
      if (name.empty()) continue;
      const auto text = read_text(files, group + std::string(name));
      const auto found = text ? base::leading_number(*text) : std::nullopt;  // "max" is no number
      // Version 1 expresses "no limit" as a number beyond all memory.
      if (found && *found < (std::uint64_t{1} << 60)) limit = std::min(limit.value_or(UINT64_MAX), *found);
    }
    if (limit) {
      const std::uint64_t left = *limit - std::min(*limit, held_in(files, group, names));
      if (!least) least = {*limit, left};
      least = {std::min(least->limit, *limit), std::min(least->left, left)};
    }
    if (path.empty()) return;
    path.resize(std::min(path.rfind('/'), path.size()));
    if (path == "/") path.clear();
  }
}

}  // namespace

Result<std::uint64_t> available_memory(Files& files) {
  auto text = read_text(files, "/proc/meminfo");
  if (!text) return text.error();
  std::optional<std::uint64_t> kib;
  for_each_line(*text, [&](std::string_view line) {
    constexpr std::string_view key = "MemAvailable:";
    if (line.starts_with(key)) kib = base::leading_number(line.substr(key.size()));
  });
  if (!kib) return Error{Errc::io_error, "/proc/meminfo has no MemAvailable: give device_cache and host_cache"};
  return *kib * 1024;
}

double memory_stalls(Files& files) {
  const auto text = read_text(files, "/proc/pressure/memory");
  double stalls = 0;
  if (!text) return stalls;
  for_each_line(*text, [&](std::string_view line) {
    constexpr std::string_view key = "full avg10=";
    if (line.starts_with(key)) std::from_chars(line.data() + key.size(), line.data() + line.size(), stalls);
  });
  return stalls;
}

std::optional<CgroupMemory> cgroup_memory(Files& files) {
  auto groups = read_text(files, "/proc/self/cgroup");
  if (!groups) return {};
  std::optional<CgroupMemory> least;
  for_each_line(*groups, [&](std::string_view line) {  // "0::/a/b" (version 2), "4:memory:/a/b" (version 1)
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) return;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    std::string path(line.substr(second + 1));
    if (path == "/") path.clear();
    if (controllers.empty()) least_limit(files, kVersion2, path, least);
    std::string listed = ",";
    (listed += controllers) += ',';
    if (listed.find(",memory,") != listed.npos) least_limit(files, kVersion1, path, least);
  });
  return least;
}

}  // namespace ebb::os
