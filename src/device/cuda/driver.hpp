#pragma once
// What the CUDA files share: the driver calls that the runtime has no equivalent of, looked up on first use and never
// linked, and the scope in which a GPU's context is current.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::device::cuda {

/// "cudaErrorMemoryAllocation (out of memory)".
std::string describe(cudaError_t error);
/// Clears a call's error, so that the program, which may share our CUDA runtime, does not see it as its own.
inline cudaError_t forget(cudaError_t error) noexcept {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}
/// The driver's codes equal the runtime's, as far as we use them.
inline cudaError_t of(CUresult result) noexcept { return static_cast<cudaError_t>(result); }
/// The driver has shut down, or the context is destroyed: the process is exiting, and no work is left to wait for.
inline bool gone(cudaError_t error) noexcept {
  return error == cudaErrorCudartUnloading || error == cudaErrorContextIsDestroyed;
}

struct Driver {
  PFN_cuInit_v2000 cuInit;
  PFN_cuDeviceGet_v2000 cuDeviceGet;
  PFN_cuDeviceGetAttribute_v2000 cuDeviceGetAttribute;
  PFN_cuDevicePrimaryCtxRetain_v7000 cuDevicePrimaryCtxRetain;
  PFN_cuDevicePrimaryCtxRelease_v11000 cuDevicePrimaryCtxRelease;
  PFN_cuDevicePrimaryCtxGetState_v7000 cuDevicePrimaryCtxGetState;
  PFN_cuCtxGetCurrent_v4000 cuCtxGetCurrent;
  PFN_cuCtxPushCurrent_v4000 cuCtxPushCurrent;
  PFN_cuCtxPopCurrent_v4000 cuCtxPopCurrent;
  PFN_cuThreadExchangeStreamCaptureMode_v10010 cuThreadExchangeStreamCaptureMode;
  PFN_cuMemGetInfo_v3020 cuMemGetInfo;
  PFN_cuMemAddressReserve_v10020 cuMemAddressReserve;
  PFN_cuMemAddressFree_v10020 cuMemAddressFree;
  PFN_cuMemCreate_v10020 cuMemCreate;
  PFN_cuMemRelease_v10020 cuMemRelease;
  PFN_cuMemMap_v10020 cuMemMap;
  PFN_cuMemUnmap_v10020 cuMemUnmap;
  PFN_cuMemSetAccess_v10020 cuMemSetAccess;
  PFN_cuMemExportToShareableHandle_v10020 cuMemExportToShareableHandle;
  PFN_cuMemImportFromShareableHandle_v10020 cuMemImportFromShareableHandle;
  PFN_cuMemGetAllocationPropertiesFromHandle_v10020 cuMemGetAllocationPropertiesFromHandle;
  PFN_cuPointerGetAttributes_v7000 cuPointerGetAttributes;
};

/// The driver, if there is at least one GPU; otherwise null, and `why` says the reason.
const Driver* driver(std::string* why = nullptr);
/// Whether this process already uses a GPU.
bool has_context(const Driver& driver, int ordinal);

/// A GPU's primary context: the one that the CUDA runtime, and so the whole process, uses. Never released, as in the
/// runtime itself: the last release would destroy it while others use it through the runtime.
struct Context {
  const Driver* driver = nullptr;
  int ordinal = 0;
  CUcontext handle = nullptr;

  static Result<Context> retain(int ordinal);
};

/// While it lives, a context is current on the calling thread and the thread's capture mode is relaxed; then both are
/// restored.
///
/// Pushed and popped instead of set by cudaSetDevice: restoring "device 0" on a thread that never chose one would open
/// a context of some hundred megabytes on GPU 0.
///
/// Relaxed, because any unsafe call by any thread (allocations, event queries, registrations) would invalidate a graph
/// capture of the program's in the default (global) mode. Our calls are unrelated to the capture, and
/// streams that are being captured are refused first (Device::capturing). Both cost some tens of nanoseconds.
class Current {
 public:
  explicit Current(const Context& context) noexcept;
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  /// Not cudaSuccess: the context could not be made current.
  cudaError_t error() const noexcept { return error_; }

 private:
  const Context& context_;
  cudaError_t error_ = cudaSuccess;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool pushed_ = false, exchanged_ = false;
};

}  // namespace ebb::device::cuda
