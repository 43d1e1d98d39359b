#pragma once
// Which stream a call is ordered on: the one given, or the current one of the library whose arrays they are.
#include "state.hpp"

namespace ebb::python {

/// None, a handle as an int, a stream of PyTorch's or CuPy's, or anything with `__cuda_stream__`. Raises
/// invalid_argument.
std::optional<StreamHandle> to_stream(nb::handle stream);

/// The stream to order a call over `bundle` on; none: the call blocks until the bytes are copied, and what libraries
/// had under way on the arrays is over. Raises invalid_argument when the arrays' streams differ, or when a stream was
/// given for arrays in host memory; unsupported when one is being captured that would be waited for. `may_order` false:
/// there is no such stream.
std::optional<StreamHandle> stream_for(State& state, const Bundle& bundle, const Reach& reach, bool may_order = true);

}  // namespace ebb::python
