#pragma once
// One snapshot from its cut on: what Snapshot looks at, and what the threads of the room hand to each other.
#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/store.hpp"
#include "planner/snapshot_plan.hpp"
#include "snapshots/protected_memory.hpp"
#include "storage/format/zone_map.hpp"

namespace ebb::snapshots {

/// The mutex of a store's snapshots, which outlives them while a Snapshot is held. Nothing allocates, frees or touches
/// protected memory while it holds it: a writer that waits for the fault thread may hold any lock, malloc's as well.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;

  // What is to be stored may have no room until something is dropped: it goes on then. A wait for it asks, and ends
  // early if an attempt that began later found that.
  std::uint64_t asked = 0, answered = 0;   // waits so far; those before the last such attempt
  std::shared_ptr<const Error> held_up{};  // what it found
  std::uint64_t ask() {
    const std::lock_guard lock(mutex);
    changed.notify_all();
    return ++asked;
  }
  std::shared_ptr<const Error> held_up_since(std::uint64_t ask) const {  // locked
    return answered >= ask ? held_up : nullptr;
  }
};

/// Zones in a piece: piece `piece` has `zones`, one behind the other, with these checksums.
struct StoredPiece {
  std::uint32_t piece = 0;
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> zones;
  std::vector<storage::Checksum> sums;
};

/// Where a snapshot's bytes are.
struct StoredSource {
  storage::ZoneMap::Source source;
  std::uint64_t piece_bytes = 0;
};

/// A zone that has the bytes of another one, which are stored from `offset` on.
struct SharedZone {
  std::uint32_t zone = 0;
  std::uint64_t offset = 0;
  storage::Checksum sum{};
  std::optional<StoredSource> in = {};  // none: in its own cut
};

class DeviceCopies;

struct Cut {
  const std::shared_ptr<Board> board = {};
  const std::int64_t process = 0;
  const Version version = 0;
  const std::string metadata = {};
  const std::shared_ptr<const ProtectedMemory> memory = {};
  const storage::SnapshotId id = {};
  const bool dedup = false;                   // equal zones are stored once
  const bool share = false;                   // with `dedup`: and not if what it leans on has them
  std::vector<std::byte> edges = {};          // the bytes of all edges at the cut, one behind the other
  planner::CutIndex index = 0;                // set at the cut
  std::shared_ptr<DeviceCopies> device = {};  // what it has of arrays on a GPU; null: nothing

  // By the thread that drains, then, once `drained`, by the one that archives.
  std::vector<StoredPiece> pieces = {};
  std::vector<SharedZone> shared = {};
  std::map<storage::Checksum, std::uint64_t> places = {};  // with `dedup`: of whole zones, by their checksums

  // By the board's mutex.
  bool read = false;                       // all of it is in the buffer
  std::array<std::uint64_t, 2> tickets{};  // with `read`: of the watches; once confirmed, no memory was gone before
  bool copied = false;                     // and that is known
  bool on_device = false;                  // something of it may still be read from arrays on a GPU
  bool drained = false;                    // nothing of it is in the buffer
  bool failed = false;
  planner::SnapshotTrouble trouble = planner::SnapshotTrouble::none;  // with `failed`
  bool ended = false;                       // the map is written, or it has failed and `error` says why
  std::shared_ptr<const Error> error = {};  // why it failed, if that is known so far
  Future future = {};                       // with `ended`, if it did not fail: of the map

  bool told = false;  // by the archiver's mutex: the call that took it reports its failure, so no other does
};

/// The methods of Snapshot, for any thread.
bool done(const Cut& cut, std::optional<std::string_view> level);
Result<void> wait(const Cut& cut, std::optional<std::string_view> level, std::optional<Seconds> timeout);
std::optional<Error> error_of(const Cut& cut);
enum class Reached : std::uint8_t { copied, end };
/// Waits until the cut is copied, or has ended: its map is written, or it has failed. Errors: timed_out; how it failed.
Result<void> wait_until(const Cut& cut, Reached what, std::optional<Seconds> timeout, const Interrupt& interrupted);

}  // namespace ebb::snapshots
