#include "store/tiers.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/own_process.hpp"
#include "ebbtide/units.hpp"
#include "os/memory_left.hpp"
#include "os/memory_limits.hpp"

namespace ebb::runtime {
namespace {

using memory::TierMemory;

// What was asked for, why it cannot be had, what there is, and what to do about it.
Error for_tier(const policy::TierSpec& tier, const Error& error, platform::Device& device) {
  std::string text =
      "the " + tier.name + " cache of " + format_bytes(tier.capacity) + " cannot be had: " + error.message;
  if (error.code == Errc::out_of_memory && !device.host_memory()) {
    const bool on_device = tier.medium == policy::Medium::device;
    text += "; " +
            (on_device ? format_bytes(device.free_bytes()) + " are free on " + std::string(device.name())
                       : format_bytes(platform::available_host_memory()) + " of host memory are available") +
            ": ask for less with " + tier.name +
            "_cache=" + (on_device ? ", or free what the program itself, or another one, holds there" : "");
  }
  return {error.code, text};
}

// What can be seen not to be there is refused at once, not found out little by little. Memory that is taken at once is
// never refused by the system: at the end of a control group's a process is ended.
Result<void> enough(std::uint64_t bytes, policy::Medium medium, bool direct, platform::Device& device,
                    std::uint64_t group_left) {
  const bool on_device = medium == policy::Medium::device && !device.host_memory();
  std::uint64_t there = UINT64_MAX;  // pages of ordinary memory come as they are written
  if (on_device) {
    there = device.free_bytes();
  } else if (direct) {
    there = std::min(platform::available_host_memory(), group_left);
  } else if (!device.host_memory()) {
    there = platform::available_host_memory();
  }
  if (bytes <= there) return {};
  return Error{Errc::out_of_memory, std::to_string(bytes) + " bytes are more than the " + std::to_string(there) +
                                        " that are free" + (on_device ? " on " + std::string(device.name()) : "")};
}

bool at_once(const policy::TierSpec& tier, const EngineSetup& setup) {
  if (tier.medium == policy::Medium::device) return setup.device_arena == DeviceArena::direct;
  return setup.host_arena == HostArena::direct && !setup.make_host_memory;
}

Result<std::unique_ptr<TierMemory>> make_memory(const policy::TierSpec& tier, platform::Device& device,
                                                const EngineSetup& setup, std::uint64_t group_left,
                                                memory::MemoryOptions options) {
  const bool direct = at_once(tier, setup);
  if (auto there = enough(tier.capacity, tier.medium, direct, device, group_left); !there) return there.error();
  if (tier.medium == policy::Medium::device) {
    return direct ? memory::direct_device_memory(device, tier.capacity)
                  : memory::mapped_device_memory(device, tier.capacity, std::move(options));
  }
  if (setup.make_host_memory) return setup.make_host_memory(device, tier.capacity, std::move(options));
  return direct ? memory::direct_host_memory(device, tier.capacity)
                : memory::incremental_host_memory(device, tier.capacity, std::move(options),
                                                  setup.provision.value_or(memory::usual_provision()));
}

}  // namespace

Result<std::shared_ptr<Tiers>> Tiers::create(const Seams& seams, const EngineSetup& setup, Changed changed) {
  std::shared_ptr<Tiers> tiers(new Tiers(), InOwnProcess());
  tiers->device_ = seams.device;
  const auto group = platform::cgroup_memory(*seams.files);     // where there is none it is not asked for each piece
  std::uint64_t group_left = group ? group->left : UINT64_MAX;  // falls with what is taken at once
  const std::uint64_t available = std::min(platform::available_host_memory(), group_left);
  const auto options_of = [&](const std::string& name, std::uint64_t keep) {
    memory::MemoryOptions options;
    options.changed = changed;
    const auto left_of_group = [files = seams.files, limited = group.has_value()] {
      const auto now = limited ? platform::cgroup_memory(*files) : std::nullopt;
      return now ? now->left : UINT64_MAX;
    };
    options.touch = [left_of_group, keep](std::byte* memory, std::size_t bytes) {
      return platform::touch_if_left(memory, bytes, keep, left_of_group());
    };
    options.left = [left_of_group, keep](std::size_t bytes) {
      return platform::check_left(bytes, keep, left_of_group());
    };
    options.map_piece = setup.map_piece;
    if (setup.log) {
      options.trouble = [log = setup.log, name](const std::string& text) { log.warning(name + ": " + text); };
    }
    if (!seams.device->host_memory()) options.queue = std::make_unique<platform::NodePinQueue>();
    return options;
  };
  // The ring first: whatever passes it has no other way.
  if (std::ranges::any_of(setup.machine.tiers, [](const auto& tier) { return tier.medium == policy::Medium::file; })) {
    if (auto made = tiers->make_ring(setup, options_of("staging ring", 0)); !made) return made.error();
  }
  for (const policy::TierSpec& tier : setup.machine.tiers) {
    if (tier.medium == policy::Medium::file) {
      tiers->arenas_.emplace_back();
      continue;
    }
    auto options = options_of(tier.name + " cache", platform::memory_to_keep(available, setup.local_ranks));
    auto arena = make_memory(tier, *tiers->device_, setup, group_left, std::move(options));
    if (!arena) return for_tier(tier, arena.error(), *tiers->device_);
    const bool of_host = tier.medium != policy::Medium::device || tiers->device_->host_memory();
    if (of_host && at_once(tier, setup)) group_left -= std::min(group_left, tier.capacity);
    tiers->arenas_.push_back(std::move(*arena));
  }
  return tiers;
}

Result<void> Tiers::make_ring(const EngineSetup& setup, memory::MemoryOptions options) {
  const auto slots = static_cast<std::size_t>(setup.machine.nodes.at(policy::kHost).staging);
  const std::uint64_t bytes = 2 * setup.machine.ring_slot * slots;
  const bool direct = setup.host_arena == HostArena::direct;  // which the device itself refuses
  if (auto there = enough(bytes, policy::Medium::host, false, *device_, UINT64_MAX); !direct && !there) {
    return Error{there.error().code, "the staging ring cannot be had: " + there.error().message};
  }
  auto ring = memory::StagingRing::create(*device_, setup.machine.ring_slot, slots, direct, std::move(options),
                                          setup.provision.value_or(policy::ProvisionSpec{}).pin_deadline);
  if (!ring) return ring.error();
  ring_ = std::move(*ring);
  return {};
}

void Tiers::stop() {
  ring_.stop();
  for (const auto& arena : arenas_) {
    if (arena) arena->stop();
  }
}

void Tiers::keep_what_is_lent() {
  ring_ = {};
  for (std::size_t tier = 1; tier < arenas_.size(); ++tier) arenas_[tier].reset();
}

TierMemory* Tiers::arena(const policy::Place& place) const {
  return place.at.kind == policy::Endpoint::tier ? arenas_.at(static_cast<std::size_t>(place.at.index)).get() : nullptr;
}

std::byte* Tiers::at(const policy::Place& place) const {
  if (in_ring(place)) return ring_.at(place.offset);
  const TierMemory* const there = arena(place);
  if (there == nullptr) throw std::logic_error("a place that is not memory was asked for its address");
  return there->data() + place.offset;
}

std::pair<TierMemory*, std::uint64_t> Tiers::memory_of(const policy::Place& place, std::uint64_t bytes) const {
  if (in_ring(place)) return {&ring_.memory(), ring_.end_of(place.offset, bytes) - bytes};
  return {arena(place), place.offset};
}

Tiers::Use Tiers::use_of(const policy::Place& place, std::uint64_t bytes) const {
  const auto [there, offset] = memory_of(place, bytes);
  if (there == nullptr || there->ready() >= offset + bytes) return Use::now;
  if (there->limit() >= offset + bytes) return Use::later;
  // What passes the ring has no other way: its pages come as they are written, and are copied unregistered.
  return in_ring(place) ? Use::now : Use::never;
}

void Tiers::want(const policy::Place& place, std::uint64_t bytes) {
  if (const auto [there, offset] = memory_of(place, bytes); there) there->want(offset + bytes);
}

void Tiers::discard(const policy::Place& place, std::uint64_t bytes) {
  const TierMemory* const there = arena(place);
  const std::uint64_t ready = there == nullptr ? UINT64_MAX : there->ready();
  if (ready > place.offset) device_->discard(at(place), std::min(bytes, ready - place.offset));
}

void Tiers::produced(std::uint64_t bytes) {
  for (const auto& arena : arenas_) {
    if (arena) arena->produced(bytes);
  }
}

std::uint64_t Tiers::limit(policy::TierIndex tier) const {
  const auto& there = arenas_.at(static_cast<std::size_t>(tier));
  return there ? there->limit() : UINT64_MAX;
}

ArenaStats Tiers::stats(policy::TierIndex tier) const {
  const auto& there = arenas_.at(static_cast<std::size_t>(tier));
  if (!there) {
    ArenaStats of_ring;
    of_ring.trouble = ring_.memory().report().trouble;
    return of_ring;
  }
  const memory::MemoryReport r = there->report();
  constexpr bool sequential = false;  // touching does not pause beside copies
  return {r.strategy, r.ready,  r.limit,      r.touched,  r.pinned, r.mapped,
          r.piece,    r.pieces, r.huge_pages, sequential, r.trouble};
}

// One arena is asked after the other: their borders have locks, which are not to be held together.
std::vector<std::uint64_t> Tiers::part_ends(const policy::Place& from, const policy::Place& to,
                                            std::uint64_t bytes) const {
  std::vector<std::uint64_t> ends = {bytes};
  for (const policy::Place* place : {&from, &to}) {
    const auto [there, begin] = memory_of(*place, bytes);
    if (there == nullptr) continue;
    there->for_each_part(begin, bytes, [&](std::size_t at, std::size_t length) {
      if (const std::uint64_t end = at + length - begin; end < bytes) ends.push_back(end);
    });
  }
  if (ends.size() > 1) {
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }
  return ends;
}

void Tiers::begin_copy(const policy::Command& command) {
  for (const policy::Place* place : {&command.from, &command.to}) {
    if (const auto [memory, offset] = memory_of(*place, command.length); memory)
      memory->copy_begun(offset, command.length);
  }
}

void Tiers::end_copy(const policy::Command& command) {
  for (const policy::Place* place : {&command.from, &command.to}) {
    if (const auto [memory, offset] = memory_of(*place, command.length); memory)
      memory->copy_ended(offset, command.length);
  }
}

}  // namespace ebb::runtime
