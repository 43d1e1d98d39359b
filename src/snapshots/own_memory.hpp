#pragma once
#include <cstddef>

#include "ebbtide/error.hpp"

namespace ebb::snapshots {

/// Memory of the system, present, for as long as this lasts. Move-only; moved-from is empty.
class OwnMemory {
 public:
  static Result<OwnMemory> make(std::size_t bytes);
  OwnMemory() = default;
  OwnMemory(OwnMemory&& other) noexcept;
  OwnMemory& operator=(OwnMemory&& other) noexcept;
  ~OwnMemory();
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ebb::snapshots
