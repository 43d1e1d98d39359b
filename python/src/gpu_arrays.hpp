#pragma once
// Arrays of libraries that compute on GPUs, described without copying; arrays of theirs in host memory too.
#include "arrays.hpp"

namespace ebb::python {

/// They raise as `describe` does, which chooses among them.
Leaf describe_torch(nb::handle tensor, const std::string& where, const Reach& reach);
Leaf describe_cupy(nb::handle array, const std::string& where, const Reach& reach);
/// What gives `gives` as its `__cuda_array_interface__`.
Leaf describe_interface(nb::handle object, nb::object gives, const std::string& where, Use use, const Reach& reach);

/// A DeviceArray that is on loan, or reserved.
Leaf describe_lent(nb::handle object, const std::string& where, const Reach& reach);

/// Refuses an array on a GPU where the store has none.
void require_gpu(nb::handle object, const std::string& where, const Reach& reach, const std::string& more = {});

}  // namespace ebb::python
