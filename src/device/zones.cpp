#include "device/zones.hpp"

#include <cstring>
#include <xxhash.h>  // compiled into this file (ebb_xxhash): there is nothing to link

namespace ebb::device {
namespace {

Digest zone_digest(const Zones& zones, std::uint64_t number) {
  const XXH128_hash_t hash = XXH3_128bits(zones.place_of(number), zones.bytes_of(number));
  return {hash.low64, hash.high64};
}

void do_job(const FindDirtyZones& job) {
  std::uint32_t found = 0;
  for (std::uint32_t number = 0; number < job.zones.count(); ++number) {
    const Digest now = zone_digest(job.zones, number);
    Digest& known = job.tables.digests[number];
    if (!job.first && known == now) continue;
    known = now;
    job.tables.dirty[found++] = number;
  }
  *job.tables.counts = {found, 0, 0, 0};
}

void do_job(const GatherZones& job) {
  const ZonePacking packing = packing_of(job);
  std::byte* to = job.to + packing.begin;
  for (std::uint64_t i = 0; i < packing.packed; ++i, to += job.zones.zone) {
    const std::uint32_t number = job.tables.dirty[job.from + i];
    std::memcpy(to, job.zones.place_of(number), job.zones.bytes_of(number));
  }
  ZoneCounts& counts = *job.tables.counts;
  counts = {counts.dirty, packing.packed, packing.begin, packing.end};
}

void do_job(const ScatterZones& job) {
  for (std::uint32_t i = 0; i < job.n; ++i) {
    const auto [number, at] = job.list[i];
    std::memcpy(job.zones.place_of(number), job.packed + at, job.zones.bytes_of(number));
  }
}

void do_job(const SettleZones& job) {
  const std::uint32_t n = job.list ? job.n : job.zones.count();
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint64_t number = job.list ? job.list[i].zone : i;
    job.tables.digests[number] = zone_digest(job.zones, number);
  }
}

void do_job(const ChecksumZones& job) {
  for (std::uint64_t i = 0; i < job.zones.bytes / job.zones.zone; ++i) job.sums[i] = zone_digest(job.zones, i);
}

}  // namespace

void do_zones(const ZoneJob& job) noexcept {
  std::visit([](const auto& one) { do_job(one); }, job);
}

}  // namespace ebb::device
