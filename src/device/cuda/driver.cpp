#include "device/cuda/driver.hpp"

namespace ebb::device::cuda {
namespace {

struct Loaded {
  Driver driver{};
  std::string missing;  // empty: nothing
};

template <class Function>
void look_up(Loaded& loaded, Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif
  forget(error);
  if (error != cudaSuccess || status != cudaDriverEntryPointSuccess || !found) {
    if (loaded.missing.empty()) loaded.missing = std::string("the CUDA driver has no ") + name;
    return;
  }
  function = reinterpret_cast<Function>(found);
}

// 12040 is "12.4".
std::string release(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

Loaded load() {
  Loaded loaded;
  int version = 0;
  if (forget(cudaDriverGetVersion(&version)) != cudaSuccess || version == 0) {
    loaded.missing = "no CUDA driver is installed";
    return loaded;
  }
  int count = 0;
  if (const cudaError_t error = forget(cudaGetDeviceCount(&count)); error != cudaSuccess || count == 0) {
    loaded.missing = error == cudaSuccess ? "the CUDA driver found no GPU" : describe(error);
    if (error == cudaErrorInsufficientDriver) {
      loaded.missing = "the driver is for CUDA " + release(version) + ", too old for the CUDA " +
                       release(CUDART_VERSION) + " that ebbtide was built with; update the driver";
    }
    return loaded;
  }
  Driver& driver = loaded.driver;
#define EBB_LOOK_UP(name) look_up(loaded, driver.name, #name)
  EBB_LOOK_UP(cuInit);
  EBB_LOOK_UP(cuDeviceGet);
  EBB_LOOK_UP(cuDeviceGetAttribute);
  EBB_LOOK_UP(cuDevicePrimaryCtxRetain);
  EBB_LOOK_UP(cuDevicePrimaryCtxRelease);
  EBB_LOOK_UP(cuDevicePrimaryCtxGetState);
  EBB_LOOK_UP(cuCtxGetCurrent);
  EBB_LOOK_UP(cuCtxPushCurrent);
  EBB_LOOK_UP(cuCtxPopCurrent);
  EBB_LOOK_UP(cuThreadExchangeStreamCaptureMode);
  EBB_LOOK_UP(cuMemGetInfo);
  EBB_LOOK_UP(cuMemAddressReserve);
  EBB_LOOK_UP(cuMemAddressFree);
  EBB_LOOK_UP(cuMemCreate);
  EBB_LOOK_UP(cuMemRelease);
  EBB_LOOK_UP(cuMemMap);
  EBB_LOOK_UP(cuMemUnmap);
  EBB_LOOK_UP(cuMemSetAccess);
  EBB_LOOK_UP(cuMemExportToShareableHandle);
  EBB_LOOK_UP(cuMemImportFromShareableHandle);
  EBB_LOOK_UP(cuMemGetAllocationPropertiesFromHandle);
  EBB_LOOK_UP(cuPointerGetAttributes);
#undef EBB_LOOK_UP
  if (!loaded.missing.empty()) return loaded;
  if (const CUresult result = driver.cuInit(0); result != CUDA_SUCCESS) loaded.missing = describe(of(result));
  return loaded;
}

}  // namespace

std::string describe(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

const Driver* driver(std::string* why) {
  // Never destroyed: devices may outlive static objects.
  static const Loaded& loaded = *new Loaded(load());
  if (loaded.missing.empty()) return &loaded.driver;
  if (why) *why = loaded.missing;
  return nullptr;
}

bool has_context(const Driver& driver, int ordinal) {
  CUdevice device = 0;
  unsigned flags = 0;
  int active = 0;
  return driver.cuDeviceGet(&device, ordinal) == CUDA_SUCCESS &&
         driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

Result<Context> Context::retain(int ordinal) {
  const std::string refused = "there is no device cuda:" + std::to_string(ordinal) + ": ";
  std::string why;
  Context context{cuda::driver(&why), ordinal, nullptr};
  if (!context.driver) return Error{Errc::unsupported, refused + why};
  CUdevice device = 0;
  int count = 0;
  if (forget(cudaGetDeviceCount(&count)) != cudaSuccess || ordinal < 0 || ordinal >= count ||
      context.driver->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS) {
    return Error{Errc::unsupported,
                 refused + "this process sees " + std::to_string(count) + " GPU(s), numbered from 0"};
  }
  if (const CUresult result = context.driver->cuDevicePrimaryCtxRetain(&context.handle, device);
      result != CUDA_SUCCESS) {
    return Error{result == CUDA_ERROR_OUT_OF_MEMORY ? Errc::out_of_memory : Errc::unsupported,
                 "cannot open a context on cuda:" + std::to_string(ordinal) + ": " + describe(of(result))};
  }
  return context;
}

Current::Current(const Context& context) noexcept : context_(context) {
  CUcontext now = nullptr;
  error_ = of(context.driver->cuCtxGetCurrent(&now));
  if (error_ == cudaSuccess && now != context.handle) {
    error_ = of(context.driver->cuCtxPushCurrent(context.handle));
    pushed_ = error_ == cudaSuccess;
  }
  if (error_ == cudaSuccess) exchanged_ = context.driver->cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

Current::~Current() {
  if (exchanged_) context_.driver->cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  if (pushed_) context_.driver->cuCtxPopCurrent(&popped);
}

}  // namespace ebb::device::cuda
