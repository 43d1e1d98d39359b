#pragma once
// What goes into the planner and what comes out of it. Plain values: no clock, lock, thread, file or device handle.
#include <cstdint>
#include <string>
#include <vector>

namespace ebb::policy {

using Time = std::int64_t;  // nanoseconds
using Bytes = std::uint64_t;
using Version = std::int64_t;
using HistoryId = std::uint32_t;  // a client with its own restore order; 0 is the store itself
using RequestId = std::uint64_t;  // chosen by the driver, never 0, never reused
using CommandId = std::uint64_t;
using TierIndex = std::int8_t;  // 0 is the fastest
inline constexpr TierIndex kNoTier = -1;
inline constexpr Time kNever = INT64_MAX;

// --- the machine --------------------------------------------------------------------------------------------------

// What a tier's bytes lie on. Transfers between two places go directly if either is host memory or both are on the
// device or the application; all others (file from or to device, application or another file) pass the staging ring.
enum class Medium : std::uint8_t { device, host, file };

struct TierSpec {
  std::string name;  // "device", "host", "local"
  Medium medium = Medium::host;
  Bytes capacity = 0;    // 0: the tier is absent
  Bytes granule = 4096;  // sizes and offsets are rounded up to it
};

// Endpoints of a link: a tier, the application, or the staging ring (which lies in host memory).
struct Endpoint {
  enum Kind : std::uint8_t { application, ring, tier } kind = application;
  TierIndex index = kNoTier;
  bool operator==(const Endpoint&) const = default;
};

// A directed path with its own queue. Which links exist follows from the tiers (see make_links in links.hpp).
struct LinkSpec {
  std::string name;  // "app>device", "device>host", "host>local", "local>host"; ring traffic shares the host's links
  double bytes_per_s = 1e9;  // the first estimate; running averages replace it
  Time latency = 0;          // per transfer
  Bytes chunk = 4 << 20;     // longest transfer; a multiple of every granule
  int depth = 2;             // transfers a driver holds at once, at most
  Time window = 0;           // and, beyond two, no more than it carries in this time; 0: no such limit
  int group = -1;            // links of one group share a device (a disk's reads and writes); -1: none
};

// Which versions of each history a store keeps; the rule is in retention.hpp.
struct Retention {
  std::uint64_t keep_last = 0;   // 0: all stay
  std::uint64_t keep_every = 0;  // multiples of it stay; 0: none for that
};

enum class EvictionPolicy : std::uint8_t { score, score_paper, lru, fifo };

struct Machine {
  std::vector<TierSpec> tiers;  // fastest first
  std::vector<LinkSpec> links;  // as make_links() orders them
  Bytes ring_slot = 4 << 20;    // staging ring: slots of this size ...
  int ring_slots = 8;           // ... this many for each direction
  EvictionPolicy eviction = EvictionPolicy::score;
  // Consumed means discarded. Otherwise everything goes down to the slowest tier, consumed or not, and leaves a file
  // there only when it is dropped or could not be read. A checkpoint of no bytes is complete in that file with the
  // answer to its call, without a command (a driver writes what names it then) and without taking room; its end is a
  // Freed as any other's, of length 0.
  bool ephemeral = true;
  // Of a store that is not ephemeral and has a file. A version that newer ones make up for is dropped, once those are
  // durable, and checkpoints come to the file in the order in which they were written.
  Retention retention;
  bool manual_prefetch = false;  // nothing is prefetched before start_prefetch
  int max_retries = 3;           // of one transfer
};

// --- events -------------------------------------------------------------------------------------------------------

enum class EventKind : std::uint8_t {
  // from the application; those marked * carry `request` and get exactly one Answer
  checkpoint,      // * history, version, bytes, timeout
  reserve,         // * history, version, bytes, timeout; answered with a place on tier 0
  submit,          //   request of a restore (ordered): its call has returned with every copy on the stream, and the
                   //   version is consumed now. Request of a reserve or borrow: let go of, while its memory is still in
                   //   use. A reserved version counts as being written until its commit; a borrowed one is given back
                   //   (flag = keep) and only its memory waits for the release. ordered = the end comes by itself, with
                   //   a stream of the application; without it takes that back
  commit,          //   request of the reserve: its bytes are complete (flag = they stay in use until a release)
  abandon,         //   request of the reserve: it is forgotten
  restore,         // * history, version, flag = keep
  borrow,          // * history, version; answered with a place on tier 0
  release,         //   request of the borrow, flag = keep: it ends (or of a reserve that was committed with `flag`)
  hint,            //   history, versions (appended; flag = replace)
  hint_front,      //   history, version: before everything hinted so far
  unhint,          //   history, versions (first hint of each; empty = all)
  start_prefetch,  //   history
  drop,            //   history, version (flag = the whole history)
  adopt,   //   history, version, bytes: a checkpoint that is complete on the slowest tier already (a file), which
           //   need not have room for it; nothing is moved. Not for a version that exists, nor without a file tier
  forget,  //   history, of which Planner::idle() says true: its number may be given to another
  wait,    // * history, version (flag = the whole history), tier: complete there or below
  cancel,  //   request: answer it `cancelled` now, unless answered already
  ready,   //   request (ordered): what its stream held before the call is done
  // from the driver
  carried,   //   command: its link is done with it, what was read has yet to be checked; its end follows
  finished,  //   command
  failed,    //   command; flag = the target said that it is full, or there was no memory to read with: nothing is
             //   wrong with the source; hopeless = trying again is of no use
  durable,   //   history, version, which is complete in the slowest tier's file: it is durable, as the store
             //   promises; flag = it never will be (and may be incomplete). Of what was adopted: all of it was
             //   read, and it is intact
  shrink,    //   tier (memory), bytes: its memory ends there, for good, and no later than was said before. What lies
             //   beyond leaves. A command that is given already and whose place lies beyond is reported, in the
             //   order given: `finished` if that memory is there, else `failed` with flag, and then nothing of it,
             //   nor of what comes `after` it, has been begun
  tick,      //   nothing but the time
};

struct Event {
  Time now = 0;
  EventKind kind = EventKind::tick;
  HistoryId history = 0;
  Version version = 0;
  RequestId request = 0;
  CommandId command = 0;
  Bytes bytes = 0;
  Time timeout = 0;  // kNever: for ever
  TierIndex tier = kNoTier;
  bool flag = false;
  // checkpoint, restore: the application's copies are enqueued on a stream of its own behind what that holds already.
  // How long they take says nothing of the link, they pass the ring only once `ready`, and what such a stream was
  // given is not given again (the caller's memory is no longer what it was).
  bool ordered = false;
  bool hopeless = false;  // failed: what was read is damaged, or will never be there
  std::vector<Version> versions;
};

// --- commands, answers ----------------------------------------------------------------------------------------------

// A checkpoint of the planner's table; a slot is used again with the next generation.
struct CheckpointRef {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  bool operator==(const CheckpointRef&) const = default;
};

// Where bytes lie: `offset` counts from the arena's first byte (memory tiers), from the ring's (ring), or from the
// checkpoint's first byte (application, file tiers).
struct Place {
  Endpoint at;
  Bytes offset = 0;
};

// Moves `length` bytes of `checkpoint`, beginning at its byte `offset`. Lengths are exact: memory and file places have
// room up to the granule, so that a driver may round up. One command of a link after the other, in the order given.
// Every command ends with exactly one `finished` or `failed` event; until then neither place is used for anything else.
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
  // It was complete and could not be read, so that it is given up (only unless Machine::ephemeral): a driver leaves
  // what lies in the file alone.
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
  Place place;  // reserve, borrow
  CheckpointRef checkpoint;
  TierIndex found_on = kNoTier;  // restore: fastest tier with a complete replica when it was asked for
  std::uint32_t distance = 0;    // restore: hinted successors complete on the fastest tier then
  std::string detail;            // for a person, when refused
};

// A checkpoint for which every attempt failed: its bytes are gone or have not reached `tier` (a flush is tried again
// later).
struct Failure {
  CheckpointRef checkpoint;
  TierIndex tier = kNoTier;
  bool lost = false;  // no complete replica is left
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
  bool commit = false;   // what is complete in the file is to become durable now: room is waited for
  Time wakeup = kNever;  // call again with `tick` then, if nothing comes before
  void clear() {
    commands.clear(), answers.clear(), freed.clear(), failures.clear(), spoiled.clear(), retired.clear();
    commit = false;
    wakeup = kNever;
  }
};

// --- what can be asked
// ------------------------------------------------------------------------------------------------

struct TierUse {
  Bytes capacity = 0, used = 0, largest_gap = 0;
  std::uint32_t replicas = 0;
  std::uint64_t evictions = 0;
};

struct LinkUse {
  std::uint64_t transfers = 0, failures = 0;
  Bytes bytes = 0;
  Time busy = 0;
  double estimate_bytes_per_s = 0;
};

struct Counters {
  std::uint64_t dropped_flushes = 0, retries = 0, failures = 0, direct_writes = 0, direct_reads = 0, prefetches = 0,
                flushes = 0, events = 0, commands = 0;
};

}  // namespace ebb::policy
