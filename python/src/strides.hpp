#pragma once
// How the elements of an array are placed in memory, and how a checkpoint keeps them.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ebb::python {

/// The run of memory in which a checkpoint has an array's elements, each once and without gaps. Strides count elements:
/// 0 along an axis that repeats the others, negative along one that goes backwards.
struct RunOrder {
  std::vector<std::int64_t> strides;  ///< one an axis; none: C order
  std::int64_t first = 0;             ///< the place of the array's first element in the run
};

/// An array whose elements of `item` bytes are `steps` bytes apart along each axis.
struct Placement {
  RunOrder order;         ///< as in memory, if it is one run; else as it would be packed, its axes in the same order
  bool run = false;       ///< its memory is that run
  bool overlaps = false;  ///< elements share memory, or it takes counting all of them to know that none does
  std::int64_t elements = 1;  ///< of the run
  std::int64_t before = 0;    ///< bytes from its lowest element to its first
  std::int64_t bytes = 0;     ///< from its lowest element to the end of its highest
};

/// An array without elements is in C order, too.
bool in_c_order(std::span<const std::int64_t> shape, std::span<const std::int64_t> steps, std::int64_t item);

/// Of an array with elements, one step an axis.
Placement placement_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> steps, std::int64_t item);

/// The order with these strides, and how many elements its run has; none: they are no run.
std::optional<RunOrder> order_with(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);
std::int64_t elements_of(std::span<const std::int64_t> shape, const RunOrder& order);

/// Whether both put each element of an array at the same place.
bool same_order(std::span<const std::int64_t> shape, const RunOrder& a, const RunOrder& b);

}  // namespace ebb::python
