#pragma once
// The planner: all policy, no machinery. Events in, commands and answers out, deterministically.
//
// Thread safety: none; a driver calls it under one lock or from one thread.
// Contract: event times never go back; every command ends once, and is carried at most once, before that; requests have
// ids of their own. A broken contract or an illegal transition of a replica throws std::logic_error in every build.
#include <memory>
#include <optional>

#include "planner/commands.hpp"
#include "planner/events.hpp"
#include "planner/use.hpp"

namespace ebb::planner {

class Planner {
 public:
  explicit Planner(const Machine& machine);
  ~Planner();
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;

  // Takes one event; appends to `out` (which the caller clears) and sets its wake-up time.
  void on(const Event& event, Output& out);

  const Machine& machine() const;
  TierUse use(TierIndex tier) const;
  LinkUse use(int link) const;
  const Counters& counters() const;

  // The checkpoint behind a key, if it exists and can be restored (or is being written).
  std::optional<CheckpointRef> find(HistoryId history, Version version) const;
  // Nothing of the history exists, is hinted, is known to be consumed, or is in flight.
  bool idle(HistoryId history) const;
  bool hinted(HistoryId history, Version version) const;
  std::optional<Version> next_hinted(HistoryId history) const;  // the first that exists
  Bytes bytes_of(CheckpointRef checkpoint) const;
  TierIndex fastest_complete(CheckpointRef checkpoint) const;
  TierIndex lowest_complete(CheckpointRef checkpoint) const;  // the slowest tier with all of its bytes; kNoTier: none
  // Where the rest is of a replica that is complete on tier `t` in two parts; kNoTier: all of it is there.
  TierIndex rest_of(CheckpointRef c, TierIndex t) const;
  bool complete_on(CheckpointRef checkpoint, TierIndex tier) const;
  bool sent_to(CheckpointRef checkpoint, TierIndex tier) const;  // see TierSpec::every
  // Hinted successors, from the first on, that are complete on the fastest tier.
  std::uint32_t prefetch_distance(HistoryId history) const;
  // Transfers in flight or waiting for a link or for room.
  std::size_t pending() const;

  // Throws std::logic_error naming the first broken invariant (overlapping fragments, counters, uses, hints).
  // O(everything).
  void check() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ebb::planner
