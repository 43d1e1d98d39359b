// A build without CUDA.
#include "device/cuda.hpp"

namespace ebb::device {

std::vector<CudaFound> find_cuda_devices(bool) { return {}; }
std::string cuda_absent_reason() { return "this build is without CUDA (no toolkit was found, or EBB_CUDA=OFF)"; }
std::optional<int> current_cuda_device() { return {}; }
std::optional<int> device_of_pointer(const void*) { return {}; }

namespace {

Error no_device(int ordinal) {
  return {Errc::unsupported, "there is no device cuda:" + std::to_string(ordinal) + ": " + cuda_absent_reason()};
}

}  // namespace

Result<std::shared_ptr<Device>> make_cuda_device(int ordinal) { return no_device(ordinal); }
Result<std::unique_ptr<PeerFabric>> make_cuda_fabric(int ordinal) { return no_device(ordinal); }
PeerLink cuda_peer_link(int, int) { return {}; }

}  // namespace ebb::device
