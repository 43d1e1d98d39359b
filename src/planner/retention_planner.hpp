#pragma once
// What the slowest tier's file holds from earlier processes, what has become durable there, and what retention drops
// for it (retention.hpp has the rule).
#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/durability.hpp"
#include "planner/outcomes.hpp"
#include "planner/replicas.hpp"
#include "planner/transfers.hpp"

namespace ebb::policy {

class RetentionPlanner {
 public:
  RetentionPlanner(Context& context, CheckpointTable& table, const Transfers& transfers, Durability& durability,
                   Replicas& replicas, Outcomes& outcomes)
      : context_(context),
        table_(table),
        transfers_(transfers),
        durability_(durability),
        replicas_(replicas),
        outcomes_(outcomes) {}

  void on(HistoryId client, const event::Recovered& e);
  void on(HistoryId client, const event::Durable& e);
  void on(HistoryId client, const event::NotDurable& e);
  void make_room();

 private:
  Checkpoint* reported(HistoryId client, Version version, bool complete_there);
  bool retire(History& history, Durability::When when);
  void start_checks(const History& history);

  Context& context_;
  CheckpointTable& table_;
  const Transfers& transfers_;
  Durability& durability_;
  Replicas& replicas_;
  Outcomes& outcomes_;
};

}  // namespace ebb::policy
