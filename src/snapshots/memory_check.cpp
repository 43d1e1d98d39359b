#include "snapshots/memory_check.hpp"

#include <algorithm>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "device/cuda.hpp"
#include "os/files.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::snapshots {

bool is_mapped(const Protection& one) {
  if (one.bytes == 0) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(one.memory) / os::kBlock * os::kBlock;
  const std::uint64_t end = os::round_up(reinterpret_cast<std::uintptr_t>(one.memory) + one.bytes);
  return ::msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;  // which does nothing else
}

namespace {

Error wrong(const Protection& one, const std::string& why) {
  return {Errc::invalid_argument, "region " + std::to_string(one.region) + " " + why};
}

Result<void> check_numbers(const Protection& made) {
  if (made.region >= storage::kLayoutRegion)
    return wrong(made, "is not valid: the store uses 4294967294 and above itself");
  if (made.memory == nullptr && made.bytes > 0) return wrong(made, "has no memory, and has bytes");
  if (made.bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(made.memory))
    return wrong(made, "has too many bytes");
  return {};
}

// Of two neighbours the one that was protected last is to blame.
Result<void> check_apart(std::span<const Protection> made, std::span<const Protection> others) {
  std::vector<std::pair<const Protection*, std::size_t>> all;  // and when it was protected
  for (const Protection& one : others) all.emplace_back(&one, all.size());
  for (const Protection& one : made) all.emplace_back(&one, all.size());
  std::ranges::sort(all, {}, [](const auto& one) { return std::pair(one.first->region, one.second); });
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i - 1].first->region == all[i].first->region) return wrong(*all[i].first, "is protected already");
  std::erase_if(all, [](const auto& one) { return one.first->bytes == 0; });
  std::ranges::sort(all, {}, [](const auto& one) { return one.first->memory; });
  for (std::size_t i = 1; i < all.size(); ++i) {
    auto [before, later] = std::pair(all[i - 1], all[i]);
    if (before.first->memory + before.first->bytes <= later.first->memory) continue;
    if (before.second > later.second) std::swap(before, later);
    return wrong(*later.first,
                 "has memory that is protected already, as region " + std::to_string(before.first->region));
  }
  return {};
}

Result<void> check_memory(const Protection& made, std::optional<int> gpu) {
  if (made.on_device || made.bytes == 0) return {};
  const std::optional<int> other = device::device_of_pointer(made.memory);
  if (other && other == gpu) return wrong(made, "reaches past the end of its allocation on the GPU");
  if (other)
    return wrong(made, "is memory of GPU " + std::to_string(*other) + ", and the store's device cache is " +
                           (gpu ? "on GPU " + std::to_string(*gpu) : std::string("in ordinary memory")) +
                           ": open the store on the GPU of the arrays");
  if (!is_mapped(made)) return wrong(made, "has memory that is not mapped");
  return {};
}

}  // namespace

Result<void> check_protections(std::span<const Protection> made, std::span<const Protection> others,
                               std::optional<int> gpu) {
  for (const Protection& one : made)
    if (auto good = check_numbers(one); !good) return good;
  if (auto good = check_apart(made, others); !good) return good;
  for (const Protection& one : made)
    if (auto good = check_memory(one, gpu); !good) return good;
  return {};
}

}  // namespace ebb::snapshots
