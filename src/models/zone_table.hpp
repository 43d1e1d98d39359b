#pragma once
// The zone table of the memory-zone hardware (ics19 sec. 4.1.3, 4.1.4 and 4.2.3): two bits a zone in device memory, by
// memory channel, behind a cache at each channel.
#include <array>
#include <cstdint>
#include <vector>

#include "planner/snapshot_plan.hpp"

namespace ebb::models {

using planner::Bytes;

enum class ZonePlane : std::uint8_t {
  owed,    // the zone is not known to be stored: writes to it must wait
  written  // since the cut
};

// What the monitors read of the table in memory, 32 bytes at a time.
struct ZoneTableTraffic {
  std::uint64_t hits = 0, misses = 0, written_back = 0;
};

// Consecutive zones are on consecutive channels. A sector of 32 bytes has one bit of 256 zones of one channel.
class ZoneTable {
 public:
  static constexpr Bytes kSector = 32;
  static constexpr std::uint32_t kSectorZones = 256;

  ZoneTable(planner::ZoneIndex zones, std::uint32_t channels, Bytes cache);  // of each channel; at least a sector

  Bytes bytes(int planes = 2) const { return Bytes{channels_} * sectors_ * kSector * static_cast<unsigned>(planes); }
  std::uint32_t channel(planner::ZoneIndex zone) const { return zone % channels_; }

  // What the offloader writes. A cached sector is brought up to date with it (4.1.4), which costs no memory traffic.
  void put(ZonePlane plane, planner::ZoneIndex zone, bool bit) { bits(plane)[zone] = bit; }
  bool get(ZonePlane plane, planner::ZoneIndex zone) const { return bits_[static_cast<unsigned>(plane)][zone]; }

  // What a channel's monitor does for a write that it sees: through its cache.
  bool check_owed(planner::ZoneIndex zone);
  bool mark_written(planner::ZoneIndex zone);  // whether it was not before

  const ZoneTableTraffic& traffic() const { return traffic_; }

 private:
  struct Line {
    std::uint64_t sector = UINT64_MAX;
    bool changed = false;
  };
  std::vector<bool>& bits(ZonePlane plane) { return bits_[static_cast<unsigned>(plane)]; }
  Line& cached(ZonePlane plane, planner::ZoneIndex zone);

  std::uint32_t channels_;
  std::uint32_t sectors_;  // of a channel, in one plane
  std::uint32_t lines_;    // of a channel's cache, which is direct-mapped
  std::array<std::vector<bool>, 2> bits_;
  std::vector<Line> cache_;
  ZoneTableTraffic traffic_;
};

}  // namespace ebb::models
