#pragma once
// Calls that bring checkpoints in.
#include <memory>
#include <optional>
#include <span>

#include "store/machinery.hpp"

namespace ebb::store {

/// Calls become events, and end with the planner's answers. `engine` is kept open by what a call returns.
///
/// Thread safety: every method may be called from any thread of the process that opened the store.
class Writes : OnMachinery {
 public:
  explicit Writes(Machinery& parts) : OnMachinery(parts) {}

  Result<Future> checkpoint(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                            std::span<const Source> sources, const CheckpointOptions& options);
  Result<Reservation> reserve(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                              std::span<const Source> regions, const CheckpointOptions& options,
                              const void* adopt = nullptr);
  /// A checkpoint whose memory may stay the program's (CheckpointOptions::adopt).
  Result<Future> adopt(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                       std::span<const Source> sources, const CheckpointOptions& options);
  /// Of what is reserved, and will be committed.
  Future future_of(const Reservation::Impl& hold);
  Result<void> commit(Reservation::Impl& hold, const HandBack& how);
  void abandon(Reservation::Impl& hold);

 private:
  Result<void> fill(const Reservation::Impl& hold, const Source& source, const std::optional<StreamHandle>& stream);
  void count_written(const Locked& locked, planner::CheckpointRef checkpoint, std::uint64_t bytes);
  /// Why nothing can be written now; none: it can.
  std::optional<Error> not_writable(const Locked& locked, planner::HistoryId history, Version version) const;
  void warn_beneath(Locked& locked, planner::HistoryId history, Version version);
};

}  // namespace ebb::store
