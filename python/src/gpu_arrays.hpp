#pragma once
// Arrays of libraries that compute on GPUs, described without copying; arrays of theirs in host memory too.
#include "arrays.hpp"

namespace ebb::python {

constexpr int kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13;  // DLPack's numbers of memories

/// They raise as `describe` does, which chooses among them.
Leaf describe_torch(nb::handle tensor, const std::string& where, const Reach& reach);
Leaf describe_cupy(nb::handle array, const std::string& where, const Reach& reach);
/// `ordinal`: of its GPU. What the producer still computes is ordered before the call's stream, on another GPU than the
/// store's before the legacy default stream there.
Leaf describe_gpu_dlpack(nb::handle object, int ordinal, const std::string& where, const Reach& reach);
/// What gives a `__cuda_array_interface__`.
Leaf describe_interface(nb::handle object, const std::string& where, const Reach& reach);

/// A DeviceArray that is on loan, or reserved.
Leaf describe_lent(nb::handle object, const std::string& where, const Reach& reach);

/// Refuses an array on a GPU where the store has none.
void require_gpu(nb::handle object, const std::string& where, const Reach& reach, const std::string& more = {});

}  // namespace ebb::python
