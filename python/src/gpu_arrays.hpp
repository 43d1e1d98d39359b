#pragma once
// Arrays of libraries that compute on GPUs, described without copying; also their arrays in host memory.
#include "arrays.hpp"

namespace ebb::python {

/// These raise as `describe` does, which selects one of them.
Leaf describe_torch(nb::handle tensor, const std::string& where, const Reach& reach);
Leaf describe_cupy(nb::handle array, const std::string& where, const Reach& reach);
/// An object whose `__cuda_array_interface__` is `gives`.
Leaf describe_interface(nb::handle object, nb::object gives, const std::string& where, Use use, const Reach& reach);

/// A DeviceArray of a loan or a reservation.
Leaf describe_lent(nb::handle object, const std::string& where, const Reach& reach);

/// Refuses an array on a GPU if the store has none.
void require_gpu(nb::handle object, const std::string& where, const Reach& reach, const std::string& more = {});

}  // namespace ebb::python
