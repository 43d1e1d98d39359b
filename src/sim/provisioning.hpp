#pragma once
// Memory that is provisioned while programs run: drives planner::Provisioner in virtual time.
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "planner/commands.hpp"
#include "sim/machine.hpp"

namespace ebb::sim {

// Memory that was provisioned.
struct MemoryResult {
  TierIndex tier = 0;
  Bytes ready = 0;
  Time ready_at = planner::kNever;  // when all of the tier was; what is not needed never is
  Time waited = 0;                  // that commands and reservations waited for it, summed
};

// The memory of every rank, and what waits for it: in the order in which it came, behind what waits on the same link,
// or in the same call.
class Provisioning {
 public:
  struct Held {
    int rank = 0;
    std::optional<planner::Command> command = {};  // none: the answer to a reservation
    planner::Answer answer = {};
    Bytes bytes = 0;  // of its place
    Time since = 0;
    const planner::Place& place() const { return command ? command->to : answer.place; }
  };

  // The machine must outlive it. Throws std::invalid_argument for rates that cannot be.
  Provisioning(const MachineModel& machine, int ranks);

  // A command, or a call with its answer, whose memory will be used. True: it waits until release() returns it.
  bool hold(Held held, Time now);
  // One that waits no more; none: all wait still.
  std::optional<Held> release(Time now);
  bool holds_answer(planner::RequestId request) const;
  bool usable(int rank, const planner::Place& place, Bytes bytes) const;
  // The program wrote a checkpoint.
  void produced(int rank, Bytes bytes, Time now);

  // The time at which something is next due.
  Time next(Time now) const;
  // One event that is due; false: there is none.
  bool advance(Time now);
  std::vector<MemoryResult> results(int rank) const;

 private:
  struct Memory {
    Memory(int of_rank, const ProvisionModel& of_model, const planner::ProvisionSpec& spec)
        : rank(of_rank), model(of_model), provisioner(spec), result{.tier = of_model.tier} {}
    int rank;
    const ProvisionModel& model;
    planner::Provisioner provisioner;
    MemoryResult result;
    Time wakeup = planner::kNever;
    std::vector<std::pair<Time, planner::ByteRange>> touches;  // when each ends
    planner::ByteRange pinning;
    Time pin_began = 0, pin_ends = planner::kNever;
  };
  // The provisioned memory of a place; null: its memory is all there.
  const Memory* find(int rank, const planner::Place& place) const;
  Memory* find(int rank, const planner::Place& place);
  void submit(Memory& memory, planner::ProvisionEvent event, Time now);
  // Whether it waits for its memory, or for one of the first `count` that wait.
  bool waits(const Held& held, std::size_t count) const;

  std::deque<Memory> memories_;
  std::deque<Memory*> pin_queue_;  // of the node; the first has its turn
  std::deque<Held> held_;
};

}  // namespace ebb::sim
