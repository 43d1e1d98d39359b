#pragma once
// Which versions a snapshot leans on. Its map names, for every zone, the version that stores its bytes (its *source*):
// a restore reads each source once and walks no chain. Here is decided how many sources there may be.
//
// ics19 sec. 4.2 has increments, and leaves their restore to the host; the bound on its time is ours.
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::planner {

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

}  // namespace ebb::planner
