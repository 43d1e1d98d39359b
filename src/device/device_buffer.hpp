#pragma once
#include <memory>
#include <utility>

#include "device/device.hpp"

namespace ebb::device {

/// Memory of a device, or of the host for its copies, for as long as this lasts. Move-only; moved-from is empty.
class DeviceBuffer {
 public:
  enum class Where : std::uint8_t { device, host };
  static Result<DeviceBuffer> make(std::shared_ptr<Device> device, Where where, std::size_t bytes) {
    auto got = where == Where::device ? device->allocate(bytes) : device->allocate_host(bytes);
    if (!got) return got.error();
    DeviceBuffer made;
    made.device_ = std::move(device), made.where_ = where, made.data_ = *got, made.bytes_ = bytes;
    return made;
  }
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(where_, other.where_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ == nullptr) return;
    where_ == Where::device ? device_->free(data_, bytes_) : device_->free_host(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::shared_ptr<Device> device_;
  Where where_ = Where::device;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ebb::device
