#pragma once
// Anonymous memory straight from the system.
#include <cstddef>
#include <cstdint>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::platform {

inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Zeroed memory that is not touched yet, aligned to 2 MiB (4096 when smaller than that), with huge pages where the
/// system gives them. Error out_of_memory with the size and the reason.
Result<std::byte*> map_pages(std::size_t bytes);
/// Makes the system give these pages their memory now, with a few threads, so that no copy waits for it later (a cache
/// that is used for a whole run pays for its memory once, at its start: hpdc23 sec. 4.1.4). At most half of what is
/// free is asked for: the rest, like anything refused, is given when it is first written.
void touch_pages(std::byte* memory, std::size_t bytes);
/// These pages are present when it returns, by the calling thread alone; what they hold stays, and nobody writes to
/// them meanwhile. `memory` is aligned to 4096 and writable. Error out_of_memory, with the size and the reason, where
/// the kernel says so instead of ending the process (it may end it all the same, at a limit of its control group: ask
/// for no more than there is); some pages may be present then.
Result<void> populate(std::byte* memory, std::size_t bytes);
/// What the kernel's transparent huge pages are set to for memory that asks for them, as map_pages() does.
struct HugePages {
  bool on = false;      // "always" or "madvise"
  std::string setting;  // the word itself; "unknown" where the kernel does not say
};
HugePages huge_pages();
/// What the system could give to new pages now.
std::uint64_t free_host_memory() noexcept;
void unmap_pages(std::byte* memory, std::size_t bytes) noexcept;
/// A forked child does not get these pages. Where the kernel lets a child keep the old page, the parent's next write
/// makes a new one, which a registration with a device does not follow.
void keep_from_children(std::byte* memory, std::size_t bytes) noexcept;

}  // namespace ebb::platform
