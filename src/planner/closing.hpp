#pragma once
// How long closing a store waits for file tiers below the fastest.
#include <optional>

#include "planner/ids.hpp"
#include "planner/topology.hpp"

namespace ebb::planner {

/// A job does not hang at its end with a file system that others share: where closing has no time of its own, it ends
/// once lower files have been silent for kSilentAfter. The next process sends what they lack.
class Closing {
 public:
  /// `until`: the time that closing was given, if any. `level_is_below`: all is to be durable in lower files.
  Closing(bool has_lower_files, bool level_is_below, std::optional<Time> until)
      : gives_up_(has_lower_files && !until), level_is_below_(level_is_below), until_(until.value_or(kNever)) {}

  /// Whether waiting for what was written may end early.
  bool may_give_up() const { return gives_up_; }
  /// Waiting for what was written ends now. `silent`: lower files do not answer.
  bool gives_up(bool silent) const { return gives_up_ && level_is_below_ && silent; }
  /// Until when what is in flight to lower files may take, once nothing new begins and no one hears of a silence.
  Time limit(Time now, bool silent) const { return !gives_up_ ? until_ : silent ? now : now + kSilentAfter; }

 private:
  bool gives_up_;
  bool level_is_below_;
  Time until_;
};

}  // namespace ebb::planner
