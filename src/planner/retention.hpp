#pragma once
// Which versions of a history newer ones make up for: the rule of `keep_last` and `keep_every`.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/topology.hpp"

namespace ebb::planner {

struct Retained {
  Version version = 0;
  bool counts = false;        // it is known to be safe and intact; what is not makes up for nothing
  bool newest_write = false;  // nothing that is newer was written after it: it stays
};

/// A version with `keep_last` newer ones that count.
struct Dispensable {
  std::size_t place = 0;  // in what was asked about
  bool goes = false;      // false: a multiple of `keep_every`
};

/// Whether it is one that stays, however many newer ones there are.
bool is_multiple(const Retention& how, Version version);

/// Of the versions of one history, descending: those that newer ones make up for.
std::vector<Dispensable> dispensable(const Retention& how, std::span<const Retained> newest_first);

}  // namespace ebb::planner
