#include "planner/spare_room.hpp"

#include <algorithm>
#include <stdexcept>

#include "planner/lease_ledger.hpp"

namespace ebb::planner {

void SpareRoom::on(HistoryId, const event::Spare& e) {
  if (!any()) {
    const Bytes bytes = space_.usable(e.tier, e.first);
    for (std::uint32_t n = 0; n < e.pieces; ++n)
      if (bytes == 0 || space_.usable(e.tier, static_cast<SegmentId>(e.first + n)) != bytes)
        throw std::logic_error("the spare pieces of a tier are segments of the same size");
    tier_ = e.tier;
    first_ = e.first;
    pieces_ = e.pieces;
    bytes_ = bytes;
  }
  if (e.tier != tier_ || e.first != first_ || e.pieces != pieces_)
    throw std::logic_error("the spare pieces of a tier do not change");
  wanted_ = e.wanted;
  look_at_ = context_.now;
  context_.dirty = true;
}

// Calls that write to the cache or read from it use it.
void SpareRoom::after(const event::Any& event) {
  if (const auto* const e = std::get_if<event::Checkpoint>(&event)) note_use(e->bytes);
  if (const auto* const e = std::get_if<event::Reserve>(&event)) note_use(e->bytes);
  if (const auto* const e = std::get_if<event::Adopt>(&event)) note_use(e->bytes);
  if (std::holds_alternative<event::Restore>(event) || std::holds_alternative<event::Borrow>(event)) note_use(0);
  if (context_.dirty) plan();
}

void SpareRoom::note_use(Bytes written) {
  if (!space_.fits(tier_, written)) written = 0;  // it goes elsewhere
  if (context_.now - used_at_ >= kSpareAfter) {
    look_at_ = context_.now;
    if (burst_ > 0) {
      before_ = std::exchange(burst_, 0);
      pause_ -= pause_ > 0 ? 1 : 0;
    }
  }
  burst_ += written;
  largest_ = std::max(largest_, written);
  used_at_ = context_.now;
  context_.dirty = true;
}

void SpareRoom::plan() {
  const bool waited_for = !calls_.waiting().empty();
  if (waited_for) used_at_ = look_at_ = context_.now;
  if (context_.now < look_at_) return context_.wake_by(look_at_);
  look_at_ = context_.now + kSpareLook;
  const bool rests = context_.now - used_at_ >= kSpareAfter;
  if (!rests) context_.wake_by(used_at_ + kSpareAfter);
  if (context_.now >= late_by_) {
    pause_ = kPauseAfterLate;
    late_by_ = kNever;
  }
  std::uint32_t gone = 0;
  for (std::uint32_t n = 0; n < pieces_; ++n) gone += away(n);
  const std::uint32_t most = allowed(gone, rests, waited_for);
  if (rests) give(most);
  if (most < allowed_) {
    back_by_ = context_.now + kRecallWithin;
    late_by_ = std::min(late_by_, context_.now + kReturnWithin);
  }
  if (most != allowed_) context_.out->spare = allowed_ = most;
  if (gone <= allowed_) {
    back_by_ = 0;
    late_by_ = kNever;
  }
  if (coming()) context_.wake_by(back_by_);
}

// How many pieces others may have, of which so many are away.
std::uint32_t SpareRoom::allowed(std::uint32_t away, bool rests, bool waited_for) const {
  if (!wanted_ || waited_for || pause_ > 0 || (!rests && allowed_ == 0)) return 0;
  const Bytes all = space_.map(tier_).lent() + away * bytes_;
  const Bytes kept = rests ? needed() : std::max(needed(), before_);
  const Bytes most = kept < all ? std::min<Bytes>(pieces_, (all - kept) / bytes_) : 0;
  return rests ? static_cast<std::uint32_t>(most) : static_cast<std::uint32_t>(std::min<Bytes>(most, allowed_));
}

void SpareRoom::give(std::uint32_t most) {
  std::uint32_t given = 0;
  for (std::uint32_t n = 0; n < pieces_; ++n) given += away(n);
  for (std::uint32_t n = pieces_; n-- > 0 && given < most;) {
    if (away(n) || !idle(piece(n))) continue;
    segments_.on(0, event::Recall{tier_, piece(n), 0});
    ++given;
  }
}

// What is not spare, what hints name, and two of the largest checkpoint.
Bytes SpareRoom::needed() const {
  const Bytes all = space_.map(tier_).lent() + pieces_ * bytes_;
  Bytes sum = space_.map(tier_).used() - space_.spare_bytes(tier_) + 2 * largest_;
  for (const History& h : table_.histories()) {
    for (RestoreOrder::Position p = h.order.head(); h.order.size() > 0 && p < h.order.tail() && sum < all; ++p) {
      const Slot slot = h.order.at(p);
      if (slot == RestoreOrder::kWithdrawn) continue;
      const Checkpoint& c = table_[slot];
      const Replica& here = c.at[tier_];
      const bool counted = adopted(here) || (here.state != ReplicaState::gone && here.spare == Spare::no);
      if (c.exists() && c.hint == p && !counted) sum += space_.footprint(tier_, c.bytes);
    }
  }
  return sum;
}

bool SpareRoom::idle(SegmentId segment) const {
  const FragmentMap& map = space_.map(tier_);
  const Bytes end = map.first_of(segment) + bytes_;
  Bytes at = map.first_of(segment);
  for (Slot s; (s = map.next_owner(at, end)) != kNoSlot;) {
    const Checkpoint& c = table_[s];
    const Replica& r = c.at[tier_];
    if (r.spare == Spare::no || r.uses > 0 || c.hint != RestoreOrder::kNone) return false;
  }
  return true;
}

}  // namespace ebb::planner
