#pragma once
// The file tiers of an open store: how they are opened together, paired and stopped.
#include <functional>
#include <memory>
#include <vector>

#include "options/defaults.hpp"
#include "storage/scan/pairing.hpp"
#include "store/file_tier.hpp"

namespace ebb::store {

/// Owns the file tiers, fastest first: scratch, or those that outlive the process.
///
/// Thread safety: the tiers, persistent() and check_names() may be used from any thread between open() and stop();
/// everything else is called by one thread, or takes the port's Locked.
class FileTiers {
 public:
  FileTiers(PlannerPort& port, Lifetime& lifetime, const options::Seams& seams, options::EngineSetup& setup)
      : port_(port), lifetime_(lifetime), seams_(seams), setup_(setup) {}

  /// Makes the tiers that the machine has, not open yet, and the directory that a pool's shared ones are in.
  Result<void> make();
  /// Called before any thread is there. Opens what is not open, and completes the setup by what the storages say of
  /// themselves. `reports`: of a tier, by its number. Error invalid_argument: also where two directories do not belong
  /// together.
  Result<void> open(const std::function<FileTier::Reports(std::size_t)>& reports);
  /// Called when all is open, and before anything is written: two directories belong together from here on.
  Result<void> pair() { return pair(storage::pair_directories); }
  /// Opening has failed before anything was written: stop() takes away the stores that it has made.
  void unmake(const Locked& locked);
  /// Logs the damage that was found when the files were opened.
  void warn_of_damage() const;
  /// Stops the storages. False: their files did not answer in time; they go on stopping for as long as that takes.
  /// `below`: the limit for those below the fastest.
  bool stop(planner::Time until, planner::Time below);
  /// After stop().
  void close();

  auto begin() const { return tiers_.begin(); }
  auto end() const { return tiers_.end(); }
  bool empty() const { return tiers_.empty(); }
  std::size_t size() const { return tiers_.size(); }
  const std::unique_ptr<FileTier>& operator[](std::size_t number) const { return tiers_[number]; }
  FileTier& fastest() const { return *tiers_.front(); }
  FileTier& slowest() const { return *tiers_.back(); }
  FileTier& at(planner::TierIndex tier) const { return *tiers_.at(port_.file_number(tier)); }
  /// Whether what is in the files outlives the process.
  bool persistent() const { return persistent_; }
  /// The sequence of the next record in any of several tiers, which tells which of two records of one version was
  /// written last. 0: there is one tier, which counts by itself.
  std::uint64_t take_sequence(const Locked& /*locked*/) { return tiers_.size() > 1 ? next_sequence_++ : 0; }
  /// The name and regions of a checkpoint, with such a sequence. Null: the tiers do not outlive the process.
  std::shared_ptr<const storage::Description> describe(const Locked& locked, const Catalog& catalog,
                                                       const Record& record);
  /// The error if something that was reported durable on a file tier has no name in its directory any more.
  Result<void> check_names(Locked& locked, std::size_t file);

 private:
  Result<void> pair(decltype(storage::check_pair)& how_far);
  Result<void> open(FileTier& tier, const FileTier::Reports& reports);

  PlannerPort& port_;
  Lifetime& lifetime_;
  const options::Seams& seams_;
  options::EngineSetup& setup_;                   // constant after open()
  std::vector<std::unique_ptr<FileTier>> tiers_;  // likewise
  bool persistent_ = false;                       // all of them outlive the process
  std::uint64_t next_sequence_ = 1;               // by the port's mutex; above those of all records that there are
};

}  // namespace ebb::store
