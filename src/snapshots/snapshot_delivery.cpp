#include "snapshots/snapshot_delivery.hpp"

#include <algorithm>

#include "os/memory_guard.hpp"
#include "store/layout.hpp"
#include "store/piece.hpp"

namespace ebb::snapshots {

using device::Digest;
using device::PlacedZone;
using storage::StoredSnapshot;
using storage::ZoneMap;
using storage::ZonePiece;
using storage::ZonesInPiece;

namespace {

std::size_t zones_of(SnapshotDelivery::Chunks chunks) {
  std::size_t zones = 0;
  for (const ZonesInPiece& chunk : chunks) zones += chunk.zones.zones.count;
  return zones;
}

}  // namespace

SnapshotDelivery::SnapshotDelivery(std::shared_ptr<device::Device> device, ZoneScratches& scratches,
                                   const StoredSnapshot& snapshot, std::span<const PlacedRegion> regions,
                                   std::optional<device::StreamId> on)
    : device_(std::move(device)), scratches_(scratches), snapshot_(snapshot), stream_(on), given_(on.has_value()) {
  std::size_t target = 0;
  for (std::size_t i = 0; i < snapshot.layout.parts.size(); ++i) {
    const storage::SnapshotLayout::RegionPart& part = snapshot.layout.parts[i];
    if (snapshot.info.regions[target].id != part.region) ++target;
    std::byte* const memory = regions[target].memory + part.at;
    const ZoneMap::Region& region = snapshot.map.regions[i];
    const bool aligned = reinterpret_cast<std::uintptr_t>(memory) % device::kZoneAlignment == 0;
    const bool placeable = aligned && region.zone_bytes <= device::kMostZone;
    regions_.push_back({memory, placeable && region.bytes > 0 && device_->owns(memory, region.bytes)});
  }
}

SnapshotDelivery::~SnapshotDelivery() {
  if (scratch_) scratches_.put_back(std::move(scratch_));
  if (stream_ && !given_) device_->destroy_stream(*stream_);
  if (event_) device_->destroy_event(*event_);
}

bool SnapshotDelivery::on_device(Chunks chunks) const {
  return std::ranges::all_of(chunks,
                             [&](const ZonesInPiece& chunk) { return regions_[chunk.zones.zones.region].on_device; });
}

Result<void> SnapshotDelivery::begin() {
  if (event_) return {};
  if (!stream_) {
    auto stream = device_->create_stream();
    if (!stream) return stream.error();
    stream_ = *stream;
  }
  auto event = device_->create_event();
  if (!event) return event.error();
  Result<void> done;
  if (!given_) {
    done = device_->record(*event, device::kLegacyStream);
    if (done) done = device_->stream_wait(*stream_, *event);
  }
  if (done)
    event_ = *event;
  else
    device_->destroy_event(*event);
  return done;
}

Result<void> SnapshotDelivery::finish() {
  if (auto recorded = device_->record(*event_, *stream_); !recorded) return recorded;
  return device_->wait(*event_);
}

Result<std::optional<SnapshotDelivery::Mismatch>> SnapshotDelivery::place(Chunks chunks, const std::byte* piece) {
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const ZonePiece& zones = chunks[i].zones;
    if (const auto zone = storage::first_mismatch(snapshot_.map, zones, {piece + zones.offset, zones.bytes}))
      return std::optional<Mismatch>({i, *zone});
  }
  const bool inline_copies = device_->host_memory();
  if (!inline_copies)
    if (auto begun = begin(); !begun) return begun.error();
  Result<void> done;
  for (const ZonesInPiece& chunk : chunks) {
    const std::uint32_t region = chunk.zones.zones.region;
    std::byte* const to = regions_[region].memory + chunk.zones.at;
    if (inline_copies && !os::try_copy(to, piece + chunk.zones.offset, chunk.zones.bytes))
      return store::unusable_memory(snapshot_.layout.parts[region].region, false);
    if (!inline_copies && done) done = device_->copy(*stream_, to, piece + chunk.zones.offset, chunk.zones.bytes);
  }
  if (!inline_copies)
    if (const auto finished = finish(); done) done = finished;
  if (!done) return done.error();
  return std::optional<Mismatch>();
}

Result<void> SnapshotDelivery::make_room(std::size_t zones) {
  if (scratch_ && scratch_->zones >= zones) return {};
  if (scratch_) scratches_.put_back(std::move(scratch_));
  auto taken = scratches_.take(device_, zones);
  if (!taken) return taken.error();
  scratch_ = std::move(*taken);
  return {};
}

Result<std::optional<SnapshotDelivery::Mismatch>> SnapshotDelivery::place_on_device(Chunks chunks,
                                                                                    const std::byte* piece) {
  if (auto begun = begin(); !begun) return begun.error();
  const std::vector<Stretch> stretches = stretches_of(chunks);
  const std::size_t slots = stretches.back().first + stretches.back().slots;
  if (auto room = make_room(std::max(zones_of(chunks), slots)); !room) return room.error();
  auto wrong = check_on_device(chunks, stretches, piece);
  if (!wrong || *wrong) return wrong;
  if (auto placed = scatter(chunks, piece); !placed) return placed.error();
  return wrong;
}

std::vector<SnapshotDelivery::Stretch> SnapshotDelivery::stretches_of(Chunks chunks) const {
  std::vector<Stretch> out;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const ZonePiece& zones = chunks[i].zones;
    const std::uint64_t zone_bytes = snapshot_.map.regions[zones.zones.region].zone_bytes;
    const bool follows = !out.empty() && out.back().zone_bytes == zone_bytes && zones.offset >= out.back().offset &&
                         (zones.offset - out.back().offset) % zone_bytes == 0;
    if (!follows)
      out.push_back({0, zones.offset, zone_bytes, 0, out.empty() ? 0 : out.back().first + out.back().slots});
    Stretch& last = out.back();
    last.end = i + 1;
    last.slots = std::max(last.slots, (zones.offset - last.offset + zones.bytes) / zone_bytes);
  }
  return out;
}

// Sums are computed where the bytes are, and compared here. A short zone comes here and is summed here.
Result<std::optional<SnapshotDelivery::Mismatch>> SnapshotDelivery::check_on_device(Chunks chunks,
                                                                                    std::span<const Stretch> stretches,
                                                                                    const std::byte* piece) {
  std::vector<std::vector<std::byte>> short_zones(chunks.size());
  Result<void> done;
  for (const Stretch& one : stretches) {
    const device::Zones zones{const_cast<std::byte*>(piece) + one.offset,  // which is only read
                              one.slots * one.zone_bytes, static_cast<std::uint32_t>(one.zone_bytes)};
    if (done) done = device_->zones(*stream_, device::ChecksumZones{zones, scratch_->device.as<Digest>() + one.first});
  }
  for (std::size_t i = 0; i < chunks.size() && done; ++i) {
    const ZonePiece& zones = chunks[i].zones;
    const std::size_t rest = zones.bytes % snapshot_.map.regions[zones.zones.region].zone_bytes;
    if (rest == 0) continue;
    short_zones[i].resize(rest);
    done = device_->copy(*stream_, short_zones[i].data(), piece + zones.offset + zones.bytes - rest, rest);
  }
  const std::size_t sums = (stretches.back().first + stretches.back().slots) * sizeof(Digest);
  if (done) done = device_->copy(*stream_, scratch_->host.data(), scratch_->device.data(), sums);
  if (const auto finished = finish(); done) done = finished;
  if (!done) return done.error();

  const Stretch* in = stretches.data();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const ZonePiece& zones = chunks[i].zones;
    if (i == in->end) ++in;
    const Digest* const sum = scratch_->host.as<Digest>() + in->first + (zones.offset - in->offset) / in->zone_bytes;
    for (std::uint32_t zone = 0; zone < zones.zones.count; ++zone) {
      const bool is_short = !short_zones[i].empty() && zone + 1 == zones.zones.count;
      const auto found =
          is_short ? storage::checksum_of(short_zones[i]) : storage::checksum_from(sum[zone].low, sum[zone].high);
      if (found != snapshot_.map.sums[zones.sum + zone]) return std::optional<Mismatch>({i, zone});
    }
  }
  return std::optional<Mismatch>();
}

// One list of all places, by region: each is a job.
Result<void> SnapshotDelivery::scatter(Chunks chunks, const std::byte* piece) {
  std::vector<const ZonesInPiece*> order;
  for (const ZonesInPiece& chunk : chunks) order.push_back(&chunk);
  std::ranges::stable_sort(order, {}, [](const ZonesInPiece* one) { return one->zones.zones.region; });
  const std::size_t sums = scratch_->zones * sizeof(Digest);
  PlacedZone* const list = reinterpret_cast<PlacedZone*>(scratch_->host.data() + sums);
  auto* const there = reinterpret_cast<PlacedZone*>(scratch_->device.data() + sums);
  std::uint32_t n = 0;
  for (const ZonesInPiece* chunk : order) {
    const ZonePiece& zones = chunk->zones;
    const std::uint64_t zone_bytes = snapshot_.map.regions[zones.zones.region].zone_bytes;
    for (std::uint32_t i = 0; i < zones.zones.count; ++i)
      list[n++] = {zones.zones.first + std::uint64_t{i}, zones.offset + i * zone_bytes};
  }
  auto done = device_->copy(*stream_, there, list, n * sizeof(PlacedZone));
  n = 0;
  for (auto at = order.begin(); at != order.end() && done;) {
    const std::uint32_t number = (*at)->zones.zones.region;
    std::uint32_t count = 0;
    for (; at != order.end() && (*at)->zones.zones.region == number; ++at) count += (*at)->zones.zones.count;
    const ZoneMap::Region& region = snapshot_.map.regions[number];
    const device::Zones to{regions_[number].memory, region.bytes, region.zone_bytes};
    done = device_->zones(*stream_, device::ScatterZones{to, there + n, count, piece});
    n += count;
  }
  if (const auto finished = finish(); done) done = finished;
  return done;
}

}  // namespace ebb::snapshots
