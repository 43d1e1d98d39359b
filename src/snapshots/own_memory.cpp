#include "snapshots/own_memory.hpp"

#include <utility>

#include "os/pages.hpp"

namespace ebb::snapshots {

Result<OwnMemory> OwnMemory::make(std::size_t bytes) {
  auto mapped = os::map_pages(bytes);
  if (!mapped) return mapped.error();
  OwnMemory made;
  made.data_ = *mapped;
  made.bytes_ = bytes;
  os::touch_pages(made.data_, bytes);
  return made;
}
OwnMemory::OwnMemory(OwnMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
OwnMemory& OwnMemory::operator=(OwnMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
OwnMemory::~OwnMemory() {
  if (data_ != nullptr) os::unmap_pages(data_, bytes_);
}

}  // namespace ebb::snapshots
