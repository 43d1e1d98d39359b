#pragma once
// The device that a store uses: what `device=` says.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device/device.hpp"
#include "ebbtide/error.hpp"

namespace ebb::options {

struct DeviceChoice {
  enum class Kind { automatic, memory, current_gpu, gpu } kind = Kind::automatic;
  int ordinal = 0;  // of a gpu
};

inline constexpr std::string_view kDevices = "one of \"auto\", \"cpu\", \"cuda\", \"cuda:N\"";

/// Parses "auto", "cpu", "cuda", "cuda:N"; nothing for any other text.
std::optional<DeviceChoice> parse_device(std::string_view text);

/// The device that `text` names (none: "auto"). Errors: invalid_argument, unsupported (no such GPU, with the reason).
Result<std::shared_ptr<device::Device>> open_device(const std::optional<std::string>& text);

}  // namespace ebb::options
