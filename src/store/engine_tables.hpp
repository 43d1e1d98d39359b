#pragma once
// What an open store writes down of calls, checkpoints and transfers: tables, and nothing that acts on them.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ebbtide/store.hpp"
#include "planner/planner.hpp"
#include "storage/persistent_storage.hpp"
#include "store/catalog.hpp"
#include "store/digests.hpp"
#include "store/handles.hpp"
#include "store/layout.hpp"
#include "store/streams.hpp"

namespace ebb::runtime {

/// The rows of Engine's tables; its mutex guards them.
struct EngineTables {
  // A call that the planner has been told of and has not answered: in the caller's frame, or in `background_` for
  // restore_async, with the Waitable that it ends. Those in stream order are in `background_` too, for the time after
  // the call has returned.
  struct Request {
    policy::RequestId id = 0;
    policy::HistoryId history = 0;
    Version version = 0;
    bool copies = false;  // a checkpoint or restore: all it has of the planner are copies
    std::uint64_t bytes = 0;
    std::vector<Piece> pieces;              // the application's memory, if it copies
    std::vector<policy::Command> commands;  // its own copies; those before `next` are begun
    std::size_t next = 0;
    bool answered = false;
    policy::Answer answer;
    policy::Time started = 0, copying = 0;  // when it began; how long its copies took
    std::condition_variable changed;
    std::shared_ptr<Waitable> waitable;            // restore_async, a checkpoint in stream order
    bool background = false;                       // no caller serves it (any more)
    std::optional<platform::StreamId> stream;      // of the application: its copies go there
    std::uint64_t enqueued = 0;                    // there, or copied, from the first byte on
    std::map<std::uint64_t, std::uint64_t> ahead;  // likewise, beyond that: begin and end (disks answer in any order)
    std::uint64_t ordered_to = 0;                  // the planner has ordered copies up to here
    std::optional<Error> refused;                  // that stream could not be followed
    bool asks_ready = false;                       // to be told when that stream has done what it held before
    bool spoiled = false;                          // what its copies came after has failed: its answer says so
    CallStream own;                                // for its copies that the host waits for
    std::shared_ptr<const CheckpointInfo>
        info;  // of what is handed out, and what its regions were when they were given
    std::shared_ptr<const Record::Sums> sums;
    std::shared_ptr<const Check> check;  // that its source was compared with, and what came of it
    Result<void> compared;
    std::optional<Error> wrong;  // what was handed out in the background is not that
  };
  // Memory of the device cache that was handed back and is still in use: by a stream, or by who holds its handle.
  struct HandedBack {
    using End = std::variant<policy::event::Commit, policy::event::Release, policy::event::Abandon>;
    policy::HistoryId history = 0;
    Version version = 0;
    End end;  // when the stream is done
    bool stream_done = false, held = false;
    std::shared_ptr<Check> check;  // of a commit: its digest comes when the stream is done
  };
  struct Moving {
    policy::Command command;
    bool copies = false;                          // between memories
    std::shared_ptr<Comparison> comparison = {};  // its source is compared with what was committed
  };
  // A link between tiers: what the planner has ordered and no engine has taken yet.
  struct Lane {
    std::deque<policy::Command> queue;
    bool pumping = false;  // one thread hands its commands over
    int stream = -1;       // of the copy engine; -1: a file's
  };
  struct Handover {
    policy::Command command;
    storage::ObjectId object = 0;  // of a file's transfer
    int stream = -1;
    bool put = false;
    std::shared_ptr<Comparison> comparison;                        // that of its Moving
    std::optional<Error> refused = {};                             // the storage does not take the object
    std::shared_ptr<const storage::Description> description = {};  // of a kept object whose first put this is
  };
};

}  // namespace ebb::runtime
