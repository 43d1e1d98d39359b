#pragma once
// The planner's state, from the ground up: each part uses those above it, and none below. Every fact has one owner.
#include "planner/calls.hpp"
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/flush_queue.hpp"
#include "planner/links.hpp"
#include "planner/pacer.hpp"
#include "planner/replicas.hpp"
#include "planner/staging_rings.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::planner {

struct State {
  explicit State(const Machine& machine) : context(machine) {}

  Context context;
  StagingRings rings{context.machine};
  TierSpace space{context, rings};
  Pacers pacers{context, space};
  CheckpointTable table{context, space};
  Links links{context, pacers, rings};
  Calls calls{context, table};
  Transfers transfers{context, table, space, pacers, rings, links};
  Durability durability{context, table, space, links, transfers};
  FlushQueue queue{context.machine};
  Replicas replicas{context, table, space, transfers, durability, queue};
};

// Base of the parts that decide: the state, by name. planner.cpp lists them.
class Decider {
 protected:
  explicit Decider(State& s)
      : context_(s.context),
        rings_(s.rings),
        space_(s.space),
        pacers_(s.pacers),
        table_(s.table),
        links_(s.links),
        calls_(s.calls),
        transfers_(s.transfers),
        durability_(s.durability),
        queue_(s.queue),
        replicas_(s.replicas) {}

  Context& context_;
  StagingRings& rings_;
  TierSpace& space_;
  Pacers& pacers_;
  CheckpointTable& table_;
  Links& links_;
  Calls& calls_;
  Transfers& transfers_;
  Durability& durability_;
  FlushQueue& queue_;
  Replicas& replicas_;
};

}  // namespace ebb::planner
