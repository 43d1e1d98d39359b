#pragma once
// The parts of the planner, from the ground up: each uses those above it in this list, and none below. State is in the
// first ones; the others decide.
#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/flush_planner.hpp"
#include "planner/flush_queue.hpp"
#include "planner/hints.hpp"
#include "planner/link_scheduler.hpp"
#include "planner/outcomes.hpp"
#include "planner/placing.hpp"
#include "planner/planner.hpp"
#include "planner/prefetch_planner.hpp"
#include "planner/reads.hpp"
#include "planner/replicas.hpp"
#include "planner/reports.hpp"
#include "planner/retention_planner.hpp"
#include "planner/room.hpp"
#include "planner/segments.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"
#include "planner/waits.hpp"
#include "planner/writes.hpp"

namespace ebb::policy {

struct Planner::State {
  explicit State(const Machine& m);
  void on(const Event& event, Output& out);
  void check() const;

  Context context;

  // What there is.
  TierSpace space{context};
  CheckpointTable table{context, space};
  Transfers transfers{context, table};
  Durability durability{context, table, space, transfers};
  FlushQueue queue;
  Replicas replicas{context, table, space, transfers, durability, queue};
  Calls calls{context, table};
  Waits waits{context, table, space, transfers, replicas, calls};

  // What is to be done.
  RoomFinder rooms{context, space, table, transfers, replicas};
  FlushPlanner flush_planner{context, space, table, transfers, durability, queue, replicas, rooms};
  PrefetchPlanner prefetch_planner{context, space, table, transfers, replicas, rooms, flush_planner};
  LinkScheduler scheduler{context, table, transfers};

  // What becomes of it.
  Outcomes outcomes{context, space, table, transfers, replicas, calls, waits};
  Placing placing{context, space, table, transfers, durability, replicas, calls, rooms, flush_planner, outcomes};

  // Who takes which event.
  Writes writes{context, space, table, replicas, calls, waits, outcomes, placing};
  Reads reads{context, space, table, transfers, durability, replicas, calls, waits, outcomes, placing};
  Hints hints{context, table, replicas, outcomes};
  Reports reports{context, space, table, transfers, outcomes};
  Segments segments{context, space, table, transfers, replicas, outcomes};
  RetentionPlanner retention_planner{context, table, transfers, durability, replicas, outcomes};

 private:
  template <class E>
  void take(HistoryId client, const E& event);
  void refuse_stuck();
};

}  // namespace ebb::policy
