#pragma once
#include "planner/ids.hpp"

namespace ebb::policy {

struct ByteRange {
  Bytes offset = 0, length = 0;
  Bytes end() const { return offset + length; }
  bool operator==(const ByteRange&) const = default;
};

}  // namespace ebb::policy
