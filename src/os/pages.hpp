#pragma once
// Anonymous memory from the system.
#include <cstddef>
#include <cstdint>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::os {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Zeroed, untouched memory, aligned to 2 MiB (4096 if smaller), with huge pages where available. Error out_of_memory
/// with size and reason.
Result<std::byte*> map_pages(std::size_t bytes);
/// Makes these pages present now, with a few threads, so that no copy pays for it later (a cache used for a whole run
/// pays for its memory once, at the start: hpdc23 sec. 4.1.4). Asks for at most half of what is free; the rest, like
/// anything refused, becomes present when it is first written.
void touch_pages(std::byte* memory, std::size_t bytes);
/// Makes these pages present on the calling thread; their contents stay, and nothing else may write to them meanwhile.
/// `memory` is aligned to 4096 and writable. Error out_of_memory, with size and reason, if the kernel reports it; the
/// kernel may kill the process instead, at a limit of its control group, so check first. Some pages may be present
/// after an error.
Result<void> populate(std::byte* memory, std::size_t bytes);
/// The kernel's transparent huge page setting for memory that asks for them, as map_pages() does.
struct HugePages {
  bool on = false;      // "always" or "madvise"
  std::string setting;  // the kernel's word; "unknown" if it does not say
};
HugePages huge_pages();
/// Bytes that the system could give to new pages now.
std::uint64_t free_host_memory() noexcept;
void unmap_pages(std::byte* memory, std::size_t bytes) noexcept;
/// A forked child does not inherit these pages. Otherwise a write by the parent may move it to a new page (copy on
/// write), which a registration with a device does not follow.
void keep_from_children(std::byte* memory, std::size_t bytes) noexcept;

}  // namespace ebb::os
