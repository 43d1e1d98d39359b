#pragma once
#include "planner/ids.hpp"

namespace ebb::policy {

struct GrowthRange {
  Bytes offset = 0, length = 0;
  Bytes end() const { return offset + length; }
  bool operator==(const GrowthRange&) const = default;
};

}  // namespace ebb::policy
