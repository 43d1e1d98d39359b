#pragma once
// A call that the planner was asked for and has not answered yet.
#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "store/catalog.hpp"
#include "store/digests.hpp"
#include "store/handles.hpp"
#include "store/layout.hpp"
#include "store/streams.hpp"

namespace ebb::store {

/// How much of a call in stream order is on its stream, or copied.
struct Enqueued {
  std::uint64_t bytes = 0;                       // from the first byte on
  std::map<std::uint64_t, std::uint64_t> ahead;  // beyond that: begin and end (disks answer in any order)
  std::uint64_t ordered_to = 0;                  // the planner has ordered copies up to here
  void order(const planner::Command& command);
  void count(const planner::Command& command);
};

/// A row of the CallTable: in the caller's frame, or shared for restore_async and for calls in stream order, which it
/// outlives. The port's mutex guards it, but for what the thread that copies for it looks at meanwhile: `pieces`,
/// `stream`, `own`, `compared`.
struct CallRow {
  planner::RequestId id = 0;
  planner::HistoryId history = 0;
  Version version = 0;
  std::uint64_t bytes = 0;
  bool copies = false;                         // a checkpoint or restore: all it has of the planner are copies
  std::vector<PlacedRegion> pieces;            // the application's memory, if it copies
  std::shared_ptr<const CheckpointInfo> info;  // of what is handed out
  std::vector<planner::Command> commands;      // its own copies; those before `next` are begun
  std::size_t next = 0;
  planner::Time started = 0, copying = 0;  // when it began; how long its copies took
  bool answered = false;
  planner::Answer answer;
  std::condition_variable changed;
  bool by_ended = false;  // its caller waits for PlannerPort::ended() in place of `changed`

  bool background = false;             // no caller serves it (any more)
  std::shared_ptr<Waitable> waitable;  // restore_async, a checkpoint in stream order

  // In stream order.
  std::optional<device::StreamId> stream;  // of the application: its copies go there
  Enqueued enqueued;
  std::optional<Error> refused;  // that stream could not be followed
  bool asks_ready = false;       // Ready follows when that stream has done what it held before
  bool spoiled = false;          // what its copies came after has failed: its answer says so
  CallStream own;                // for its copies that the host waits for

  // Verification.
  std::shared_ptr<const Record::Sums> sums;  // what its regions were when they were given
  struct {
    std::shared_ptr<const Check> with;
    Result<void> result;
  } compared;                  // its source, before it was handed out
  std::optional<Error> wrong;  // its memory cannot be copied from or to; or what was handed out is not what was given

  bool all_enqueued() const { return stream && !spoiled && enqueued.bytes == bytes; }
  /// The planner has given it a copy to make.
  void add(const planner::Command& command);
};

}  // namespace ebb::store
