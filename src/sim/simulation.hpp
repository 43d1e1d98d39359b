#pragma once
// The planner in virtual time: programs make calls, links take time, faults come from a seed; nothing is decided here.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/planner.hpp"
#include "sim/program.hpp"
#include "sim/provisioning.hpp"

namespace ebb::sim {

struct Faults {
  std::uint64_t seed = 1;
  double probability = 0;          // that a transfer fails; a retry may succeed
  double permanent = 0;            // that a transfer fails permanently
  bool application_links = false;  // copies to and from the application fail too
  double unready = 1;              // that a transfer in flight fails because its memory is recalled (Op::recall)
};

// When checkpoints that are complete in the file of a store with retention become durable.
struct Syncs {
  Time interval = 100'000'000;  // without a request: at most this long afterwards
  Time latency = 1'000'000;     // after a commit request: at most this
  double failures = 0;          // the fraction that never becomes durable
};

// For a time, copies to and from a file tier do not end, and nothing becomes durable there.
struct Hang {
  TierIndex tier = planner::kNoTier;
  Time from = 0, until = 0;
  Time patience = 0;  // after so much of it, what is being written there is reported as not durable
  bool at(TierIndex t, Time now) const { return t == tier && now >= from && now < until; }
};

struct Options {
  Faults faults;
  Syncs syncs;
  Hang hang;
  Time checks = 0;               // of bytes read from a file: the longest, after the transfer; 0: none
  bool verify = false;           // follow every byte (content.hpp); costs time
  int check_every = 0;           // Planner::check() every this many events; 0: never
  bool record = false;           // keep the events and the planner's answers
  std::uint64_t max_events = 0;  // throws when a run takes more; 0: no limit
};

struct Call {
  int rank = 0, client = 0;
  Op::Kind kind = Op::Kind::checkpoint;
  HistoryId history = 0;
  Version version = 0;
  Bytes bytes = 0;
  planner::RequestId request = 0;
  Time timeout = 0;
  bool async = false, answered = false;
  Time begun = 0, ended = 0;
  planner::Reason reason = planner::Reason::ok;
  TierIndex found_on = planner::kNoTier;
  std::uint32_t distance = 0;
  std::string detail;
  Time blocked() const { return async ? 0 : ended - begun; }
};

// One event and the planner's answer.
struct Step {
  planner::Event event;
  planner::Output output;
};

struct LinkResult {
  std::string name;
  Bytes bytes = 0;
  std::uint64_t transfers = 0, failures = 0;
  Time busy = 0;  // of a link to several lenders' memory, that of the one that is busy longest
};

struct RankResult {
  std::vector<LinkResult> links;
  std::map<std::pair<HistoryId, Version>, Bytes> filed;  // what came to the file tier of each checkpoint, kept or not
  std::vector<MemoryResult> memories;                    // as MachineModel::provisioned
  std::vector<planner::TierUse> tiers;
  planner::Counters counters;
  std::vector<planner::Failure> failures;
  std::vector<Step> steps;  // with Options::record
};

struct Result {
  std::vector<Call> calls;  // in the order in which they began
  std::vector<RankResult> ranks;
  Time makespan = 0;                                                   // until the last program ended
  Time checkpoint_blocked = 0, restore_blocked = 0, wait_blocked = 0;  // sums; reserve and borrow with the first two
  std::uint64_t events = 0;
  Time blocked() const { return checkpoint_blocked + restore_blocked; }
};

// Thread safety: none. Tests run it step by step, others with run(). A planner that leaves a call unanswered while
// nothing moves is a stall, and throws std::logic_error naming the calls.
class Simulation {
 public:
  // programs[rank][client]; every rank has its own planner and links; those of all ranks share groups.
  Simulation(const MachineModel& machine, std::vector<std::vector<Program>> programs, const Options& options = {});
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Carries out what comes next: one event, or one operation of a client. False when every program and transfer has
  // ended, and the files have given back the room of what left them.
  bool step();
  Time now() const;
  // Gives client `index` one more operation, also after it ended: for tests that generate a program while it
  // runs.
  void append(std::size_t index, Op op);
  bool ended(std::size_t index) const;  // its operations are done (except asynchronous calls)
  const planner::Planner& planner(int rank = 0) const;
  // Called after the planner has taken an event.
  std::function<void(int rank, const planner::Event&, const planner::Output&)> observer;
  // In place of the call of Planner::on, for measuring it.
  std::function<void(planner::Planner&, const planner::Event&, planner::Output&)> feed;
  // Called as a call is answered (Call::ended is set).
  std::function<void(const Call&)> on_answer;
  Result result() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> state_;
};

Result run(const MachineModel& machine, const std::vector<Program>& programs, const Options& options = {});
Result run_ranks(const MachineModel& machine, const std::vector<std::vector<Program>>& programs,
                 const Options& options = {});

}  // namespace ebb::sim
