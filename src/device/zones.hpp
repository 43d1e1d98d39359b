#pragma once
// Work on zones of a device's memory: which of them changed, packed into one buffer, and put back. Each job reads and
// writes device memory alone and is enqueued on a stream (Device::zones), so that the host never waits for it.
#include <cstddef>
#include <cstdint>
#include <variant>

#include "device/digest.hpp"
#include "device/on_both.hpp"

namespace ebb::device {

inline constexpr std::uint32_t kLeastZone = 4096, kMostZone = 1 << 20;
/// Packed zones begin at multiples of this, and so does the memory that has zones.
inline constexpr std::uint32_t kZoneAlignment = 16;

/// Memory, aligned to kZoneAlignment, in zones of `zone` bytes, a power of two; the last one may be short.
struct Zones {
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t zone = kLeastZone;

  EBB_ON_BOTH std::uint32_t count() const { return static_cast<std::uint32_t>((bytes + zone - 1) / zone); }
  EBB_ON_BOTH std::byte* place_of(std::uint64_t number) const { return memory + number * zone; }
  EBB_ON_BOTH std::uint32_t bytes_of(std::uint64_t number) const {
    const std::uint64_t left = bytes - number * zone;
    return left < zone ? static_cast<std::uint32_t>(left) : zone;
  }
};

/// What a cut found, in device memory; a copy on the same stream brings it to the host.
struct ZoneCounts {
  std::uint64_t dirty = 0;   // zones found to have changed
  std::uint64_t packed = 0;  // of them, packed by the last gather: fewer than asked for if the room was too small
  std::uint64_t begin = 0, end = 0;  // the bytes of the buffer that those take
};

/// What is known of the zones, in device memory.
struct ZoneTables {
  Digest* digests = nullptr;       // of each zone. Those of a GPU are digest_of(); the host's are XXH3's.
  std::uint32_t* dirty = nullptr;  // the numbers of dirty zones, ascending: the first ZoneCounts::dirty entries
  ZoneCounts* counts = nullptr;
  std::uint8_t* changed = nullptr;  // scratch, of changed_bytes(zones)
  std::uint32_t* sums = nullptr;    // scratch: sums_of(zones) entries

  static constexpr std::uint32_t kFlagsASum = 4096;
  static constexpr std::size_t changed_bytes(std::uint32_t zones) { return (std::size_t{zones} + 15) / 16 * 16; }
  static constexpr std::uint32_t sums_of(std::uint32_t zones) { return zones / kFlagsASum + 1; }
};

/// A zone, and where in a packed buffer it is; `at` is a multiple of kZoneAlignment.
struct PlacedZone {
  std::uint64_t zone = 0, at = 0;
};

/// Digests every zone, stores the digests and lists the zones whose digest is another than before; `first`: all zones,
/// whatever was stored. Sets counts to {dirty, 0, 0, 0}.
struct FindDirtyZones {
  Zones zones;
  ZoneTables tables;
  bool first = false;
};

/// Packs the dirty zones from the list's entry `from` on into `to`, one behind the other, as many as fit wholly into
/// its `room` bytes; only the last packed zone can be short. With `after` they begin where another gather into the same
/// buffer ended, rounded up to kZoneAlignment; that one is earlier on the same stream. Sets packed, begin and end.
struct GatherZones {
  Zones zones;
  ZoneTables tables;
  std::uint64_t from = 0;
  std::byte* to = nullptr;
  std::uint64_t room = 0;
  const ZoneCounts* after = nullptr;
};

/// Copies `n` zones from a packed buffer to their places; each is listed at most once. The list is device memory too.
struct ScatterZones {
  Zones zones;
  const PlacedZone* list = nullptr;
  std::uint32_t n = 0;
  const std::byte* packed = nullptr;
};

/// Stores the digests of `n` listed zones, or without a list of all, as they are now: these are clean against what the
/// memory holds.
struct SettleZones {
  Zones zones;
  ZoneTables tables;
  const PlacedZone* list = nullptr;
  std::uint32_t n = 0;
};

/// The XXH3-128 of whole zones, into device memory, as the stored map has them; a short last one is left out.
struct ChecksumZones {
  Zones zones;
  Digest* sums = nullptr;
};

using ZoneJob = std::variant<FindDirtyZones, GatherZones, ScatterZones, SettleZones, ChecksumZones>;

/// On the calling thread, in ordinary memory.
void do_zones(const ZoneJob& job) noexcept;

/// What a gather packs, given what was found.
struct ZonePacking {
  std::uint64_t packed = 0, begin = 0, end = 0;
};
EBB_ON_BOTH ZonePacking packing_of(const GatherZones& job) {
  const std::uint64_t found = job.tables.counts->dirty, zone = job.zones.zone;
  const std::uint64_t wanted = found > job.from ? found - job.from : 0;
  std::uint64_t begin = job.after ? (job.after->end + kZoneAlignment - 1) / kZoneAlignment * kZoneAlignment : 0;
  if (begin > job.room) begin = job.room;
  const std::uint64_t room = job.room - begin;
  std::uint64_t packed = room / zone < wanted ? room / zone : wanted, bytes = packed * zone;
  if (wanted > 0) {
    const std::uint32_t last = job.zones.bytes_of(job.tables.dirty[found - 1]);
    if (packed == wanted) {
      bytes -= zone - last;
    } else if (packed + 1 == wanted && last <= room - bytes) {
      ++packed;
      bytes += last;
    }
  }
  return {packed, begin, begin + bytes};
}

}  // namespace ebb::device
