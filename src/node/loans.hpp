#pragma once
// Which part of a process's share others may use meanwhile. A rule: no I/O here.
#include <array>
#include <cstdint>

namespace ebb::node {

/// A share, a run of slabs that its process uses from the front, is lent in quarters from its end. Between what the
/// process uses and what is lent there is always a quarter that is free, or is being returned, so that the process goes
/// on while others make room. The first quarter is never lent.
class Quarters {
 public:
  explicit Quarters(std::uint32_t share) : share_(share) {}

  /// Slabs of each; 0: the share is too small to be lent.
  std::uint32_t slabs() const { return share_ / 4; }
  /// Where those that can be lent begin in the share, the one that is lent first before the others.
  std::array<std::uint32_t, 3> starts() const { return {share_ - slabs(), share_ - 2 * slabs(), share_ - 3 * slabs()}; }
  /// Whether the quarter that begins there may be lent while the process uses `used` slabs. If not, it is recalled.
  bool lendable(std::uint32_t start, std::uint32_t used) const { return slabs() > 0 && used + slabs() <= start; }

 private:
  std::uint32_t share_;
};

}  // namespace ebb::node
