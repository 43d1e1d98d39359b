#include "planner/planner.hpp"

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "planner/flush_planner.hpp"
#include "planner/hints.hpp"
#include "planner/invariants.hpp"
#include "planner/link_scheduler.hpp"
#include "planner/outcomes.hpp"
#include "planner/placing.hpp"
#include "planner/prefetch_planner.hpp"
#include "planner/requests.hpp"
#include "planner/retention_planner.hpp"
#include "planner/room.hpp"
#include "planner/segments.hpp"
#include "planner/state.hpp"
#include "planner/waits.hpp"

namespace ebb::planner {

namespace {

Machine connected(Machine machine) {
  if (machine.tiers.empty() || machine.tiers.size() > kMaxTiers)
    throw std::logic_error("a machine has 1 to " + std::to_string(kMaxTiers) + " tiers");
  if (machine.nodes.empty()) connect(machine);
  return machine;
}

template <class Decider, class E>
concept Takes = requires(Decider& part, const E& event) { part.on(HistoryId{}, event); };

// Gives the event to the part that takes it.
template <class E, class... Parts>
void hand(HistoryId client, const E& event, Parts&... parts) {
  static_assert((int{Takes<Parts, E>} + ...) == 1);
  const auto offer = [&](auto& part) {
    if constexpr (requires { part.on(client, event); }) part.on(client, event);
  };
  (offer(parts), ...);
}

}  // namespace

// All that the planner consists of: the state and, from the ground up, the parts that decide.
struct Planner::Parts : State {
  explicit Parts(const Machine& m) : State(connected(m)) {}
  void on(const Event& event, Output& out);

  // These decide what is moved.
  RoomFinder rooms{*this};
  FlushPlanner flush_planner{*this, rooms};
  PrefetchPlanner prefetch_planner{*this, rooms, flush_planner};
  LinkScheduler scheduler{*this};

  // These carry on when a move has ended.
  Waits waits{*this};
  Outcomes outcomes{*this, waits};
  Placing placing{*this, rooms, flush_planner, outcomes};

  // These take the events.
  Requests requests{*this, waits, outcomes, placing};
  Hints hints{*this, outcomes};
  Segments segments{*this, outcomes};
  RetentionPlanner retention_planner{*this, waits, outcomes};

 private:
  template <class E>
  void take(HistoryId client, const E& event);
  void refuse_stuck();
};

template <class E>
void Planner::Parts::take(HistoryId client, const E& event) {
  if constexpr (std::is_same_v<E, event::Tick>)
    context.dirty = true;
  else
    hand(client, event, requests, waits, outcomes, hints, segments, retention_planner);
}

void Planner::Parts::on(const Event& e, Output& output) {
  if (e.now < context.now) throw std::logic_error("event times go back");
  context.now = e.now;
  context.out = &output;
  const Time before = std::exchange(context.wakeup, kNever);
  ++context.counters.events;
  durability.begin_event();
  table.admit(e.client);
  std::visit([&](const auto& what) { take(e.client, what); }, e.what);
  if (!context.dirty) context.wakeup = before;  // nothing is planned anew, and what waits for its time still does
  for (int round = 0; context.dirty && round < 64; ++round) {
    context.dirty = false;
    segments.leave_beyond();
    if (!calls.waiting().empty()) placing.serve_waiting();
    flush_planner.schedule();
    prefetch_planner.rescue_upwards();
    prefetch_planner.schedule();
    for (TierIndex t = context.first_keeping; t < context.tiers(); ++t)
      if (const Durability::Short lacks = durability.take_short(t); lacks.bytes > 0)
        retention_planner.make_room(t, lacks);
  }
  scheduler.issue(waits.deepest());
  if (!calls.waiting().empty() || !waits.empty()) refuse_stuck();
  segments.leave_beyond();
  space.report_returned();
  const bool held_up = !calls.waiting().empty() || !waits.empty();
  durability.ask_to_commit(held_up && !transfers.in_flight() && !calls.any_ending());
  if (context.several_keep()) retention_planner.look_for_silence();
  if (context.dirty) context.wakeup = context.now;  // more rounds than one event may take: the next goes on
  output.wakeup = context.wakeup;
  context.out = nullptr;
}

// After everything that can be sent was sent: with nothing in flight, no transfer can make room any more.
void Planner::Parts::refuse_stuck() {
  while (!placing.room_may_come()) {
    const bool changed = placing.refuse_waiting();
    if (!changed && !context.dirty) break;
    for (int round = 0; context.dirty && round < 64; ++round) {
      context.dirty = false;
      if (!calls.waiting().empty()) placing.serve_waiting();
      flush_planner.schedule();
      prefetch_planner.schedule();
    }
    scheduler.issue(waits.deepest());
    if (!changed) break;
  }
  if (!placing.room_may_come()) waits.refuse_stuck();
}

Planner::Planner(const Machine& machine) : parts_(std::make_unique<Parts>(machine)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

void Planner::on(const Event& event, Output& out) { parts_->on(event, out); }
const Machine& Planner::machine() const { return parts_->context.machine; }
const Counters& Planner::counters() const { return parts_->context.counters; }
std::size_t Planner::pending() const { return parts_->transfers.count(); }
void Planner::check() const { Invariants(*parts_).check(); }
TierUse Planner::use(TierIndex tier) const { return parts_->space.use(tier); }

LinkUse Planner::use(int link) const {
  const Link& l = parts_->links.all().at(static_cast<std::size_t>(link));
  LinkUse use = l.use;
  use.busy = l.estimate.busy();
  use.estimate_bytes_per_s = l.estimate.bytes_per_s();
  return use;
}

std::optional<CheckpointRef> Planner::find(HistoryId history, Version version) const {
  const Slot slot = parts_->table.lookup(history, version);
  if (slot == kNoSlot || !parts_->table[slot].exists()) return std::nullopt;
  return parts_->table.ref(slot);
}

bool Planner::idle(HistoryId history) const { return parts_->table.idle(history); }
bool Planner::hinted(HistoryId history, Version version) const {
  const Slot slot = parts_->table.lookup(history, version);
  return slot != kNoSlot && parts_->table[slot].hint != RestoreOrder::kNone;
}
std::optional<Version> Planner::next_hinted(HistoryId history) const {
  if (history >= parts_->table.histories().size()) return {};
  const RestoreOrder& order = parts_->table.history(history).order;
  for (RestoreOrder::Position at = order.head(); at < order.tail(); ++at)
    if (const Slot slot = order.at(at); slot != RestoreOrder::kWithdrawn && parts_->table[slot].exists())
      return parts_->table[slot].version;
  return {};
}
Bytes Planner::bytes_of(CheckpointRef c) const { return parts_->table.at(c.slot).bytes; }
TierIndex Planner::fastest_complete(CheckpointRef c) const { return parts_->table.fastest(parts_->table.at(c.slot)); }
TierIndex Planner::lowest_complete(CheckpointRef c) const { return parts_->table.lowest(parts_->table.at(c.slot)); }

TierIndex Planner::rest_of(CheckpointRef c, TierIndex t) const {
  const Checkpoint& one = parts_->table.at(c.slot);
  return one.in_parts() && t == one.split.on ? one.split.rest : kNoTier;
}

bool Planner::complete_on(CheckpointRef c, TierIndex t) const { return good(parts_->table.at(c.slot).at[t]); }

bool Planner::sent_to(CheckpointRef c, TierIndex t) const { return parts_->table.sent_to(parts_->table.at(c.slot), t); }

std::uint32_t Planner::prefetch_distance(HistoryId history) const {
  CheckpointTable& table = parts_->table;
  return history < table.histories().size() ? table.ready_successors(table.history(history)) : 0;
}

const char* name_of(Reason reason) {
  switch (reason) {
    case Reason::ok: return "ok";
    case Reason::version_exists: return "version_exists";
    case Reason::unknown_version: return "unknown_version";
    case Reason::consumed: return "consumed";
    case Reason::too_large: return "too_large";
    case Reason::no_space: return "no_space";
    case Reason::lost: return "lost";
    case Reason::dropped: return "dropped";
    case Reason::cancelled: return "cancelled";
    case Reason::no_such_tier: return "no_such_tier";
  }
  return "?";
}

}  // namespace ebb::planner
