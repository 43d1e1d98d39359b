#include <array>
#include <string_view>

#include "device/cuda.hpp"
#include "device/cuda/driver.hpp"

namespace ebb::device {
namespace {

// Through the driver: the runtime would remember the context, which is destroyed again here.
std::uint64_t ask_free_bytes(const cuda::Driver& driver, int ordinal) {
  CUdevice device = 0;
  cuda::Context context{&driver, ordinal, nullptr};
  if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      driver.cuDevicePrimaryCtxRetain(&context.handle, device) != CUDA_SUCCESS) {
    return 0;
  }
  std::size_t free = 0, total = 0;
  {
    const cuda::Current current(context);
    if (current.error() != cudaSuccess || driver.cuMemGetInfo(&free, &total) != CUDA_SUCCESS) free = 0;
  }
  driver.cuDevicePrimaryCtxRelease(device);
  return free;
}

// The driver names a part of a GPU so: "NVIDIA H200 MIG 1g.18gb".
bool is_mig(int ordinal) {
  cudaDeviceProp properties;
  return cuda::forget(cudaGetDeviceProperties(&properties, ordinal)) == cudaSuccess &&
         std::string_view(properties.name).find(" MIG ") != std::string_view::npos;
}

}  // namespace

std::vector<CudaFound> find_cuda_devices(bool open) {
  const cuda::Driver* driver = cuda::driver();
  int count = 0;
  if (!driver || cuda::forget(cudaGetDeviceCount(&count)) != cudaSuccess) return {};
  std::vector<CudaFound> all;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    std::array<char, 32> pci{};
    if (cuda::forget(cudaGetDeviceProperties(&properties, ordinal)) != cudaSuccess) continue;
    cuda::forget(cudaDeviceGetPCIBusId(pci.data(), pci.size(), ordinal));
    CudaFound found{ordinal, properties.name, properties.totalGlobalMem, 0, pci.data()};
    if (open || cuda::has_context(*driver, ordinal)) found.free_bytes = ask_free_bytes(*driver, ordinal);
    all.push_back(std::move(found));
  }
  return all;
}

std::string cuda_absent_reason() {
  std::string why;
  cuda::driver(&why);
  return why;
}

std::optional<int> current_cuda_device() {
  int ordinal = 0;
  if (!cuda::driver() || cuda::forget(cudaGetDevice(&ordinal)) != cudaSuccess) return {};
  return ordinal;
}

// Through the driver: the runtime's call would open a context on the thread's current GPU.
std::optional<int> device_of_pointer(const void* pointer) {
  const cuda::Driver* driver = cuda::driver();
  if (!driver || !pointer) return {};
  unsigned type = 0, managed = 0;
  int ordinal = 0;
  std::array<CUpointer_attribute, 3> asked{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                           CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 3> answers{&type, &managed, &ordinal};
  const CUresult result = driver->cuPointerGetAttributes(asked.size(), asked.data(), answers.data(),
                                                         reinterpret_cast<CUdeviceptr>(pointer));
  if (result != CUDA_SUCCESS || (type != CU_MEMORYTYPE_DEVICE && !managed)) return {};
  return ordinal;
}

PeerLink cuda_peer_link(int from, int to) {
  if (!cuda::driver()) return {};
  int access = 0, atomics = 0;
  cuda::forget(cudaDeviceCanAccessPeer(&access, from, to));
  // Atomics on a peer's memory are native over NVLink, and never over PCIe.
  cuda::forget(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
  return {.mig = is_mig(from) || is_mig(to), .access = access != 0, .nvlink = atomics != 0};
}

}  // namespace ebb::device
