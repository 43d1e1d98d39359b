#include "memory/host_arena.hpp"

#include <cstdint>
#include <string>
#include <utility>

#include "platform/files.hpp"

namespace ebb::memory {

Result<HostArena> HostArena::create(platform::Device& device, std::size_t bytes) {
  HostArena arena;
  if (bytes == 0) return arena;
  if (bytes > SIZE_MAX - platform::kBlock) {
    return Error{Errc::out_of_memory, std::to_string(bytes) + " bytes fit no memory"};
  }
  const std::size_t size = platform::round_up(bytes);
  Result<std::byte*> memory = device.allocate_host(size);
  if (!memory) return memory.error();
  arena.device_ = &device;
  arena.data_ = *memory;
  arena.size_ = size;
  return arena;
}

HostArena::HostArena(HostArena&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

HostArena& HostArena::operator=(HostArena&& other) noexcept {
  HostArena taken(std::move(other));
  std::swap(device_, taken.device_);
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  return *this;
}

HostArena::~HostArena() {
  if (data_) device_->free_host(data_, size_);
}

}  // namespace ebb::memory
