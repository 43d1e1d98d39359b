#pragma once
// What the public handles (Future, Reservation, Loan) hold.
#include <memory>

#include "ebbtide/store.hpp"
#include "planner/ids.hpp"
#include "store/tiers.hpp"

namespace ebb::store {

class Engine;

/// Shared by the handles of one history and the catalog, and by nothing else: so the catalog sees whether any handle is
/// left. It holds nothing.
struct InHand {};

/// What a Future looks at. The port's mutex guards everything but `engine`; PlannerPort::ended() is notified of
/// changes.
struct Waitable {
  std::shared_ptr<Engine> engine;
  planner::HistoryId history = 0;
  std::shared_ptr<const InHand> in_hand;  // of that history
  Version version = 0;
  planner::CheckpointRef checkpoint;
  bool background = false;  // of restore_async, else of a checkpoint (whose call itself has ended)
  bool ended = false;
  bool listed = false;        // in the node's pool
  std::uint32_t durable = 0;  // on these file tiers (bits), whatever became of it since
  std::optional<Error> error;
  std::shared_ptr<const void> kept;  // the program's, until it has ended
};

/// A checkpoint's memory in the application's hands. `tiers` keeps it mapped after the store has closed.
struct Hold {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<Tiers> tiers;
  std::shared_ptr<const CheckpointInfo> info;
  planner::HistoryId history = 0;
  std::shared_ptr<const InHand> in_hand;  // of that history
  Version version = 0;
  planner::CheckpointRef checkpoint;
  planner::RequestId request = 0;  // of the call that was granted it
  planner::Place place;            // where that is
  std::byte* data = nullptr;
  std::shared_ptr<const void> adopted;  // the program's, in which it is
  bool ended = false;                   // committed or released, and held on to
  std::uint64_t handed_back = 0;        // with `hold`, and not let go of yet: its key there
};

}  // namespace ebb::store

namespace ebb {

struct Reservation::Impl : store::Hold {};
struct Loan::Impl : store::Hold {
  bool keep = false;  // as it was borrowed: however it is given back
};

}  // namespace ebb
