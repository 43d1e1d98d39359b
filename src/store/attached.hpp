#pragma once
// Work on a store that is not a call's, and has to end before the store closes: snapshots.
#include "ebbtide/store.hpp"

namespace ebb::store {

/// Thread safety: every method may be called from any thread, more than once, and from several at the same time.
class Attached {
 public:
  virtual ~Attached() = default;
  /// Waits until `version` of the store's own history (none: all its versions) is no longer under way, so that the
  /// store's calls find it. Errors: timed_out; how it failed, also if that was before.
  virtual Result<void> settle(std::optional<Version> version, std::optional<Seconds> timeout,
                              const Interrupt& interrupted) = 0;
  /// This version (none: every version) was dropped: settle() and end() report no failure of it any more.
  virtual void dropped(std::optional<Version> version) = 0;
  /// Whether a snapshot of this version is under way, so that no other call may write it.
  virtual bool in_flight(Version version) = 0;
  /// Engine::restore of the store's own history, which may write to memory that it looks after.
  virtual Result<void> restore(Version version, std::span<const Target> targets, const RestoreOptions& options) = 0;
  /// The store is about to close: what is under way ends or fails, nothing new begins. The store still takes every
  /// call. Error timed_out: it was interrupted; it goes on, and begins nothing new. Any other: how something failed.
  virtual Result<void> end(const Interrupt& interrupted) = 0;
};

}  // namespace ebb::store
