#include "options/device_choice.hpp"

#include <charconv>

#include "base/text.hpp"
#include "device/cuda.hpp"

namespace ebb::options {

std::optional<DeviceChoice> parse_device(std::string_view text) {
  using Kind = DeviceChoice::Kind;
  if (text == "auto") return DeviceChoice{Kind::automatic};
  if (text == "cpu") return DeviceChoice{Kind::memory};
  if (text == "cuda") return DeviceChoice{Kind::current_gpu};
  constexpr std::string_view prefix = "cuda:";
  if (!text.starts_with(prefix)) return {};
  text.remove_prefix(prefix.size());
  DeviceChoice choice{Kind::gpu};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), choice.ordinal);
  if (failed != std::errc{} || end != text.data() + text.size() || choice.ordinal < 0) return {};
  return choice;
}

Result<std::shared_ptr<device::Device>> open_device(const std::optional<std::string>& text) {
  using Kind = DeviceChoice::Kind;
  auto choice = parse_device(text.value_or("auto"));
  if (!choice) return base::wrong_value("device", *text, kDevices);
  if (choice->kind == Kind::automatic || choice->kind == Kind::current_gpu) {
    if (const std::optional<int> current = device::current_cuda_device()) {
      *choice = {Kind::gpu, *current};
    } else if (choice->kind == Kind::automatic) {
      choice->kind = Kind::memory;
    } else {
      return Error{Errc::unsupported, "device=\"cuda\": there is no GPU: " + device::cuda_absent_reason() +
                                          "; device=\"cpu\" uses ordinary memory"};
    }
  }
  if (choice->kind == Kind::memory) return std::shared_ptr<device::Device>(device::make_host_device());
  return device::make_cuda_device(choice->ordinal);
}

}  // namespace ebb::options
