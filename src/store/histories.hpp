#pragma once
// Names, versions, hints and drops.
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/machinery.hpp"

namespace ebb::store {

/// Why nothing is written to a store that was opened with `readonly`.
Error readonly_error(const options::EngineSetup& setup);

/// What can be asked and said of histories, without a byte of theirs.
///
/// Thread safety: every method may be called from any thread of the process that opened the store.
class Histories : OnMachinery {
 public:
  explicit Histories(Machinery& parts) : OnMachinery(parts) {}

  std::pair<planner::HistoryId, std::shared_ptr<const InHand>> history(const std::string& name, Order order);
  /// Hint, HintFront, Unhint, UnhintAll, StartPrefetch.
  Result<void> hint(planner::HistoryId history, planner::event::Any hint);
  Result<void> agree(planner::HistoryId history, Version version);
  bool hinted(planner::HistoryId history, Version version);
  std::optional<Version> next_hinted(planner::HistoryId history);
  Result<void> drop(planner::HistoryId history, std::optional<Version> version);
  /// Waits until a kill, or where the store promises it a loss of power, undoes none of the drops so far. False: the
  /// time is over, or `interrupted`.
  bool wait_for_drops(Seconds limit, const Interrupt& interrupted);
  /// Of the checkpoint itself where that is the map of a snapshot.
  Result<CheckpointInfo> info(planner::HistoryId history, Version version);
  Result<std::vector<Version>> versions(planner::HistoryId history);
  Result<std::optional<std::string>> tier_of(planner::HistoryId history, Version version);
  /// Names that begin with `prefix` and have versions, ascending.
  Result<std::vector<std::string>> names(std::string_view prefix);
  /// What is in several histories that belong together.
  struct Standing {
    bool safe = false;        // there is something, as durable as promised, that this process wrote or read whole
    bool ours = false;        // this process wrote some of it
    std::uint64_t order = 0;  // of its last write; 0: there is nothing
    bool operator==(const Standing&) const = default;
  };
  Standing standing(std::span<const std::string> names);
  /// Drops all that is in these histories, in their order, unless something was written there since `known`.
  void drop_unchanged(std::span<const std::string> names, const Standing& known);
  std::string name_of(planner::HistoryId history);
  /// "version 3 of history "x"", for messages.
  std::string key_text(planner::HistoryId history, Version version);

 private:
  Standing standing(const Locked& locked, std::span<const std::string> names);
  void drop(const Locked& locked, planner::HistoryId history, std::optional<Version> version);
};

}  // namespace ebb::store
