#pragma once
// A planner's history as text: the machine, then each event followed by the planner's output for it. One line each;
// every number is exact, so that a replay gives the same commands one by one. Between them come the lines of the
// memories' provisioning (trace/provision_text.hpp).
//
//   ebbtide-events 7
//   node NAME STAGING
//   tier NAME MEDIUM CAPACITY GRANULE NODE [EVERY HAS_RETENTION KEEP_LAST KEEP_EVERY [ADOPTED [GRAIN]]]
//   resource NAME URGENT_FIRST
//   link NAME FROM TO BYTES_PER_S LATENCY CHUNK DEPTH WINDOW [RESOURCE...]
//   machine RING_SLOT EVICTION EPHEMERAL MANUAL_PREFETCH MAX_RETRIES KEEP_LAST KEEP_EVERY
//   e NOW NAME CLIENT FIELD...      fields as src/planner/events.hpp has them
//   c ID LINK SLOT GENERATION REQUEST OFFSET LENGTH TOTAL
//     FROM_KIND FROM_INDEX FROM_OFFSET TO_KIND TO_INDEX TO_OFFSET AFTER     on the same line
//   b TIER SEGMENT         its recalled part is empty
//   r HISTORY VERSION      retention has dropped it
//   s TIERS                checkpoints that are complete in these tiers' files (bits) should become durable now
#include <optional>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"
#include "planner/commands.hpp"
#include "planner/events.hpp"

namespace ebb::trace {

std::string_view name_of(const planner::Event& event);
void append_text(std::string& out, const planner::Machine& machine);
void append_text(std::string& out, const planner::Event& event);
void append_text(std::string& out, const planner::Command& command);
/// The lines of an output: commands, returned segments, dropped versions, whether to commit.
void append_text(std::string& out, const planner::Output& output);

Result<planner::Event> parse_event(std::string_view line);

struct Replay {
  std::uint64_t events = 0, commands = 0;
  std::optional<std::string> difference;  // the first place where an output differs, for a person
};

/// Replays a log on a new planner and new provisioners, and compares their output with what was recorded. Trusts
/// nothing in `log`.
Result<Replay> replay(std::string_view log);

}  // namespace ebb::trace
