#pragma once
// What the planner gives for an event: commands for the links, answers to calls, and what became of checkpoints.
#include <string>
#include <vector>

#include "planner/topology.hpp"

namespace ebb::planner {

// Where bytes are: `offset` counts from the tier's first byte (memory tiers), from the ring's (ring), or from the
// checkpoint's first byte (application, file tiers).
struct Place {
  Endpoint at;
  Bytes offset = 0;
};

// Moves `length` bytes of `checkpoint`, beginning at its byte `offset`. Lengths are exact. Rings and file places have
// room up to the granule, so that a driver may round up; a place in memory has room up to its footprint. One command of
// a link after the other, in the order given. Every command ends with exactly one `finished` or `failed` event; until
// then neither place is used for anything else.
struct Command {
  CommandId id = 0;
  int link = 0;
  CheckpointRef checkpoint;
  RequestId request = 0;  // of the call whose memory is read or written, when one endpoint is the application
  Bytes offset = 0;
  Bytes length = 0;
  Bytes total = 0;  // of the checkpoint
  Place from, to;
  // A copy in stream order may read what is still being brought: this command (none: 0) has been ordered, writes the
  // last of those bytes, and the device makes the copy wait for it.
  CommandId after = 0;
};

// Bytes that hold nothing any more; a driver acts on these before the commands of the same output (a file tier: drop
// the object; the double of a memory tier: poison the range).
struct Freed {
  TierIndex tier = kNoTier;
  CheckpointRef checkpoint;
  Bytes offset = 0;  // memory tiers
  Bytes length = 0;
  // The checkpoint was complete and could not be read, so that it is discarded (only unless Machine::ephemeral): a
  // driver leaves the bytes in the file as they are.
  bool failed = false;
};

enum class Reason : std::uint8_t {
  ok,
  version_exists,
  unknown_version,
  consumed,
  too_large,
  no_space,
  lost,
  dropped,
  cancelled,
  no_such_tier,
};
const char* name_of(Reason reason);

struct Answer {
  RequestId request = 0;
  Reason reason = Reason::ok;
  Place place = {};  // reserve, borrow
  CheckpointRef checkpoint = {};
  TierIndex found_on = kNoTier;  // restore: fastest tier with a complete replica when it was asked for
  std::uint32_t distance = 0;    // restore: hinted successors complete on the fastest tier then
  std::string detail = {};       // for a person, when refused
};

// A checkpoint for which every attempt failed: its bytes are gone or have not reached `tier` (a flush is tried again
// later).
struct Failure {
  CheckpointRef checkpoint;
  TierIndex tier = kNoTier;
  bool lost = false;        // no complete replica is left
  std::string detail = {};  // why, if the planner knows
};

// Nothing is left in the part of a segment that was recalled: its lender may take it.
struct Returned {
  TierIndex tier = kNoTier;
  SegmentId segment = 0;
};

// A version that retention has dropped. What its bytes took up comes as Freed.
struct Retired {
  HistoryId history = 0;
  Version version = 0;
};

struct Output {
  std::vector<Command> commands;
  std::vector<Answer> answers;
  std::vector<Freed> freed;
  std::vector<Failure> failures;
  // Calls in stream order whose copies read bytes that have failed to come: each gets its answer, and until then must
  // not return.
  std::vector<RequestId> spoiled;
  std::vector<Retired> retired;
  std::vector<Returned> returned;
  // Tiers (bits) in whose file what is complete is to become durable, and what was dropped to be released, now.
  std::uint32_t commit = 0;
  // Lower file tiers (bits) of which nothing has been heard for kSilentAfter though something is to come, from now on;
  // and those of which something has been heard again.
  std::uint32_t silent = 0, heard = 0;
  Time wakeup = kNever;  // call again with `tick` then, if nothing comes before
  void clear() {
    commands.clear(), answers.clear(), freed.clear(), failures.clear(), spoiled.clear(), retired.clear(),
        returned.clear();
    commit = silent = heard = 0;
    wakeup = kNever;
  }
};

}  // namespace ebb::planner
