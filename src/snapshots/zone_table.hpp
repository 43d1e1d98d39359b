#pragma once
// Where the bytes of each zone of protected memory are stored, as of the last snapshot that was archived: what the next
// map is made of.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "planner/snapshot_chain.hpp"
#include "snapshots/cut.hpp"
#include "snapshots/restored_memory.hpp"

namespace ebb::snapshots {

/// A map, and the bytes of a whole piece of each of its sources.
struct MadeMap {
  storage::ZoneMap map;
  std::vector<std::uint64_t> piece_bytes;
};

/// The source of each zone of protected memory. Not thread-safe.
class ZoneTable {
 public:
  /// The map of a cut whose pieces have these bytes when they are full; `edges` are where its edges are stored, in the
  /// order of the parts. Afterwards the table is as of this cut. std::logic_error: a zone is stored nowhere.
  struct StoredEdge {
    std::uint64_t offset = 0;
    storage::Checksum sum{};
  };
  MadeMap add(const Cut& cut, std::uint64_t piece_bytes, std::uint64_t packed_bytes, std::span<const StoredEdge> edges);

  /// A stored zone with these bytes. None where a map could name no source more.
  std::optional<SharedZone> equal(const ProtectedMemory& memory, std::uint32_t zone, const storage::Checksum& sum);

  /// Zones of this memory, from `first` on, have the bytes of these pieces of a snapshot.
  void adopt(const std::shared_ptr<const ProtectedMemory>& memory, std::uint32_t first,
             const storage::StoredSnapshot& from, std::span<const RestoredZones::StoredZones> pieces);

  /// The sources that an increment would lean on. `dirty` has a value for each zone. Empty for other memory.
  std::vector<planner::SnapshotSource> sources(const ProtectedMemory& memory,
                                               std::span<const std::uint8_t> dirty) const;
  /// Calls `function` with each zone that is stored in one of these versions.
  template <class Function>
  void for_each_in(std::span<const Version> versions, Function&& function) const {
    for (std::uint32_t zone = 0; zone < zones_.size(); ++zone) {
      if (zones_[zone].source == kNowhere) continue;
      const Version version = sources_[zones_[zone].source].source.version;
      if (std::ranges::binary_search(versions, version)) function(zone);
    }
  }
  /// The ids of all sources that it names.
  std::vector<storage::SnapshotId> ids() const;

 private:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;
  struct Zone {
    std::uint32_t source = kNowhere;
    std::uint64_t offset = 0;
    storage::Checksum sum{};
  };
  struct Source {
    storage::ZoneMap::Source source;
    std::uint64_t piece_bytes = 0;
    std::uint64_t stored = 0;  // bytes of its zones, not counting what is empty in its pieces
    std::uint64_t zones = 0;   // that have their bytes there
  };
  void begin(const std::shared_ptr<const ProtectedMemory>& memory);
  void index();
  std::uint32_t place_of(const Source& source);
  void drop_unused();
  void count();

  std::shared_ptr<const ProtectedMemory> memory_;
  std::vector<Zone> zones_;
  std::vector<Source> sources_;        // ascending by cut
  std::vector<std::uint32_t> by_sum_;  // zones that are stored, by their checksums; empty: to be made
};

}  // namespace ebb::snapshots
