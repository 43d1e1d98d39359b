#include "models/zone_table.hpp"

#include <stdexcept>
#include <utility>

namespace ebb::models {
namespace {

std::uint32_t rounded_up(std::uint32_t a, std::uint32_t b) { return (a + b - 1) / b; }

}  // namespace

ZoneTable::ZoneTable(planner::ZoneIndex zones, std::uint32_t channels, Bytes cache)
    : channels_(channels), lines_(static_cast<std::uint32_t>(cache / kSector)) {
  if (channels == 0 || lines_ == 0)
    throw std::logic_error("a zone table without channels, or a cache without a sector");
  sectors_ = rounded_up(rounded_up(zones, channels), kSectorZones);
  bits_.fill(std::vector<bool>(zones));
  cache_.resize(std::size_t{channels_} * lines_);
}

ZoneTable::Line& ZoneTable::cached(ZonePlane plane, planner::ZoneIndex zone) {
  const std::uint64_t sector = zone / channels_ / kSectorZones * 2 + static_cast<unsigned>(plane);
  Line& line = cache_[std::size_t{channel(zone)} * lines_ + sector % lines_];
  if (line.sector == sector) {
    ++traffic_.hits;
    return line;
  }
  ++traffic_.misses;
  traffic_.written_back += line.changed;
  line = {.sector = sector};
  return line;
}

bool ZoneTable::check_owed(planner::ZoneIndex zone) {
  cached(ZonePlane::owed, zone);
  return get(ZonePlane::owed, zone);
}

bool ZoneTable::mark_written(planner::ZoneIndex zone) {
  Line& line = cached(ZonePlane::written, zone);
  if (get(ZonePlane::written, zone)) return false;
  line.changed = true;
  put(ZonePlane::written, zone, true);
  return true;
}

}  // namespace ebb::models
