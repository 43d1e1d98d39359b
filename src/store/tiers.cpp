#include "store/tiers.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/own_process.hpp"
#include "ebbtide/units.hpp"
#include "os/memory_left.hpp"
#include "os/memory_limits.hpp"

namespace ebb::store {
namespace {

using cache::TierMemory;

// An error that says what was asked for, why it cannot be had, what there is, and what to do about it.
Error for_tier(const planner::TierSpec& tier, const Error& error, device::Device& device) {
  std::string text =
      "the " + tier.name + " cache of " + format_bytes(tier.capacity) + " cannot be had: " + error.message;
  if (error.code == Errc::out_of_memory && !device.host_memory()) {
    const bool on_device = tier.medium == planner::Medium::device;
    text += "; " +
            (on_device ? format_bytes(device.free_bytes()) + " are free on " + std::string(device.name())
                       : format_bytes(os::available_host_memory()) + " of host memory are available") +
            ": ask for less with " + tier.name +
            "_cache=" + (on_device ? ", or free what the program itself, or another one, holds there" : "");
  }
  return {error.code, text};
}

// What can be seen not to be there is refused at once, not found out little by little. Memory that is taken at once is
// never refused by the system: at the end of a control group's a process is ended.
Result<void> enough(std::uint64_t bytes, planner::Medium medium, bool direct, device::Device& device,
                    std::uint64_t group_left) {
  const bool on_device = medium == planner::Medium::device && !device.host_memory();
  std::uint64_t there = UINT64_MAX;  // pages of ordinary memory come as they are written
  if (on_device) {
    there = device.free_bytes();
  } else if (direct) {
    there = std::min(os::available_host_memory(), group_left);
  } else if (!device.host_memory()) {
    there = os::available_host_memory();
  }
  if (bytes <= there) return {};
  return Error{Errc::out_of_memory, std::to_string(bytes) + " bytes are more than the " + std::to_string(there) +
                                        " that are free" + (on_device ? " on " + std::string(device.name()) : "")};
}

bool at_once(const planner::TierSpec& tier, const options::EngineSetup& setup) {
  if (tier.medium == planner::Medium::device) return setup.device_arena == DeviceArena::direct;
  return setup.host_arena == HostArena::direct && !setup.make_host_memory;
}

Result<std::unique_ptr<TierMemory>> make_memory(const planner::TierSpec& tier, device::Device& device,
                                                const options::EngineSetup& setup, std::uint64_t group_left,
                                                cache::MemoryOptions options) {
  const bool direct = at_once(tier, setup);
  if (auto there = enough(tier.capacity, tier.medium, direct, device, group_left); !there) return there.error();
  if (tier.medium == planner::Medium::device) {
    return direct ? cache::direct_device_memory(device, tier.capacity)
                  : cache::mapped_device_memory(device, tier.capacity, std::move(options));
  }
  if (setup.make_host_memory) return setup.make_host_memory(device, tier.capacity, std::move(options));
  return direct ? cache::direct_host_memory(device, tier.capacity)
                : cache::incremental_host_memory(device, tier.capacity, std::move(options),
                                                 setup.provision.value_or(cache::usual_provision()));
}

}  // namespace

Result<std::shared_ptr<Tiers>> Tiers::create(const options::Seams& seams, const options::EngineSetup& setup,
                                             Changed changed, std::shared_ptr<trace::ProvisionLog> log) {
  std::shared_ptr<Tiers> tiers(new Tiers(), base::InOwnProcess());
  tiers->device_ = seams.device;
  const auto group = os::cgroup_memory(*seams.files);           // where there is none it is not asked for each piece
  std::uint64_t group_left = group ? group->left : UINT64_MAX;  // falls with what is taken at once
  const std::uint64_t available = std::min(os::available_host_memory(), group_left);
  const auto options_of = [&](const std::string& name, const std::string& logged, std::uint64_t keep) {
    cache::MemoryOptions options;
    options.changed = changed;
    options.clock = seams.clock;
    const auto left_of_group = [files = seams.files, limited = group.has_value()] {
      const auto now = limited ? os::cgroup_memory(*files) : std::nullopt;
      return now ? now->left : UINT64_MAX;
    };
    options.touch = [left_of_group, keep](std::byte* memory, std::size_t bytes) {
      return os::touch_if_left(memory, bytes, keep, left_of_group());
    };
    options.left = [left_of_group, keep](std::size_t bytes) { return os::check_left(bytes, keep, left_of_group()); };
    options.map_piece = setup.map_piece;
    if (setup.log) {
      options.trouble = [log = setup.log, name](const std::string& text) { log.warning(name + ": " + text); };
    }
    if (log) options.record = [log, logged](const auto&... step) { log->add(logged, step...); };
    if (!seams.device->host_memory()) options.queue = std::make_unique<os::NodePinQueue>();
    return options;
  };
  // The rings first: whatever passes them has no other way.
  const auto options_of_ring = [&](planner::NodeIndex node) {
    return options_of("staging ring", "ring:" + setup.machine.nodes.at(static_cast<std::size_t>(node)).name, 0);
  };
  if (auto made = tiers->make_rings(setup, options_of_ring); !made) return made.error();
  for (const planner::TierSpec& tier : setup.machine.tiers) {
    cache::MemorySegments& row = tiers->rows_.emplace_back();
    const auto& device = tiers->devices_.emplace_back(seams.device_of(tier.node));
    if (tier.medium == planner::Medium::file) continue;
    auto options = options_of(tier.name + " cache", tier.name, os::memory_to_keep(available, setup.local_ranks));
    if (tier.medium == planner::Medium::host && setup.pool) {
      options.addresses = setup.pool->memory;
      options.touch = [claim = setup.pool->claim, first = setup.pool->memory.get()](std::byte* memory,
                                                                                    std::size_t bytes) -> Result<void> {
        if (auto there = claim(static_cast<std::uint64_t>(memory - first) + bytes); !there) return there;
        return os::populate(memory, bytes);
      };
    }
    auto made = make_memory(tier, *device, setup, group_left, std::move(options));
    if (!made) return for_tier(tier, made.error(), *device);
    const bool of_host = tier.medium != planner::Medium::device || device->host_memory();
    if (of_host && at_once(tier, setup)) group_left -= std::min(group_left, tier.capacity);
    row.add(std::move(*made), (tier.capacity + tier.granule - 1) / tier.granule * tier.granule);
  }
  return tiers;
}

Result<void> Tiers::make_rings(const options::EngineSetup& setup,
                               const std::function<cache::MemoryOptions(planner::NodeIndex)>& options) {
  const planner::Machine& machine = setup.machine;
  for (const planner::NodeIndex node : planner::nodes_passed(machine)) {
    const auto slots = static_cast<std::size_t>(machine.nodes.at(static_cast<std::size_t>(node)).staging);
    const bool direct = setup.host_arena == HostArena::direct;  // which the device itself refuses
    if (auto there = enough(2 * machine.ring_slot * slots, planner::Medium::host, false, *device_, UINT64_MAX);
        !direct && !there) {
      return Error{there.error().code, "the staging ring cannot be had: " + there.error().message};
    }
    // Beside a pool of many processes each would cost memory that few checkpoints pass through.
    auto ring = cache::StagingRing::create(*device_, machine.ring_slot, slots, direct, options(node),
                                           setup.provision.value_or(planner::ProvisionSpec{}).pin_deadline,
                                           /*ahead=*/!setup.pool);
    if (!ring) return ring.error();
    rings_.emplace_back(node, std::move(*ring));
  }
  return {};
}

void Tiers::stop() {
  for (auto& [node, ring] : rings_) ring.stop();
  for (const auto& row : rows_) {
    for (std::size_t s = 0; s < row.count(); ++s) row[s].memory->stop();
  }
}

void Tiers::keep_what_is_lent() {
  rings_.clear();
  while (rows_.size() > 1) rows_.pop_back();
}

void Tiers::lose(planner::TierIndex tier, planner::SegmentId segment) {
  rows_.at(static_cast<std::size_t>(tier))[segment].lost.store(true, std::memory_order_release);
}

bool Tiers::lost(const planner::Place& place) const {
  if (adopted(place)) return false;
  return rows_.at(static_cast<std::size_t>(place.at.index)).holding(place.offset).lost.load(std::memory_order_acquire);
}

Tiers::Where Tiers::where(const planner::Place& place, std::uint64_t bytes) const {
  if (place.at.kind == planner::Endpoint::ring) {
    for (const auto& [node, ring] : rings_)
      if (node == place.at.index) return {&ring.memory(), ring.end_of(place.offset, bytes) - bytes, true};
    throw std::logic_error("a place is in the staging ring of a node that nothing passes through");
  }
  if (place.at.kind == planner::Endpoint::application || adopted(place)) return {};
  const cache::MemorySegments& row = rows_.at(static_cast<std::size_t>(place.at.index));
  if (row.count() == 0) return {};
  const cache::MemorySegment& segment = row.holding(place.offset);
  return {segment.memory.get(), place.offset - segment.first};
}

std::byte* Tiers::at(const planner::Place& place) const {
  if (adopted(place)) return reinterpret_cast<std::byte*>(place.offset - planner::kAdopted);
  const Where there = where(place, 0);
  if (there.memory == nullptr) throw std::logic_error("a place that is not memory was asked for its address");
  return there.memory->data() + there.offset;
}

Tiers::Usable Tiers::use_of(const planner::Place& place, std::uint64_t bytes) const {
  const Where there = where(place, bytes);
  if (there.memory == nullptr || there.memory->ready() >= there.offset + bytes) return Usable::now;
  if (there.memory->limit() >= there.offset + bytes) return Usable::later;
  // What passes the ring has no other way: its pages come as they are written, and are copied unregistered.
  return there.in_ring ? Usable::now : Usable::never;
}

void Tiers::want(const planner::Place& place, std::uint64_t bytes) {
  if (const Where there = where(place, bytes); there.memory) there.memory->want(there.offset + bytes);
}

void Tiers::discard(const planner::Place& place, std::uint64_t bytes) {
  const Where there = where(place, 0);
  if (there.memory == nullptr || there.in_ring || lost(place)) return;
  const std::uint64_t ready = there.memory->ready();
  device::Device& device = *devices_.at(static_cast<std::size_t>(place.at.index));
  if (ready > there.offset) device.discard(there.memory->data() + there.offset, std::min(bytes, ready - there.offset));
}

void Tiers::produced(std::uint64_t bytes) {
  for (const auto& row : rows_) {
    for (std::size_t s = 0; s < row.count(); ++s) row[s].memory->produced(bytes);
  }
}

std::uint64_t Tiers::limit(planner::TierIndex tier, planner::SegmentId segment) const {
  return rows_.at(static_cast<std::size_t>(tier))[segment].memory->limit();
}

ArenaStats Tiers::stats(planner::TierIndex tier) const {
  const auto& row = rows_.at(static_cast<std::size_t>(tier));
  ArenaStats sum;
  if (row.count() == 0) {  // it has no memory of its own but the rings
    for (const auto& [node, ring] : rings_) sum.trouble = ring.memory().report().trouble;
    return sum;
  }
  for (std::size_t s = 0; s < row.count(); ++s) {
    const cache::MemoryReport r = row[s].memory->report();
    if (s == 0) {
      sum = {r.strategy, r.ready, r.limit, r.touched, r.pinned, r.mapped, r.piece, r.pieces, r.huge_pages, r.trouble};
      continue;
    }
    sum.ready += r.ready, sum.limit += r.limit, sum.touched += r.touched;
    sum.pinned += r.pinned, sum.mapped += r.mapped, sum.pieces += r.pieces;
  }
  return sum;
}

// Asks one memory after the other, since the locks of their borders must not be held together.
std::vector<std::uint64_t> Tiers::borders_in(const planner::Place& from, const planner::Place& to,
                                             std::uint64_t bytes) const {
  std::vector<std::uint64_t> ends;
  for (const planner::Place* place : {&from, &to}) {
    const Where there = where(*place, bytes);
    if (there.memory == nullptr) continue;
    there.memory->for_each_part(there.offset, bytes, [&](std::size_t at, std::size_t length) {
      if (const std::uint64_t end = at + length - there.offset; end < bytes) ends.push_back(end);
    });
  }
  if (ends.size() > 1) {
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }
  return ends;
}

void Tiers::begin_copy(const planner::Command& command) {
  for (const planner::Place* place : {&command.from, &command.to}) {
    if (const Where there = where(*place, command.length); there.memory)
      there.memory->copy_begun(there.offset, command.length);
  }
}

void Tiers::end_copy(const planner::Command& command) {
  for (const planner::Place* place : {&command.from, &command.to}) {
    if (const Where there = where(*place, command.length); there.memory)
      there.memory->copy_ended(there.offset, command.length);
  }
}

}  // namespace ebb::store
