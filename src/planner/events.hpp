#pragma once
// What happens, as the planner learns of it: an event is its time, its client and one of the values below.
//
// The application's events come first, then those of the driver. A call carries its `request` and gets exactly one
// Answer.
#include <variant>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::planner::event {

// --- calls: each gets one Answer -----------------------------------------------------------------------------------

// `ordered`: the application's copies are enqueued on a stream of its own behind what that holds already. How long they
// take says nothing of the link, they pass a staging ring only once the stream is ready, and what such a stream was
// given is not given again (the caller's memory is no longer what it was).
struct Checkpoint {
  RequestId request = 0;
  Version version = 0;
  Bytes bytes = 0;
  Time timeout = 0;  // for room; kNever: no limit
  bool ordered = false;
};

// Answered with a place on tier 0, into which the application computes.
struct Reserve {
  RequestId request = 0;
  Version version = 0;
  Bytes bytes = 0;
  Time timeout = 0;
};

// A Reserve of the program's own memory at `place` (from kAdopted on), which has the bytes when it is committed. The
// answer's place is that one if TierSpec::adopted has room for it, else as a Reserve's. A Freed says when the memory is
// used no more.
struct Adopt {
  RequestId request = 0;
  Version version = 0;
  Bytes bytes = 0;
  Time timeout = 0;
  Bytes place = 0;
};

struct Restore {
  RequestId request = 0;
  Version version = 0;
  bool keep = false;  // it does not consume the version
  bool ordered = false;
};

// Answered with a place on tier 0, which the application reads.
struct Borrow {
  RequestId request = 0;
  Version version = 0;
  Time timeout = 0;
};

// Answered when the version is complete on `tier` or below.
struct Wait {
  RequestId request = 0;
  Version version = 0;
  TierIndex tier = kNoTier;
};

// Answered when all that the client has written is complete on `tier` or below.
struct WaitAll {
  RequestId request = 0;
  TierIndex tier = kNoTier;
};

// --- what becomes of a call: `request` is that of the call ----------------------------------------------------------

// For an ordered restore: its call has returned with every copy on the stream, and the version is consumed now.
// For a reserve or borrow: the application is done with it, while its memory is still in use. A reserved version counts
// as being written until its commit; a borrowed one is released (`keep`) and only its memory waits for the Release.
struct Submit {
  RequestId request = 0;
  bool keep = false;
  bool by_stream = false;  // the end comes by itself, with a stream of the application; false takes that back
};

// The bytes of a reserve are complete.
struct Commit {
  RequestId request = 0;
  bool in_use = false;  // its memory is in use until a Release
};

// A reserve is forgotten.
struct Abandon {
  RequestId request = 0;
};

// A borrow ends, or the use of a reserve's memory after its commit.
struct Release {
  RequestId request = 0;
  bool keep = false;
};

// Answer the call `cancelled` now, unless it has been answered.
struct Cancel {
  RequestId request = 0;
};

// The stream of an ordered call has done all that it held before the call.
struct Ready {
  RequestId request = 0;
};

// --- the application's plans ----------------------------------------------------------------------------------------

// Restores to come, after those hinted so far (`replace`: in their place).
struct Hint {
  bool replace = false;
  std::vector<Version> versions;
};

// One restore, before all that are hinted.
struct HintFront {
  Version version = 0;
};

// Withdraws the first hint of each.
struct Unhint {
  std::vector<Version> versions;
};

struct UnhintAll {};

struct StartPrefetch {};

// Whether the client restores its versions in the reverse of the order in which it writes them: each is hinted as it
// is written, before all that are hinted.
struct Order {
  bool reverse = false;
};

// Of the client's versions, those up to this one are durable in every process that checkpoints along with this one; -1:
// none is. See Retention::agreed.
struct Agreed {
  Version version = 0;
};

// The version goes on to lower files to which not all go (TierSpec::every).
struct Goes {
  Version version = 0;
};

struct Drop {
  Version version = 0;
};

struct DropAll {};

// The client, of which Planner::idle() says true, ends: its number may be given to another.
struct Forget {};

// --- from the driver ------------------------------------------------------------------------------------------------

// A checkpoint that an earlier process left, complete in the tier's file, which need not have room for it. Nothing is
// moved. Never sent for a version that exists.
struct Recovered {
  Version version = 0;
  Bytes bytes = 0;
  TierIndex tier = kNoTier;
};

// A version that is complete in the tier's file is durable there, as the store promises. Of a recovered one: all of it
// was read, and it is intact.
struct Durable {
  Version version = 0;
  TierIndex tier = kNoTier;
};

// A version is not durable in the tier's file, and may be incomplete: writing it is tried again, or never will be.
struct NotDurable {
  Version version = 0;
  TierIndex tier = kNoTier;
};

// Of all that was freed in the tier's file so far, so many bytes have yet to be given back to the disk.
struct Unreleased {
  Bytes bytes = 0;
  TierIndex tier = kNoTier;
};

// The command's link is done with it; what was read has yet to be checked. Its end follows.
struct Carried {
  CommandId command = 0;
};

struct Finished {
  CommandId command = 0;
};

struct Failed {
  enum Cause : std::uint8_t {
    passing,  // trying again may help
    no_room,  // the target is full, or there was no memory to read with: nothing is wrong with the source
    source,   // what was read is damaged, or will never be there
  };
  CommandId command = 0;
  Cause cause = passing;
};

// Memory that is lent to a tier: a new segment, with the next number (a tier begins with segment 0), or an old
// one of which `bytes`, no fewer than now, can be used again. A segment's bytes follow those of the segments before it.
struct Lend {
  TierIndex tier = kNoTier;
  SegmentId segment = 0;
  Bytes bytes = 0;
  PartyId lender = 0;   // 0: it is not known
  bool relays = false;  // copies between it and host memory take no time of the links of the application's device
};

// From now on, of the time at which a link would carry them at its first estimate, copies to and from the memory of a
// lender may take this share, in millionths. kWholeLink: all of it, as before the first of these events.
struct Limit {
  PartyId lender = 0;
  std::uint32_t share = kWholeLink;
};

// A segment ends after `bytes`, no later than now. What is placed beyond leaves: a copy at once, the only one when it
// has been moved, which is urgent if there is a deadline. Output::returned says when nothing is there any more.
// A command that was given already and writes beyond is reported, in the order given: Finished if that memory is there,
// else Failed with no_room, and then nothing of it, nor of what comes `after` it, has begun.
struct Recall {
  TierIndex tier = kNoTier;
  SegmentId segment = 0;
  Bytes bytes = 0;
  Time deadline = kNever;  // when the lender will take it; kNever: it waits
};

// A segment's memory is gone, with all that was in it, and is never lent again. Commands given already are reported as
// ever, whatever became of them.
struct Lost {
  TierIndex tier = kNoTier;
  SegmentId segment = 0;
};

// Tells the time, and no more.
struct Tick {};

using Any = std::variant<Tick, Checkpoint, Reserve, Adopt, Restore, Borrow, Wait, WaitAll, Submit, Commit, Abandon,
                         Release, Cancel, Ready, Hint, HintFront, Unhint, UnhintAll, StartPrefetch, Order, Agreed, Goes,
                         Drop, DropAll, Forget, Recovered, Durable, NotDurable, Unreleased, Carried, Finished, Failed,
                         Lend, Limit, Recall, Lost>;

}  // namespace ebb::planner::event

namespace ebb::planner {

struct Event {
  Time now = 0;
  HistoryId client = 0;  // 0: the store itself
  event::Any what;
};

}  // namespace ebb::planner
