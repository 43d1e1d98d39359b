#pragma once
// The application's calls until they are answered, and what it was granted until it gives that back.
#include <unordered_set>

#include "planner/checkpoint.hpp"

namespace ebb::policy {

struct Request {
  RequestId id = 0;
  enum class Kind : std::uint8_t { checkpoint, reserve, restore, borrow } kind = Kind::checkpoint;
  Slot checkpoint = 0;
  Time since = 0, deadline = kNever;
  Time fallback = kNever;  // when waiting for room gives way to a direct path
  bool keep = false, waiting = false, cancelled = false, hint_taken = false;
  bool ordered = false, ready = false;
  std::uint32_t excluded = 0;  // tiers (bits) that failed it
  Bytes restored = 0;          // bytes that earlier sources delivered
  TierIndex found_on = kNoTier;
  std::uint32_t distance = 0;
  MoveIndex move = kNoMove;
};

struct Wait {
  RequestId id = 0;
  HistoryId history = 0;
  TierIndex tier = kNoTier;
  std::unordered_set<Slot> open;
};

// A granted reservation or borrow.
struct Hold {
  Slot checkpoint = 0;
  bool ending = false;       // by itself, with a stream
  bool memory_only = false;  // committed, or given back: only its memory is still in use
};

}  // namespace ebb::policy
