#pragma once
#include <functional>

#include "tests/doubles/forward_device.hpp"

namespace ebb::doubles {

/// Tells of a registration before it is made, so that a test can do something at that moment.
struct HookedDevice final : ForwardDevice {
  using ForwardDevice::ForwardDevice;
  Result<void> pin(std::byte* memory, std::size_t bytes) override {
    if (before_pin) before_pin(memory, bytes);
    return ForwardDevice::pin(memory, bytes);
  }
  std::function<void(std::byte*, std::size_t)> before_pin;  // set before anything is registered
};

}  // namespace ebb::doubles
