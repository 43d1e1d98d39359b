#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planner/track_choice.hpp"
#include "snapshots/cut_driver.hpp"
#include "snapshots/restored_memory.hpp"

namespace ebb::snapshots {

/// What a cut is owed of host memory, beside what faults and touch() have told.
struct FoundWrites {
  std::vector<ProtectedMemory::Zones> zones;
  std::vector<std::uint8_t> armed;  // for each body
  bool blocks = false;              // writes to some of it would not be seen: the call waits until it is copied
  bool untracked = true;            // no memory is tracked, before the cut or after it
};

/// How writes to protected host memory are found: the watches, and the way of each body, chosen by the user or by
/// itself.
///
/// Thread safety: one call at a time; the driver's own threads answer what the watches tell.
class HostTracking {
 public:
  HostTracking(std::shared_ptr<os::WriteWatches> watches, CutDriver& driver, std::uint32_t zone_bytes)
      : watches_(std::move(watches)), driver_(driver), zone_bytes_(zone_bytes) {}

  /// Watches this memory from now on, ascending by region and all in one way. Called before anything else is changed.
  /// Errors: unsupported, in_use, out_of_memory.
  Result<void> add(std::span<const Protection> made);
  struct Forget {
    std::shared_ptr<WatchThread> watch;
    os::PageRange pages;
  };
  /// Regions, ascending. Returns what has to be forgotten once the driver has begun without it; a watch of nothing else
  /// ends with the driver's use of it.
  std::vector<Forget> remove(std::span<const std::uint32_t> regions);
  /// This memory from now on, all of it dirty. No cut is in flight.
  void begin(std::shared_ptr<const ProtectedMemory> memory);
  void clear();

  /// `dirty` has a value for each zone, and gets 1 for what is found. Not `known`: what was written since the last cut
  /// is not. Error: lost.
  Result<void> find_written(FoundWrites& found, std::span<std::uint8_t> dirty, bool known);
  /// The cut is copied, so writes need not be seen before the next one.
  void copied(const FoundWrites& found);
  /// Watches a few zones of bodies that are not tracked.
  void sample();

  /// Everything of these bodies is about to be written, by a restore without `have`.
  void before_restore(const std::function<bool(const Body&)>& covered);
  bool declared(std::size_t body) const { return tracked_[body].track == Track::declared; }
  /// These zones of a body, in the map's numbers, were restored from a snapshot, and `lean` lets the next cut name its
  /// bytes. False: they are not known to be clean.
  bool adopt(std::size_t body, const storage::StoredSnapshot& from, const RestoredZones& restored,
             const std::function<bool()>& lean);

 private:
  // How writes to a body are found.
  struct Tracked {
    std::uint32_t region = 0;
    os::PageRange pages = {};
    Track track = Track::everything;          // never `automatic`
    std::shared_ptr<WatchThread> watch = {};  // Track::faults, Track::scan
    bool automatic = false;
    bool on = false;        // tracked since the last cut
    bool measured = false;  // and what is dirty was written since
    bool sampled = false;   // not tracked, but some of it watched
    planner::TrackChoice choice = planner::TrackChoice();
    std::vector<storage::Checksum> seen = {};  // Track::digest: at the last cut
  };
  Result<Track> choose_track(Track wanted);
  Result<std::shared_ptr<WatchThread>> watch_for(Track track);
  Result<void> watch_bodies(WatchThread& watch, const ProtectedMemory& memory, bool arm);
  bool used(const std::shared_ptr<WatchThread>& watch) const;
  void end_unused();
  Result<void> compare(const Body& body, Tracked& tracked, FoundWrites& found);
  Result<void> take_notes(const Body& body, Tracked& tracked, FoundWrites& found);

  const std::shared_ptr<os::WriteWatches> watches_;
  CutDriver& driver_;
  const std::uint32_t zone_bytes_;
  std::shared_ptr<WatchThread> faults_, notes_;  // made at need, and anew when they have failed; not without a body
  std::vector<Tracked> tracked_;                 // for each body
  std::shared_ptr<const ProtectedMemory> memory_ = std::make_shared<ProtectedMemory>();
  std::vector<os::WatchAbility> abilities_;
};

}  // namespace ebb::snapshots
