#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "snapshots/archive.hpp"
#include "snapshots/cut_driver.hpp"

namespace ebb::snapshots {

/// Ends the cuts of a store, one after the other, on a thread of its own, and remembers which could not be stored.
///
/// Thread safety: every method may be called from any thread, but start() and join() by one at a time.
/// 1. not_stored() reports a failure each time, until the version is dropped or stored. After told(), it does not.
class Archiver {
 public:
  Archiver(CutList& cuts, CutDriver& driver, Archive& archive) : cuts_(cuts), driver_(driver), archive_(archive) {}
  void start();
  /// The driver was stopped.
  void join();

  /// Why a snapshot that was taken is not in the store: of this version, or of any.
  Result<void> not_stored(store::Engine& engine, std::optional<Version> version);
  /// This version, or all, were dropped, so it does not matter any more whether they were stored.
  void dropped(std::optional<Version> version);
  /// The call that took the cut reports its failure itself.
  void told(Cut& cut);

 private:
  void run();

  CutList& cuts_;
  CutDriver& driver_;
  Archive& archive_;
  std::mutex mutex_;
  std::map<Version, Error> lost_;  // by the mutex, until the version is dropped or stored
  std::thread thread_;
};

}  // namespace ebb::snapshots
