#pragma once
// Which versions of a history newer ones make up for: the rule of `keep_last` and `keep_every`.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "policy/types.hpp"

namespace ebb::policy {

struct Retention {
  std::uint64_t keep_last = 0;    // 0: all stay
  std::uint64_t keep_every = 0;   // multiples of it stay; 0: none for that
};

struct Retained {
  Version version = 0;
  bool counts = false;            // it is known to be safe and intact; what is not makes up for nothing
};

/// A version with `keep_last` newer ones that count.
struct Dispensable {
  std::size_t place = 0;          // in what was asked about
  bool goes = false;              // false: a multiple of `keep_every`
};

/// Of the versions of one history, descending: those below `below` that newer ones make up for.
std::vector<Dispensable> dispensable(const Retention& how, std::span<const Retained> newest_first,
                                     Version below = std::numeric_limits<Version>::max());

}  // namespace ebb::policy
