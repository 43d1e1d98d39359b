#include "snapshots/memory_check.hpp"

#include <string>
#include <sys/mman.h>

#include "device/cuda.hpp"
#include "os/files.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::snapshots {

bool is_mapped(const Protection& one) {
  const auto begin = reinterpret_cast<std::uintptr_t>(one.memory) / platform::kBlock * platform::kBlock;
  const std::uint64_t end = platform::round_up(reinterpret_cast<std::uintptr_t>(one.memory) + one.bytes);
  return ::msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;  // which does nothing else
}

Result<void> check_protection(const Protection& made, std::span<const Protection> others, std::optional<int> gpu) {
  const std::string region = "region " + std::to_string(made.region);
  const auto wrong = [&](const std::string& why) { return Error{Errc::invalid_argument, region + " " + why}; };
  if (made.region >= storage::kLayoutRegion) return wrong("is not valid: the store uses 4294967294 and above itself");
  if (made.memory == nullptr || made.bytes == 0) return wrong("has no memory: expected at least one byte");
  if (made.bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(made.memory)) return wrong("has too many bytes");
  for (const Protection& one : others) {
    if (one.region == made.region) return wrong("is protected already");
    if (one.memory < made.memory + made.bytes && made.memory < one.memory + one.bytes)
      return wrong("has memory that is protected already, as region " + std::to_string(one.region));
  }
  if (made.on_device) return {};
  const std::optional<int> other = platform::device_of_pointer(made.memory);
  if (other && other == gpu) return wrong("reaches past the end of its allocation on the GPU");
  if (other)
    return wrong("is memory of GPU " + std::to_string(*other) + ", and the store's device cache is " +
                 (gpu ? "on GPU " + std::to_string(*gpu) : std::string("in ordinary memory")) +
                 ": open the store on the GPU of the arrays");
  if (!is_mapped(made)) return wrong("has memory that is not mapped");
  return {};
}

}  // namespace ebb::snapshots
