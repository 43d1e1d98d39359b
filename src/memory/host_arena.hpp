#pragma once
#include <cstddef>

#include "ebbtide/error.hpp"
#include "platform/device.hpp"

namespace ebb::memory {

/// One contiguous buffer of host memory, 4096-aligned, that a device copies to and from at full speed. Owns it:
/// move-only; moved-from is empty. The device must outlive it.
class HostArena {
 public:
  HostArena() = default;
  /// `bytes` is rounded up to 4096; 0 gives an empty arena. Error out_of_memory.
  static Result<HostArena> create(platform::Device& device, std::size_t bytes);
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;
  ~HostArena();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  platform::Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ebb::memory
