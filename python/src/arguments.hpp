#pragma once
// Numbers from the caller. Each function raises invalid_argument naming the argument, the value and what is expected;
// exceptions of the objects' own methods propagate.
#include <cstdint>
#include <nanobind/nanobind.h>
#include <vector>

#include "ebbtide/store.hpp"

namespace ebb::python {

namespace nb = nanobind;

Version to_version(nb::handle version);

/// An iterable of versions, which the caller calls `name`.
std::vector<Version> to_versions(nb::handle versions, const char* name);

/// Axis lengths of an array of elements of `item` bytes: an int, or an iterable of ints.
std::vector<std::int64_t> to_shape(nb::handle shape, std::size_t item);

}  // namespace ebb::python
