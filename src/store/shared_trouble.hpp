#pragma once
// What is said of a shared directory that fails or does not answer.
#include <atomic>
#include <memory>
#include <span>
#include <string>

#include "options/defaults.hpp"
#include "store/file_tier.hpp"
#include "store/lifetime.hpp"
#include "store/parts.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// Logs the first trouble, and no further one until something has become durable there.
///
/// Thread safety: silent() may be called from any thread; everything else takes the port's Locked.
class SharedTrouble {
 public:
  SharedTrouble(PlannerPort& port, Lifetime& lifetime, const options::EngineSetup& setup)
      : port_(port), lifetime_(lifetime), setup_(setup) {}
  /// A write to the tier has failed.
  void note_failure(const Locked& locked, const FileTier& tier, const Error& why);
  /// The planner says which tiers do not answer, or do so again: the former is logged as a failure is.
  void note_silence(const Locked& locked, std::span<const std::unique_ptr<FileTier>> tiers,
                    const planner::Output& output);
  /// Something has become durable there: the next failure is logged again.
  void note_success(const Locked& /*locked*/) { noted_ = false; }
  /// Whether one does not answer now.
  bool silent() const { return silent_.load(std::memory_order_relaxed) != 0; }
  /// Logs what was noted. Releases the mutex if there is anything.
  void write(Locked& locked) {
    if (!text_.empty()) log(locked);
  }

 private:
  void note(const FileTier& tier, const std::string& what);
  void log(Locked& locked);

  PlannerPort& port_;
  Lifetime& lifetime_;
  const options::EngineSetup& setup_;
  // By the port's mutex.
  std::string text_;  // to be logged
  bool noted_ = false;
  std::atomic<std::uint32_t> silent_{0};  // tiers (bits); written with the port's mutex held
};

}  // namespace ebb::store
