#include "models/zone_machine.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "models/zone_transfers.hpp"

namespace ebb::models {
namespace {

using planner::SnapshotCommand;
using planner::SnapshotEvent;
using planner::SnapshotPlan;
using planner::SnapshotSpec;
using planner::ZoneIndex;

ZoneIndex zones_in(Bytes bytes, Bytes zone) { return static_cast<ZoneIndex>((bytes + zone - 1) / zone); }

// Without D a slot is one transfer over the link, and the host has the buffer.
SnapshotSpec spec_of(const ZoneHardware& hardware, const ZoneMode& mode, Bytes memory, Bytes zone) {
  SnapshotSpec spec{.zones = zones_in(memory, zone)};
  spec.duplicate = mode.device;
  spec.hints = mode.hints;
  spec.longest_wait = planner::kNever / 2;
  spec.slots = mode.device ? hardware.slots : 2;
  spec.slot_zones = mode.device ? static_cast<std::uint32_t>(hardware.buffer / spec.slots / zone) : 1;
  spec.reserve = mode.device ? static_cast<std::uint32_t>(hardware.reserve * spec.slot_zones) : 0;
  spec.copies = mode.device ? hardware.channels : 1;
  return spec;
}

class Machine {
 public:
  Machine(const ZoneHardware& hardware, const ZoneMode& mode, const ZoneProgram& program)
      : hardware_(hardware),
        mode_(mode),
        program_(program),
        zone_(mode.fine ? kZonePage : kZoneBlock),
        half_trip_(mode.device ? 0 : hardware.round_trip / 2),
        plan_(spec_of(hardware, mode, program.memory, zone_)),
        table_(plan_.spec().zones, hardware.channels, hardware.table_cache),
        link_(hardware.link_rate, hardware.link_half),
        units_(hardware.channels, hardware.memory_rate),
        slot_bytes_(plan_.spec().slots),
        held_(hardware.channels),
        holds_(plan_.spec().zones),
        noticed_(plan_.spec().zones) {
    run_.first_stall = planner::kNever;
  }

  ZoneRun run() {
    cut();
    if (!mode_.nonblocking) {
      while (!stored_) step();
      run_.lost = now_;
    }
    for (const ZoneWrite& write : program_.after) {
      const Time at = write.at + run_.lost;
      while (!steps_.empty() && steps_.top().at <= at) step();
      now_ = std::max(now_, at);
      this->write(zone_of(write.page));
    }
    // The program ends when its last write does.
    stall_while([&] { return holding_ > 0; });
    while (!steps_.empty()) step();
    run_.table = table_.bytes();
    run_.traffic = table_.traffic();
    run_.plan = plan_.counters();
    run_.written = run_.plan.gathered;
    return run_;
  }

 private:
  struct Step {
    enum Kind : std::uint8_t {
      copied,   // a zone: to the host, or with D to the buffer
      drained,  // a slot
      notice,   // the offloader hears that a write waits for the zone
      hint,     // the device hears that the zone may be written
      stored    // the device's register: the whole snapshot is
    } kind;
    Time at = 0;
    std::uint64_t order = 0;
    ZoneIndex zone = 0;
    std::uint32_t slot = 0;
  };
  // At the same time a notice comes first: the offloader knows of the write when it chooses what to do next.
  struct Later {
    static auto key(const Step& step) { return std::tuple(step.at, step.kind != Step::notice, step.order); }
    bool operator()(const Step& a, const Step& b) const { return key(a) > key(b); }
  };

  ZoneIndex zone_of(std::uint32_t page) const { return static_cast<ZoneIndex>(page / (zone_ / kZonePage)); }
  Bytes bytes_of(ZoneIndex zone) const { return std::min(zone_, program_.memory - zone * zone_); }

  void push(Step step) {
    step.order = ++order_;
    steps_.push(step);
  }

  void tell(SnapshotEvent event) {
    event.now = now_;
    auto commands = plan_.on(event);
    for (;;) {
      for (const SnapshotCommand& command : commands.list) carry_out(command);
      if (!commands.more) return;
      commands = plan_.on({.now = now_});
    }
  }

  // Everything was stored before, but for what the interval before the cut wrote.
  void cut() {
    const ZoneIndex zones = plan_.spec().zones;
    tell({.kind = SnapshotEvent::protect, .count = zones});
    tell({.kind = SnapshotEvent::restored, .count = zones});
    for (const std::uint32_t page : program_.before) tell({.kind = SnapshotEvent::touch, .zone = zone_of(page)});
    if (mode_.incremental) {
      plan_.for_each_dirty([&](ZoneIndex zone) { table_.put(ZonePlane::owed, zone, true); });
    } else {
      for (ZoneIndex zone = 0; zone < zones; ++zone) table_.put(ZonePlane::owed, zone, true);
    }
    tell({.kind = mode_.incremental ? SnapshotEvent::cut : SnapshotEvent::full_cut});
  }

  void carry_out(const SnapshotCommand& command) {
    switch (command.kind) {
      case SnapshotCommand::begun: run_.owed = command.count; break;
      case SnapshotCommand::copy:
      case SnapshotCommand::duplicate: copy(command); break;
      case SnapshotCommand::drain: drain(command.slot); break;
      case SnapshotCommand::answer: push({.kind = Step::hint, .at = now_ + half_trip_, .zone = command.zone}); break;
      // Who is blocked in the call is told by the host itself.
      case SnapshotCommand::copied:
        push({.kind = Step::stored, .at = now_ + (mode_.nonblocking ? half_trip_ : 0)});
        break;
      case SnapshotCommand::drained: run_.stored = now_; break;
      case SnapshotCommand::wait: break;
      case SnapshotCommand::failed: throw std::logic_error("a snapshot of the zone machine failed");
    }
  }

  void copy(const SnapshotCommand& command) {
    const Bytes bytes = bytes_of(command.zone);
    slot_bytes_[command.slot] += bytes;
    run_.transfers += !mode_.device;
    const Time end =
        mode_.device ? units_.end_of(table_.channel(command.zone), now_, bytes) : link_.end_of(now_, bytes);
    push({.kind = Step::copied, .at = end, .zone = command.zone, .slot = command.slot});
  }

  void drain(std::uint32_t slot) {
    run_.transfers += mode_.device;
    const Time end = mode_.device ? link_.end_of(now_, slot_bytes_[slot]) : now_;
    slot_bytes_[slot] = 0;
    push({.kind = Step::drained, .at = end, .slot = slot});
  }

  void step() {
    const Step step = steps_.top();
    steps_.pop();
    now_ = step.at;
    switch (step.kind) {
      case Step::copied:
        tell({.kind = SnapshotEvent::copied, .zone = step.zone, .slot = step.slot, .bytes = bytes_of(step.zone)});
        if (mode_.hints) push({.kind = Step::hint, .at = now_ + half_trip_, .zone = step.zone});
        break;
      case Step::drained: tell({.kind = SnapshotEvent::drained, .slot = step.slot}); break;
      case Step::notice: tell({.kind = SnapshotEvent::fault, .zone = step.zone}); break;
      case Step::hint: free(step.zone); break;
      case Step::stored:
        stored_ = true;
        for (ZoneIndex zone = 0; zone < plan_.spec().zones && holding_ > 0; ++zone) free(zone);
        break;
    }
  }

  bool owed(ZoneIndex zone) const { return !stored_ && table_.get(ZonePlane::owed, zone); }

  // The channel's monitor sees a write. It does not look at the table when the register says that all is stored.
  void write(ZoneIndex zone) {
    if (!stored_ && table_.check_owed(zone)) {
      notice(zone);
      std::uint32_t& held = held_[table_.channel(zone)];
      stall_while([&] { return owed(zone) && !holds_[zone] && held >= hardware_.held_zones; });
      if (owed(zone)) return hold(zone);
    }
    arrive(zone);
  }

  void notice(ZoneIndex zone) {
    if (noticed_[zone]) return;
    noticed_[zone] = true;
    push({.kind = Step::notice, .at = now_ + half_trip_, .zone = zone});
  }

  void hold(ZoneIndex zone) {
    ++run_.held;
    if (holds_[zone]) return;
    holds_[zone] = true;
    ++held_[table_.channel(zone)];
    ++holding_;
  }

  void free(ZoneIndex zone) {
    table_.put(ZonePlane::owed, zone, false);
    if (!holds_[zone]) return;
    holds_[zone] = false;
    --held_[table_.channel(zone)];
    --holding_;
    arrive(zone);
  }

  // A write changes memory. The plan knows of those that it answered.
  void arrive(ZoneIndex zone) {
    if (table_.mark_written(zone)) tell({.kind = SnapshotEvent::touch, .zone = zone});
  }

  template <class Condition>
  void stall_while(Condition&& condition) {
    const Time since = now_;
    while (condition()) {
      if (steps_.empty()) throw std::logic_error("a write of the zone machine waits for nothing");
      step();
    }
    if (now_ == since) return;
    run_.lost += now_ - since;
    run_.longest_stall = std::max(run_.longest_stall, now_ - since);
    run_.first_stall = std::min(run_.first_stall, since);
    ++run_.stalls;
  }

  const ZoneHardware& hardware_;
  const ZoneMode mode_;
  const ZoneProgram& program_;
  const Bytes zone_;
  const Time half_trip_;
  SnapshotPlan plan_;
  ZoneTable table_;
  ZoneLink link_;
  OffloadUnits units_;
  std::vector<Bytes> slot_bytes_;
  std::vector<std::uint32_t> held_;  // by channel: zones to which it holds writes
  std::vector<bool> holds_;          // by zone: writes to it are held
  std::vector<bool> noticed_;
  std::uint64_t holding_ = 0;
  std::priority_queue<Step, std::vector<Step>, Later> steps_;
  std::uint64_t order_ = 0;
  Time now_ = 0;
  bool stored_ = false;
  ZoneRun run_;
};

}  // namespace

std::optional<ZoneMode> zone_mode(std::string_view name) {
  ZoneMode mode;
  const auto took = [&](std::string_view part) {
    if (!name.starts_with(part)) return false;
    const std::string_view rest = name.substr(part.size());
    if (!rest.empty() && (rest.front() != '+' || rest.size() == 1)) return false;
    name = rest.empty() ? rest : rest.substr(1);
    return true;
  };
  mode.nonblocking = took("NB");
  mode.fine = took("I-FG");
  mode.incremental = mode.fine || took("I");
  if (!mode.incremental && !took("F")) return {};
  mode.hints = mode.nonblocking && took("H");
  mode.device = took("D");
  if (!name.empty()) return {};
  return mode;
}

ZoneRun run_zones(const ZoneHardware& hardware, const ZoneMode& mode, const ZoneProgram& program) {
  const auto above_zero = [](double x) { return x > 0 && std::isfinite(x); };
  if (program.memory == 0 || program.memory / kZonePage >= planner::kNoZone)
    throw std::logic_error("memory: it is at least a page, and less than 16 TiB");
  if (hardware.channels == 0) throw std::logic_error("channels: there is at least one");
  if (!above_zero(hardware.link_rate)) throw std::logic_error("link_rate: it is above 0");
  if (!(hardware.link_half >= 0 && std::isfinite(hardware.link_half)))
    throw std::logic_error("link_half: it is at least 0");
  if (!above_zero(hardware.memory_rate)) throw std::logic_error("memory_rate: it is above 0");
  if (hardware.round_trip < 0) throw std::logic_error("round_trip: it is at least 0");
  if (!(hardware.reserve >= 0 && hardware.reserve < 1)) throw std::logic_error("reserve: it is a share below 1");
  if (hardware.slots == 0) throw std::logic_error("slots: there is at least one");
  if (mode.device && hardware.buffer / hardware.slots < kZoneBlock)
    throw std::logic_error("buffer: each of its slots holds a zone of 64 KiB");
  if (hardware.table_cache < ZoneTable::kSector) throw std::logic_error("table_cache: it holds a sector of 32 bytes");
  Time last = 0;
  for (const ZoneWrite& write : program.after) {
    if (write.at < last) throw std::logic_error("after: the times of writes go back");
    last = write.at;
    if (write.page >= (program.memory + kZonePage - 1) / kZonePage)
      throw std::logic_error("after: a write is outside memory");
  }
  for (const std::uint32_t page : program.before)
    if (page >= (program.memory + kZonePage - 1) / kZonePage)
      throw std::logic_error("before: a write is outside memory");
  return Machine(hardware, mode, program).run();
}

}  // namespace ebb::models
