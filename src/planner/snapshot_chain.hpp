#pragma once
// Which versions a snapshot leans on. Its map names, for every zone, the version that stores its bytes (its *source*):
// a restore reads each source once and walks no chain. Here is decided how many sources there may be, and counted which
// versions stay because a map names them.
//
// ics19 sec. 4.2 has increments, and leaves their restore to the host; the bound on its time is ours.
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::policy {

// --- full, increment or merged

struct SnapshotSource {
  Version version = 0;
  Bytes stored = 0;  // all that it stores
  Bytes needed = 0;  // of zones that are not dirty now: what an increment would lean on it for
};

// What the last map leans on: `sources` and `dirty` have a value for each zone; the last zone of an array may be
// smaller, which does not matter here. Descending by version. O(zones), and O(1) a run of one source.
std::vector<SnapshotSource> sources_of(std::span<const Version> sources, std::span<const std::uint8_t> dirty,
                                       Bytes zone_bytes, const std::map<Version, Bytes>& stored);

struct RestoreRates {
  double request_s = 1e-4;  // for each source
  double bytes_s = 2e9;     // read
  bool whole = false;       // a source is read whole, not only what is needed of it
};

struct ChainBounds {
  double restore = 1.2;  // of the time of a full one
  std::size_t sources = 8;
};

enum class SnapshotKind : std::uint8_t { full, increment, merged };

struct SnapshotChoice {
  SnapshotKind kind = SnapshotKind::full;
  std::vector<Version> merged;  // sources whose needed zones are stored again, ascending; all of them for `full`
  Bytes stores = 0;
  std::size_t sources = 1;  // that a restore of it reads, itself included
  double restore_s = 0;     // predicted, for it ...
  double full_s = 0;        // ... and for a full one
};

// The cheapest that is within the bounds: an increment; or one that stores the zones of some sources again, those first
// that save most time a byte and, where that is equal, the smaller and then the older; or a full one.
SnapshotChoice choose_snapshot(std::span<const SnapshotSource> sources, Bytes dirty, const RestoreRates& rates,
                               const ChainBounds& bounds = {});

// --- who is named by a live map

// What a map has of one source.
struct MapPart {
  Version source = 0;
  Bytes bytes = 0;
};

// Protected memory has a map as well, what the next increment leans on: add it under this name, storing nothing, and
// replace it by each cut's. The last snapshot may then be dropped, and its bytes stay.
inline constexpr Version kMemory = INT64_MIN;

// Not thread-safe. A version is *live* from `add` until `end` (it is dropped, consumed, or past keep_last). Its bytes
// are *held* as long as it is live or a live map names it.
// 1. A map names every source directly: what is held does not depend on maps that have ended.
// 2. What `add` was told is held until `end` says that it has gone, once.
class LiveMaps {
 public:
  // A version and its map, which may name only what is held, and itself: std::logic_error otherwise.
  void add(Version version, Bytes stored, std::span<const MapPart> parts);
  // The versions whose bytes go now, ascending: this one unless a live map names it, and ended ones that only its map
  // named. std::logic_error for one that is not live.
  std::vector<Version> end(Version version);
  // A live version was written anew, with another map. The versions whose bytes go now.
  std::vector<Version> replace(Version version, Bytes stored, std::span<const MapPart> parts);

  bool live(Version version) const;
  bool held(Version version) const { return versions_.contains(version); }
  // The live maps that name it, itself included, ascending: what is damaged if its bytes are.
  std::vector<Version> named_by(Version version) const;
  // Bytes of ended versions, which are held for others.
  Bytes held_for_others() const;

  // What of a version's bytes live maps name, at least: as many as the map that names most of it. (Maps of one history
  // name fewer and fewer of the same zones; of several branches, the union may be larger.)
  Bytes alive(Version version) const;
  struct Rewrite {
    Version map = 0;
    std::vector<Version> parents;  // to be stored by the map itself, so that they go (kMemory: by the next cut)
  };
  // The live maps with parents that have ended and are alive by less than `share` of what they store; ascending.
  std::vector<Rewrite> to_rewrite(double share = 0.5) const;

 private:
  struct Held {
    Bytes stored = 0;
    bool live = false;
    std::vector<MapPart> parts;       // of its map, while it is live: without itself
    std::map<Version, Bytes> naming;  // the live maps of others that name it
  };
  const Held& at(Version version) const;
  // The parts of others, if they may be named.
  std::vector<MapPart> checked(Version version, std::span<const MapPart> parts) const;
  void name(Version version, std::vector<MapPart> parts);
  std::vector<Version> unname(Version version);

  std::map<Version, Held> versions_;
};

}  // namespace ebb::policy
