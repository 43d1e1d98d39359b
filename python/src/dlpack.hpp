#pragma once
// Arrays of any library that exports them by DLPack, in host memory and on GPUs.
#include "arrays.hpp"

namespace ebb::python {

constexpr int kDlCpu = 1, kDlCuda = 2, kDlCudaHost = 3, kDlCudaManaged = 13;  // DLPack's numbers of memories

/// Raises as `describe` does; what the object's own methods raise comes through. On a GPU, what the producer still
/// computes is ordered before the call's stream; on another GPU than the store's, before the legacy default stream
/// there. A target's `writable` is proved: by the export (version 1 or later says whether it is read-only, and whether
/// it is a copy; a second one shows whether it is the same memory), else by another protocol of the object's.
Leaf describe_dlpack(nb::handle object, const std::string& where, Use use, const Reach& reach, Library library);

/// Packs an array in host memory that was described with gaps.
Leaf packed_dlpack(const Leaf& leaf, const std::string& where);

}  // namespace ebb::python
