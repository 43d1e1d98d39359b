#include "planner/zone_buffer.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ebb::planner {

ZoneBuffer::ZoneBuffer(std::uint32_t slots, std::uint32_t slot_zones) : slot_zones_(slot_zones), slots_(slots) {
  if (slots == 0 || slot_zones == 0) throw std::logic_error("a buffer of no places");
}

std::optional<ZoneBuffer::BufferPlace> ZoneBuffer::take(CutIndex cut, std::uint32_t reserve) {
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    const bool open = slot.cut == cut && !slot.draining && slot.used > 0 && slot.used < slot_zones_;
    if (open && slot_zones_ - slot.used <= reserve) {
      found = nullptr;  // the cut has one open slot at a time
      break;
    }
    if (open) {
      found = &slot;
      break;
    }
    if (slot.used == 0 && found == nullptr) found = &slot;
  }
  if (found == nullptr) {
    starved_ = true;
    return {};
  }
  found->cut = cut;
  ++found->copying;
  return BufferPlace{index_of(*found), found->used++};
}

CutIndex ZoneBuffer::copied(std::uint32_t index) {
  if (index >= slots_.size() || slots_[index].copying == 0) throw std::logic_error("a copy ended that did not begin");
  Slot& slot = slots_[index];
  --slot.copying;
  if (!slot.failed) return slot.cut;
  if (slot.copying == 0) slot = {};
  return 0;
}

void ZoneBuffer::drained(std::uint32_t index) {
  if (index >= slots_.size() || !slots_[index].draining) throw std::logic_error("a slot drained that did not begin to");
  slots_[index] = {};
  starved_ = false;
}

void ZoneBuffer::fail() {
  starved_ = false;
  for (Slot& slot : slots_) {
    slot.failed = slot.used > 0;
    if (slot.copying == 0 && !slot.draining) slot = {};
  }
}

bool ZoneBuffer::has(CutIndex cut) const {
  return std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.cut == cut && slot.used > 0; });
}

ZoneBuffer::Full ZoneBuffer::drain(Slot& slot) {
  slot.draining = true;
  return {index_of(slot), slot.used, slot.cut};
}

}  // namespace ebb::planner
