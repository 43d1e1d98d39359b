#pragma once
// Numbers of the caller's. Each raises invalid_argument naming the argument, what was given and what would be right;
// what the objects' own methods raise comes through.
#include <cstdint>
#include <nanobind/nanobind.h>
#include <vector>

#include "ebbtide/store.hpp"

namespace ebb::python {

namespace nb = nanobind;

Version to_version(nb::handle version);

/// An iterable of versions, which the caller calls `name`.
std::vector<Version> to_versions(nb::handle versions, const char* name);

/// Lengths of the axes of an array of elements of `item` bytes: an int, or an iterable of ints.
std::vector<std::int64_t> to_shape(nb::handle shape, std::size_t item);

}  // namespace ebb::python
