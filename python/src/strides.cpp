#include "strides.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

namespace ebb::python {
namespace {

bool repeats(std::int64_t length, std::int64_t step) { return length > 1 && step == 0; }

// The axes that do not repeat others, slowest first.
std::vector<std::size_t> axes_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> steps) {
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (!repeats(shape[i], steps[i])) axes.push_back(i);
  std::ranges::stable_sort(axes, std::ranges::greater(), [&](std::size_t i) { return std::abs(steps[i]); });
  return axes;
}

}  // namespace

bool in_c_order(std::span<const std::int64_t> shape, std::span<const std::int64_t> steps, std::int64_t item) {
  bool same = true;
  for (std::size_t i = shape.size(); i-- > 0;) {
    same = same && (shape[i] == 1 || steps[i] == item);
    item *= shape[i];
  }
  return same || item == 0;
}

Placement placement_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> steps, std::int64_t item) {
  const std::vector<std::size_t> axes = axes_of(shape, steps);
  Placement placement;
  placement.run = true;
  placement.overlaps = axes.size() < shape.size();
  placement.bytes = item;
  placement.order.strides.assign(shape.size(), 0);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const std::int64_t length = shape[*axis], step = std::abs(steps[*axis]);
    placement.order.strides[*axis] = placement.elements;
    if (length == 1) continue;
    placement.run = placement.run && step == placement.elements * item;
    placement.overlaps = placement.overlaps || step < placement.bytes;
    placement.elements *= length;
    placement.bytes += (length - 1) * step;
    if (steps[*axis] < 0) placement.before += (length - 1) * step;
  }
  if (placement.run) {
    placement.order.first = placement.before / item;
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (shape[i] > 1 || steps[i] % item == 0) placement.order.strides[i] = steps[i] / item;
  }
  if (in_c_order(shape, placement.order.strides, 1)) placement.order.strides.clear();
  return placement;
}

std::optional<RunOrder> order_with(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  if (strides.empty()) return RunOrder{};
  if (strides.size() != shape.size()) return std::nullopt;
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1 || strides[i] == std::numeric_limits<std::int64_t>::min()) return std::nullopt;
    if (!repeats(shape[i], strides[i]) && __builtin_mul_overflow(elements, shape[i], &elements)) return std::nullopt;
  }
  for (const std::size_t axis : axes_of(shape, strides)) {  // before anything is added up
    if (shape[axis] == 1) continue;
    elements /= shape[axis];
    if (std::abs(strides[axis]) != elements) return std::nullopt;
  }
  RunOrder order{{strides.begin(), strides.end()}, 0};
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (strides[i] < 0) order.first -= (shape[i] - 1) * strides[i];
  return order;
}

std::int64_t elements_of(std::span<const std::int64_t> shape, const RunOrder& order) {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (order.strides.empty() || !repeats(shape[i], order.strides[i])) elements *= shape[i];
  return elements;
}

bool same_order(std::span<const std::int64_t> shape, const RunOrder& a, const RunOrder& b) {
  if (a.strides.empty() || b.strides.empty()) return a.strides.empty() && b.strides.empty();
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

}  // namespace ebb::python
