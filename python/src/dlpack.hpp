#pragma once
// Arrays of any library that exports them by DLPack, in host memory and on GPUs.
#include "arrays.hpp"

namespace ebb::python {

constexpr int kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13;  // DLPack's device types

/// Raises as `describe` does; exceptions of the object's own methods propagate. On a GPU, the producer's pending work
/// is ordered before the call's stream; on another GPU than the store's, before the legacy default stream there.
/// Whether a target is writable must be proved: by the export (since version 1 it says whether it is read-only and
/// whether it is a copy; a second export shows whether it is the same memory), else by another protocol of the
/// object's.
Leaf describe_dlpack(nb::handle object, const std::string& where, Use use, const Reach& reach, Library library);

}  // namespace ebb::python
