#pragma once
// What works on a store beside its callers, and has to end before that closes.
#include "ebbtide/store.hpp"

namespace ebb::runtime {

/// Thread safety: every method may be called from any thread, more than once, and from several at the same time.
class Attached {
 public:
  virtual ~Attached() = default;
  /// What is under way of `version` of the store's own history (none: of all its versions) is awaited, so that the
  /// store's calls find it. Errors: timed_out; how it failed, also if that was before.
  virtual Result<void> settle(std::optional<Version> version, std::optional<Seconds> timeout,
                              const Interrupt& interrupted) = 0;
  /// What became of this version (none: of any) is of no concern any more.
  virtual void dropped(std::optional<Version> version) = 0;
  /// A snapshot of this version is under way: no other call may write that version.
  virtual bool in_flight(Version version) = 0;
  /// Engine::restore of the store's own history, which may write to memory that it looks after.
  virtual Result<void> restore(Version version, std::span<const Target> targets, const RestoreOptions& options) = 0;
  /// The store is about to close: what is under way ends or fails, nothing new begins. The store still takes every
  /// call. Error timed_out: it was interrupted; it goes on, and begins nothing new. Any other: how something failed.
  virtual Result<void> end(const Interrupt& interrupted) = 0;
};

}  // namespace ebb::runtime
