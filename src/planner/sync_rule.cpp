#include "planner/sync_rule.hpp"

#include <algorithm>

#include "planner/checkpoint.hpp"

namespace ebb::planner {
namespace {

// The bytes for which a commit is asked though the disk is busy: a part of the pool, and enough that a sync costs
// little beside writing them.
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
