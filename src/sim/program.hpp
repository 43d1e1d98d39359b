#pragma once
// The application: for each client (a thread) a list of operations, executed in sequence.
#include <vector>

#include "sim/machine.hpp"

namespace ebb::sim {

struct Op {
  enum class Kind : std::uint8_t {
    checkpoint,  // version, bytes, time = timeout
    reserve,     // version, bytes, time = timeout, flag = in memory of the program; then commit or abandon
    commit,
    abandon,     // version; nothing if there is no open reservation
    restore,     // version, flag = keep
    borrow,      // version; then release
    release,     // version, flag = keep; nothing if there is no open borrow
    hint,        // versions, flag = replace
    hint_front,  // version
    unhint,      // versions; empty = all
    start_prefetch,
    drop,       // version, flag = the whole history
    recovered,  // version, bytes: in the file from an earlier run; nothing if the version exists, or there is no file
    wait,       // version, flag = the whole history, tier
    sleep,      // time: the program computes
    join,       // until every asynchronous call of this client is answered
    barrier,    // until every client of every rank with barriers left has reached one
    break_link,
    mend_link,  // link: its transfers fail permanently from now on; or work again
    lend,    // tier, segment, bytes, lender, relays: of a new segment, or a new size of an old one; nothing if it does
             // not grow
    limit,   // lender, share: event::Limit
    recall,  // tier, segment, bytes, time = deadline: its new size; replicas beyond it at the deadline are lost.
             // Nothing if it does not shrink
    lose,    // tier, segment: its memory is gone
  };
  Kind kind = Kind::sleep;
  Version version = 0;
  Bytes bytes = 0;
  Time time = 0;
  Time deadline = 0;  // > 0: the call is cancelled if it is unanswered this long after it began
  TierIndex tier = planner::kNoTier;
  planner::SegmentId segment = 0;
  planner::PartyId lender = 0;
  bool relays = false;
  std::uint32_t share = planner::kWholeLink;
  bool flag = false;
  bool async = false;  // the client continues at once (checkpoint, restore, wait)
  // checkpoint, restore, commit, release: ordered after the work on the client's stream, which first computes for
  // `kernel`; the call returns when its copies are on the stream.
  bool ordered = false;
  Time kernel = 0;
  int link = -1;
  std::vector<Version> versions;
};

namespace op {
inline Op checkpoint(Version v, Bytes bytes, Time timeout = 0) {
  return {.kind = Op::Kind::checkpoint, .version = v, .bytes = bytes, .time = timeout, .versions = {}};
}
inline Op reserve(Version v, Bytes bytes, Time timeout = 0) {
  return {.kind = Op::Kind::reserve, .version = v, .bytes = bytes, .time = timeout, .versions = {}};
}
inline Op adopt(Version v, Bytes bytes, Time timeout = 0) {
  return {.kind = Op::Kind::reserve, .version = v, .bytes = bytes, .time = timeout, .flag = true, .versions = {}};
}
inline Op commit(Version v) { return {.kind = Op::Kind::commit, .version = v, .versions = {}}; }
inline Op abandon(Version v) { return {.kind = Op::Kind::abandon, .version = v, .versions = {}}; }
inline Op restore(Version v, bool keep = false) {
  return {.kind = Op::Kind::restore, .version = v, .flag = keep, .versions = {}};
}
inline Op borrow(Version v) { return {.kind = Op::Kind::borrow, .version = v, .versions = {}}; }
inline Op release(Version v, bool keep = false) {
  return {.kind = Op::Kind::release, .version = v, .flag = keep, .versions = {}};
}
inline Op hint(std::vector<Version> order, bool replace = false) {
  return {.kind = Op::Kind::hint, .flag = replace, .versions = std::move(order)};
}
inline Op hint_front(Version v) { return {.kind = Op::Kind::hint_front, .version = v, .versions = {}}; }
inline Op unhint(std::vector<Version> versions = {}) {
  return {.kind = Op::Kind::unhint, .versions = std::move(versions)};
}
inline Op start_prefetch() { return {.kind = Op::Kind::start_prefetch, .versions = {}}; }
inline Op drop(Version v) { return {.kind = Op::Kind::drop, .version = v, .versions = {}}; }
inline Op drop_all() { return {.kind = Op::Kind::drop, .flag = true, .versions = {}}; }
// On the fastest file tier that keeps, or on `tier`.
inline Op recovered(Version v, Bytes bytes, TierIndex tier = planner::kNoTier) {
  return {.kind = Op::Kind::recovered, .version = v, .bytes = bytes, .tier = tier, .versions = {}};
}
inline Op wait(Version v, TierIndex tier) {
  return {.kind = Op::Kind::wait, .version = v, .tier = tier, .versions = {}};
}
inline Op wait_all(TierIndex tier) { return {.kind = Op::Kind::wait, .tier = tier, .flag = true, .versions = {}}; }
inline Op sleep(Time dt) { return {.kind = Op::Kind::sleep, .time = dt, .versions = {}}; }
inline Op join() { return {.kind = Op::Kind::join, .versions = {}}; }
inline Op barrier() { return {.kind = Op::Kind::barrier, .versions = {}}; }
inline Op break_link(int link) { return {.kind = Op::Kind::break_link, .link = link, .versions = {}}; }
inline Op mend_link(int link) { return {.kind = Op::Kind::mend_link, .link = link, .versions = {}}; }
inline Op lend(TierIndex tier, planner::SegmentId segment, Bytes bytes, planner::PartyId lender = 0,
               bool relays = false) {
  return {.kind = Op::Kind::lend,
          .bytes = bytes,
          .tier = tier,
          .segment = segment,
          .lender = lender,
          .relays = relays,
          .versions = {}};
}
inline Op limit(planner::PartyId lender, std::uint32_t share) {
  return {.kind = Op::Kind::limit, .lender = lender, .share = share, .versions = {}};
}
// Recalls a segment's memory beyond `bytes`, which must be returned within `deadline`; by default the lender waits.
inline Op recall(TierIndex tier, planner::SegmentId segment, Bytes bytes, Time deadline = planner::kNever) {
  return {.kind = Op::Kind::recall, .bytes = bytes, .time = deadline, .tier = tier, .segment = segment, .versions = {}};
}
inline Op lose(TierIndex tier, planner::SegmentId segment) {
  return {.kind = Op::Kind::lose, .tier = tier, .segment = segment, .versions = {}};
}
}  // namespace op

struct Program {
  HistoryId history = 0;
  Time start = 0;
  std::vector<Op> ops;
};

// The papers' shot (hpdc23 sec. 5.3): one pass writes a history, the other reads it.
struct Shot {
  enum class Order : std::uint8_t { reverse, sequential, irregular };
  enum class Hints : std::uint8_t { all, one, none };
  std::vector<Bytes> sizes;  // of each version
  Order order = Order::reverse;
  Hints hints = Hints::all;             // all: before the first checkpoint; one: each just before the restore before it
  Time interval = 10'000'000;           // computing before each checkpoint and each restore ...
  std::vector<Time> forward, backward;  // ... or as actually slept, one per iteration
  bool compute_after_restore = false;   // the backward pass computes after each restore, not before it
  bool wait = false;                    // for every flush between the passes
  bool barriers = false;                // before each call (ranks in step)
  std::uint64_t seed = 1;               // of the irregular order

  std::vector<Version> restore_order() const;
  std::vector<Version> given_order;  // irregular as given by the caller, if not empty
  static Shot equal(std::size_t n, Bytes bytes);
};

Program program_of(const Shot& shot, TierIndex lowest_tier, HistoryId history = 0);

}  // namespace ebb::sim
