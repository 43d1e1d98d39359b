#include "sim/provisioning.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::sim {
namespace {

using planner::Endpoint;
using planner::ProvisionEvent;

Time time_for(Bytes bytes, std::uint64_t bytes_per_s) {
  return 1 + static_cast<Time>(static_cast<double>(bytes) * 1e9 / static_cast<double>(bytes_per_s));
}

bool by_call(const planner::Command& c) {
  return c.from.at.kind == Endpoint::application || c.to.at.kind == Endpoint::application;
}

}  // namespace

Provisioning::Provisioning(const MachineModel& machine, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    for (const ProvisionModel& model : machine.provisioned) {
      const planner::TierSpec& tier = machine.planner.tiers.at(static_cast<std::size_t>(model.tier));
      if (tier.medium == planner::Medium::file || model.touch_bytes_per_s == 0 || model.pin_bytes_per_s == 0)
        throw std::invalid_argument("the memory of tier " + tier.name + " cannot be provisioned so");
      planner::ProvisionSpec spec = model.spec;
      spec.capacity = tier.capacity;
      submit(memories_.emplace_back(rank, model, spec), {}, 0);
    }
}

const Provisioning::Memory* Provisioning::find(int rank, const planner::Place& place) const {
  const auto found = std::ranges::find_if(memories_, [&](const Memory& memory) {
    return memory.rank == rank && place.at == Endpoint{Endpoint::tier, memory.model.tier} &&
           place.offset < memory.provisioner.spec().capacity;  // beyond it is memory that was lent, and is all there
  });
  return found == memories_.end() ? nullptr : &*found;
}

Provisioning::Memory* Provisioning::find(int rank, const planner::Place& place) {
  return const_cast<Memory*>(static_cast<const Provisioning*>(this)->find(rank, place));
}

void Provisioning::submit(Memory& memory, ProvisionEvent event, Time now) {
  event.now = now;
  const planner::ProvisionCommands out = memory.provisioner.on(event);
  for (const planner::ByteRange& range : out.touch) {
    const auto threads = static_cast<Bytes>(memory.model.spec.touchers);
    memory.touches.emplace_back(now + time_for(range.length * threads, memory.model.touch_bytes_per_s), range);
  }
  if (out.take_ticket) pin_queue_.push_back(&memory);
  if (out.pin) {
    memory.pinning = *out.pin;
    memory.pin_began = now;
    memory.pin_ends = now + memory.model.pin_latency + time_for(out.pin->length, memory.model.pin_bytes_per_s);
  }
  memory.wakeup = out.wakeup;
  memory.result.ready = memory.provisioner.state().ready;
  if (memory.result.ready == memory.provisioner.spec().capacity)
    memory.result.ready_at = std::min(memory.result.ready_at, now);
}

void Provisioning::produced(int rank, Bytes bytes, Time now) {
  for (Memory& memory : memories_)
    if (memory.rank == rank) submit(memory, {.kind = ProvisionEvent::produced, .length = bytes}, now);
}

// --- what waits ------------------------------------------------------------------------------------------------------

bool Provisioning::usable(int rank, const planner::Place& place, Bytes bytes) const {
  const Memory* const memory = find(rank, place);
  return memory == nullptr || place.offset + bytes <= memory->provisioner.state().ready;
}

bool Provisioning::waits(const Held& held, std::size_t count) const {
  if (!usable(held.rank, held.place(), held.bytes)) return true;
  const auto before = [&](const Held& other) {
    if (other.rank != held.rank || !other.command || !held.command) return false;
    const planner::Command &first = *other.command, &second = *held.command;
    if (by_call(first) != by_call(second)) return false;
    return by_call(first) ? first.request == second.request : first.link == second.link;
  };
  return std::any_of(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(count), before);
}

bool Provisioning::hold(Held held, Time now) {
  if (Memory* const memory = find(held.rank, held.place())) {
    Bytes end = held.place().offset + held.bytes;
    // With its first chunk comes the rest of the replica.
    if (held.command) end += held.command->total - held.command->offset - held.command->length;
    submit(*memory, {.kind = ProvisionEvent::placed, .length = end}, now);
  }
  if (!waits(held, held_.size())) return false;
  held.since = now;
  held_.push_back(std::move(held));
  return true;
}

std::optional<Provisioning::Held> Provisioning::release(Time now) {
  for (std::size_t h = 0; h < held_.size(); ++h) {
    if (waits(held_[h], h)) continue;
    Held one = std::move(held_[h]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(h));
    if (Memory* const memory = find(one.rank, one.place())) memory->result.waited += now - one.since;
    return one;
  }
  return {};
}

bool Provisioning::holds_answer(planner::RequestId request) const {
  return std::ranges::any_of(held_, [&](const Held& one) { return !one.command && one.answer.request == request; });
}

// --- time ------------------------------------------------------------------------------------------------------------

Time Provisioning::next(Time now) const {
  if (!pin_queue_.empty() && pin_queue_.front()->pin_ends == planner::kNever) return now;
  Time at = planner::kNever;
  for (const Memory& memory : memories_) {
    at = std::min({at, memory.wakeup, memory.pin_ends});
    for (const auto& [end, range] : memory.touches) at = std::min(at, end);
  }
  return at;
}

bool Provisioning::advance(Time now) {
  if (!pin_queue_.empty() && pin_queue_.front()->pin_ends == planner::kNever) {
    Memory& first = *pin_queue_.front();
    submit(first, {.kind = ProvisionEvent::called}, now);
    if (first.pin_ends == planner::kNever) pin_queue_.pop_front();
    return true;
  }
  for (Memory& memory : memories_) {
    if (memory.pin_ends <= now) {
      memory.pin_ends = planner::kNever;
      pin_queue_.pop_front();
      const Time took = now - memory.pin_began;
      submit(memory, {ProvisionEvent::pinned, 0, memory.pinning.offset, memory.pinning.length, took}, now);
      return true;
    }
    const auto touched = std::ranges::find_if(memory.touches, [&](const auto& one) { return one.first <= now; });
    if (touched != memory.touches.end()) {
      const planner::ByteRange range = touched->second;
      memory.touches.erase(touched);
      submit(memory, {ProvisionEvent::touched, 0, range.offset, range.length}, now);
      return true;
    }
    if (memory.wakeup <= now) {
      submit(memory, {}, now);
      return true;
    }
  }
  return false;
}

std::vector<MemoryResult> Provisioning::results(int rank) const {
  std::vector<MemoryResult> out;
  for (const Memory& memory : memories_)
    if (memory.rank == rank) out.push_back(memory.result);
  return out;
}

}  // namespace ebb::sim
