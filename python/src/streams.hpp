#pragma once
// The stream that orders a call: the given one, or the current one of the arrays' library.
#include "state.hpp"

namespace ebb::python {

/// None, a handle as an int, a stream of PyTorch's or CuPy's, or anything with `__cuda_stream__`. Raises
/// invalid_argument.
std::optional<StreamHandle> to_stream(nb::handle stream);

/// The stream that orders a call over `bundle`; none: the call blocks until the bytes are copied, after the libraries'
/// pending work on the arrays. Raises invalid_argument when the arrays' streams differ, or when a stream was given for
/// arrays in host memory; unsupported when a stream to wait for is being captured. `may_order` false: never returns a
/// stream. `mixed`: arrays in host memory are beside the point.
std::optional<StreamHandle> stream_for(StoreState& state, const Bundle& bundle, const Reach& reach,
                                       bool may_order = true, bool mixed = false);

}  // namespace ebb::python
