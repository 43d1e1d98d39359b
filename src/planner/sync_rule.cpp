#include "planner/sync_rule.hpp"

#include <algorithm>

#include "planner/checkpoint.hpp"

namespace ebb::planner {
namespace {

constexpr Bytes kCommitPart = 4;  // of the pool: for so much a commit is asked though the disk is busy
constexpr int kMostCommits = 2;

}  // namespace

Time sync_at(const Unsynced& waiting, Time last, Time interval) {
  if (!waiting.any) return kNever;
  return waiting.wanted || waiting.bytes >= kMostUnsynced ? last : last + interval;
}

Time commit_pool_at(const PoolWrites& writes, Bytes pool) {
  if (!writes.any || writes.commits >= kMostCommits) return kNever;
  if (writes.bytes >= std::max(pool / kCommitPart, writes.held / 2)) return writes.moved;
  return writes.moving ? kNever : writes.moved + kRest;
}

bool try_again(bool may_fit, Time last, Time now) { return may_fit || now - last >= kRetryAfter; }

}  // namespace ebb::planner
