#pragma once
// The buffer that zones are copied to, and that drains to where the snapshot is stored: while one slot of it drains,
// another is filled (the double buffer of ics19 sec. 4.3.1).
#include <optional>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::planner {

using CutIndex = std::uint32_t;  // counted from 1

// Not thread-safe. Allocates when it is made, and never again.
// 1. A slot has zones of one cut, so that it drains in one piece.
// 2. A slot drains when no copy to it is under way, and it is full, or its cut needs no more of it, or something found
//    no place and nothing drains that would make one.
// 3. A slot is used again when it is drained and every copy to it has ended, failed ones as well.
class ZoneBuffer {
 public:
  struct BufferPlace {
    std::uint32_t slot = 0, place = 0;
  };
  struct Full {
    std::uint32_t slot = 0, places = 0;
    CutIndex cut = 0;
  };

  ZoneBuffer(std::uint32_t slots, std::uint32_t slot_zones);  // std::logic_error for one without places

  // A place for a copy, which begins; none: there will be one when a slot has drained. The last `reserve` places of a
  // slot are not given.
  std::optional<BufferPlace> take(CutIndex cut, std::uint32_t reserve);
  // The cut of a copy that has ended; 0: the cut failed before that.
  CutIndex copied(std::uint32_t slot);
  void drained(std::uint32_t slot);
  void fail();  // what is in it is of no use
  bool has(CutIndex cut) const;

  // The next slot to drain, which begins. `complete(cut)`: nothing more of it comes.
  template <class Complete>
  std::optional<Full> next_drain(Complete&& complete) {
    Slot* fullest = nullptr;
    bool draining = false;
    for (Slot& slot : slots_) {
      draining |= slot.draining;
      if (slot.used == 0 || slot.copying > 0 || slot.draining || slot.failed) continue;
      if (slot.used == slot_zones_ || complete(slot.cut)) return drain(slot);
      if (fullest == nullptr || slot.used > fullest->used) fullest = &slot;
    }
    if (!starved_ || draining || fullest == nullptr) return {};
    return drain(*fullest);
  }

 private:
  struct Slot {
    CutIndex cut = 0;
    std::uint32_t used = 0;     // places; 0: it is free
    std::uint32_t copying = 0;  // of these
    bool draining = false;
    bool failed = false;
  };
  Full drain(Slot& slot);
  std::uint32_t index_of(const Slot& slot) const { return static_cast<std::uint32_t>(&slot - slots_.data()); }

  std::uint32_t slot_zones_;
  std::vector<Slot> slots_;
  bool starved_ = false;  // something found no place, and no slot has drained since
};

}  // namespace ebb::planner
