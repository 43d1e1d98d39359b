#pragma once
// Calls that bring checkpoints back.
#include <algorithm>
#include <memory>
#include <span>

#include "store/machinery.hpp"

namespace ebb::store {

/// Calls become events, and end with the planner's answers. `engine` is kept open by what a call returns.
///
/// Thread safety: every method may be called from any thread of the process that opened the store.
class Reads : OnMachinery {
 public:
  explicit Reads(Machinery& parts) : OnMachinery(parts) {}

  enum class Reading {
    whole,   // a checkpoint, not a snapshot
    stored,  // the checkpoint itself, also where that is the map of a snapshot
    look,    // likewise; it stays, and so do its hints (the first one is put to the front)
  };
  /// False: it is a snapshot, which was not asked for as `stored`. Nothing was done.
  Result<bool> restore(planner::HistoryId history, Version version, std::span<const Target> targets,
                       const RestoreOptions& options, Reading reading);
  Result<Future> restore_async(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                               std::span<const Target> targets, const RestoreOptions& options);
  Result<Loan> borrow(const std::shared_ptr<Engine>& engine, planner::HistoryId history, Version version,
                      const RestoreOptions& options);
  Result<void> release(Loan::Impl& hold, bool keep, const HandBack& how);
  /// The loan's handle has ended, and no stream was named on which it is still read.
  void release_unordered(Loan::Impl& hold);
  /// Memory that was handed back with `hold` is looked at no longer.
  void end_hold(Hold& hold);
  /// `call(options)`, again where it met bytes that another process was just replacing: what is durable is given, as of
  /// the call.
  template <class Call>
  auto until_settled(planner::HistoryId history, Version version, const RestoreOptions& options, Call&& call);

 private:
  Result<void> prepare_restore(const Locked& locked, CallRow& request, const Record* record,
                               std::span<const Target> targets, bool some);
  Result<Loan> borrow_once(std::shared_ptr<Engine> engine, planner::HistoryId history, Version version,
                           const RestoreOptions& options);
};

template <class Call>
auto Reads::until_settled(planner::HistoryId history, Version version, const RestoreOptions& options, Call&& call) {
  if (!setup_.readonly) return call(options);
  RestoreOptions left = options;
  const planner::Time begun = port_.now();
  for (;;) {
    const auto before = recovery_.objects_of_version(port_.lock(), history, version);
    auto result = call(left);
    if (result) return result;
    Locked locked = port_.lock();
    if (auto error = recovery_.settle(locked, history, version, result.error(), before)) {
      return decltype(result)(std::move(*error));
    }
    const Seconds passed(static_cast<double>(port_.now() - begun) * 1e-9);
    if (options.timeout) left.timeout = std::max(Seconds(0), *options.timeout - passed);
  }
}

}  // namespace ebb::store
