#include "device/zone_tracker.hpp"

#include <bit>
#include <stdexcept>
#include <utility>

namespace ebb::device {
namespace {

bool zone_aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % kZoneAlignment == 0; }

// The tables of `zones` zones, one behind the other in memory that begins at `memory`; where they end goes to `end`.
ZoneTables lay_out(std::byte* memory, std::uint32_t zones, std::size_t& end) {
  ZoneTables tables;
  end = 0;
  const auto put = [&]<class T>(T*& table, std::size_t n) {
    table = reinterpret_cast<T*>(memory + end);
    end += (n * sizeof(T) + kZoneAlignment - 1) / kZoneAlignment * kZoneAlignment;
  };
  put(tables.counts, 1);
  put(tables.digests, zones);
  put(tables.changed, ZoneTables::changed_bytes(zones));
  put(tables.dirty, zones);
  put(tables.sums, ZoneTables::sums_of(zones));
  return tables;
}

}  // namespace

Result<ZoneTracker> ZoneTracker::make(std::shared_ptr<Device> device, std::byte* memory, std::size_t bytes,
                                      std::size_t zone) {
  if (zone < kLeastZone || zone > kMostZone || !std::has_single_bit(zone)) {
    throw std::logic_error("a zone is a power of two from 4 KiB to 1 MiB");
  }
  if (bytes == 0 || !zone_aligned(memory)) throw std::logic_error("memory with zones is aligned to 16, and not empty");
  if ((bytes - 1) / zone >= UINT32_MAX) throw std::logic_error("there are more zones than can be counted");
  const Zones zones{memory, bytes, static_cast<std::uint32_t>(zone)};
  std::size_t size = 0;
  lay_out(memory, zones.count(), size);
  Result<std::byte*> there = device->allocate(size);
  if (!there) return there.error();
  return ZoneTracker({*there, Free{std::move(device), size}}, zones);
}

ZoneTracker::ZoneTracker(std::unique_ptr<std::byte[], Free> owned, const Zones& zones)
    : owned_(std::move(owned)), zones_(zones) {
  std::size_t size = 0;
  tables_ = lay_out(owned_.get(), zones.count(), size);
}

Result<void> ZoneTracker::find(StreamId stream) {
  Result<void> enqueued = run(stream, FindDirtyZones{zones_, tables_, first_});
  if (enqueued) first_ = false;
  return enqueued;
}

Result<void> ZoneTracker::gather(StreamId stream, std::byte* to, std::size_t room, std::uint64_t from,
                                 const ZoneCounts* after) {
  if (!zone_aligned(to)) throw std::logic_error("zones are packed into memory aligned to 16");
  return run(stream, GatherZones{zones_, tables_, from, to, room, after});
}

Result<void> ZoneTracker::scatter(StreamId stream, const PlacedZone* list, std::uint32_t n, const std::byte* packed) {
  if (!zone_aligned(packed)) throw std::logic_error("packed zones are in memory aligned to 16");
  return run(stream, ScatterZones{zones_, list, n, packed});
}

Result<void> ZoneTracker::settle(StreamId stream) {
  Result<void> enqueued = run(stream, SettleZones{zones_, tables_, nullptr, 0});
  if (enqueued) first_ = false;
  return enqueued;
}

Result<void> ZoneTracker::settle(StreamId stream, const PlacedZone* list, std::uint32_t n) {
  if (!list) throw std::logic_error("the zones to be settled are listed in device memory");
  return run(stream, SettleZones{zones_, tables_, list, n});
}

}  // namespace ebb::device
