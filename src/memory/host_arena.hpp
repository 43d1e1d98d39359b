#pragma once
#include <cstddef>

#include "ebbtide/error.hpp"

namespace ebb::memory {

/// One contiguous buffer of host memory, 4096-aligned, taken from the system only as it is touched. Owns it: move-only;
/// moved-from is empty.
class HostArena {
 public:
  HostArena() = default;
  /// `bytes` is rounded up to 4096; 0 gives an empty arena. Error out_of_memory.
  static Result<HostArena> create(std::size_t bytes);
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;
  ~HostArena();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  HostArena(std::byte* data, std::size_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ebb::memory
