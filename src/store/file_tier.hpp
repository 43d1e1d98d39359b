#pragma once
// One file tier of an open store: what stores its bytes.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "options/defaults.hpp"
#include "storage/persistent_storage.hpp"
#include "storage/segments/checksum_workers.hpp"
#include "store/catalog.hpp"
#include "store/parts.hpp"

namespace ebb::store {

/// Owns a storage, and stops it.
///
/// Thread safety: storage() and persistent() may be called from any thread between open and stop(); everything else by
/// one thread, or with the port's mutex held.
/// 1. An object is known to the storage from begin(), or its first put, until it was dropped.
class FileTier {
 public:
  /// What the storage reports, on its threads. The last three are those of a storage that outlives the process.
  struct Reports {
    storage::Done done;
    storage::BytesRead carried{};
    storage::Persisted persisted{};
    storage::DropsReleased released{};
  };
  /// The `number`-th file tier of the machine, from 0; `index`: among all tiers.
  FileTier(std::size_t number, planner::TierIndex index, std::filesystem::path directory)
      : number_(number), index_(index), directory_(std::move(directory)) {
    if (number > 0) apart_ = std::make_unique<storage::ChecksumWorkers>(1);
  }

  std::size_t number() const { return number_; }
  planner::TierIndex index() const { return index_; }
  const std::filesystem::path& directory() const { return directory_; }

  /// In an unnamed file. Error invalid_argument: the directory is a store that outlives the process.
  Result<void> open_scratch(os::Files& files, const options::EngineSetup& setup, const Reports& reports);
  /// In segment files; the slowest of a machine with EngineSetup::veloc, in VELOC's.
  Result<void> open_segments(const options::Seams& seams, const options::EngineSetup& setup, const Reports& reports);
  /// In one that is open.
  void take(std::unique_ptr<storage::Storage> storage) { storage_ = std::move(storage); }
  bool is_open() const { return storage_ != nullptr; }
  /// Of a directory that may not answer for a while: the thread that makes files there, in place of the callers'.
  /// Null: they do it themselves.
  storage::ChecksumWorkers* apart() const { return apart_.get(); }

  storage::Storage& storage() { return *storage_; }
  const storage::Storage& storage() const { return *storage_; }
  /// Null: what is there ends with the process.
  storage::PersistentStorage* persistent() const { return storage_ ? storage_->persistent() : nullptr; }
  /// The planner has freed an object. `failed`: it could not be read.
  void release(const FileObject& object, bool failed);
  /// What is complete becomes durable now.
  void commit() {
    if (auto* const kept = persistent()) kept->commit();
  }
  /// Logs the damage that was found when the files were opened.
  void warn_of_damage(const base::Log& log) const;
  /// False: its files did not answer in time; it goes on stopping for as long as that takes.
  bool stop(planner::Time until, PlannerPort& port, Lifetime& lifetime, const base::Log& log);
  /// After stop().
  void close() { storage_.reset(); }

 private:
  Result<void> refuse_persistent_store(os::Files& files) const;
  void stop_now();

  const std::size_t number_;
  const planner::TierIndex index_;
  const std::filesystem::path directory_;
  std::unique_ptr<storage::Storage> storage_;
  std::unique_ptr<storage::ChecksumWorkers> apart_;
  std::thread stopping_;  // stops the storage, with a time limit
  bool stopped_ = false;  // by the port's mutex
};

/// How segment files are opened for a tier.
storage::PersistentOptions persistent_options(const options::EngineSetup& setup, const FileTier& tier);

}  // namespace ebb::store
