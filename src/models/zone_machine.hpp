#pragma once
// The memory-zone hardware of "GPU Snapshot" (ICS'19), which does not exist, in virtual time: what a program loses to
// one snapshot. The planner's SnapshotPlan decides, as in the runtime; the machine has the zone table, the link and the
// offload units, and carries out what it commands. docs/planning.md says what comes out.
#include <optional>
#include <string>
#include <string_view>

#include "models/zone_program.hpp"
#include "models/zone_table.hpp"

namespace ebb::models {

// The paper's modes (sec. 5.1), by the parts of their names.
struct ZoneMode {
  bool nonblocking = false;  // NB: the program goes on after the cut
  bool incremental = false;  // I: what is dirty. Otherwise F: everything
  bool fine = false;         // FG: zones of 4 KiB, not 64
  bool hints = false;        // H: the device hears of each zone that is stored. Otherwise of the whole snapshot alone
  bool device = false;  // D: zones are gathered in a double buffer of the device, those first that a write waits for
};

// "NB+I-FG+H+D"; none for what is not a mode. Without NB there is no H: nothing is written meanwhile.
std::optional<ZoneMode> zone_mode(std::string_view name);

struct ZoneHardware {
  std::uint32_t channels = 32;
  Bytes table_cache = 2048;    // of each channel
  double link_rate = 4e9;      // bytes a second to the host: 32 lanes of PCIe 4.0 among 16 GPUs
  double link_half = 40168;    // bytes; with it a transfer of 64 KiB has 62% of the rate
  double memory_rate = 450e9;  // of copies within the device, bytes a second: each byte is read and written
  Time round_trip = 25'000;    // between device and host
  Bytes buffer = 256'000'000;  // D: of all slots
  std::uint32_t slots = 2;
  double reserve = planner::kReserveOfDevice;  // D: the share of a slot that only writes get
  std::uint32_t held_zones = 0;  // to which a channel holds writes, before it rejects them and the program stalls
};

struct ZoneRun {
  Time lost = 0;         // of the program: blocked, or stalled
  Time stored = 0;       // since the cut: the host has everything
  Time first_stall = 0;  // since the cut; of the longest and all stalls below. kNever: there was none
  Time longest_stall = 0;
  std::uint64_t stalls = 0;
  std::uint64_t held = 0;  // writes that a channel held while the program went on
  planner::ZoneIndex owed = 0;
  Bytes written = 0;            // to the host
  std::uint64_t transfers = 0;  // over the link
  Bytes table = 0;
  ZoneTableTraffic traffic;
  planner::SnapshotCounters plan;
};

// One cut of the program's memory, from which on it runs until its last write is done and everything is stored.
// Deterministic. std::logic_error for a machine that cannot be.
ZoneRun run_zones(const ZoneHardware& hardware, const ZoneMode& mode, const ZoneProgram& program);

}  // namespace ebb::models
