#include "memory/host_arena.hpp"

#include <utility>

#include "platform/files.hpp"
#include "platform/pages.hpp"

namespace ebb::memory {

Result<HostArena> HostArena::create(std::size_t bytes) {
  if (bytes == 0) return HostArena();
  Result<std::byte*> memory = platform::map_pages(bytes);
  if (!memory) return memory.error();
  platform::touch_pages(*memory, bytes);
  return HostArena(*memory, platform::round_up(bytes));
}

HostArena::HostArena(HostArena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HostArena& HostArena::operator=(HostArena&& other) noexcept {
  HostArena taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  return *this;
}

HostArena::~HostArena() { platform::unmap_pages(data_, size_); }

}  // namespace ebb::memory
