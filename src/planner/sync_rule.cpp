#include "planner/sync_rule.hpp"

#include <algorithm>

#include "planner/checkpoint.hpp"

namespace ebb::planner {
namespace {

// What waits for a commit alone: so much of the pool, and so much that a sync costs little beside its writing.
constexpr Bytes kCommitPart = 8, kCommitLeast = Bytes{128} << 20;

}  // namespace

Time sync_at(const Unsynced& waiting, Time last, Time interval) {
  if (!waiting.any) return kNever;
  return waiting.wanted || waiting.bytes >= kMostUnsynced ? last : last + interval;
}

bool commit_pool(const PoolWrites& writes, Bytes pool) {
  if (!writes.any || writes.commits) return false;
  return !writes.moving || writes.bytes >= std::max(pool / kCommitPart, kCommitLeast);
}

bool try_again(bool may_fit, Time last, Time now) { return may_fit || now - last >= kRetryAfter; }

}  // namespace ebb::planner
