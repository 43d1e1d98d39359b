#include "planner/snapshot_plan.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ebb::planner {
namespace {

void demand(bool kept, const char* broken) {
  if (!kept) throw std::logic_error(broken);
}

}  // namespace

const char* name_of(SnapshotTrouble trouble) {
  switch (trouble) {
    case SnapshotTrouble::none: return "none";
    case SnapshotTrouble::waited_too_long: return "a write waited too long for the buffer";
    case SnapshotTrouble::copy_failed: return "a zone could not be copied";
    case SnapshotTrouble::drain_failed: return "the buffer could not be drained";
    case SnapshotTrouble::watch_failed: return "writes are no longer seen";
  }
  return "unknown";
}

SnapshotPlan::SnapshotPlan(const SnapshotSpec& spec)
    : spec_(spec), zones_(spec.zones), buffer_(spec.slots, spec.slot_zones) {
  demand(spec.reserve < spec.slot_zones, "a buffer whose places are all reserved");
  demand(spec.copies > 0 && spec.longest_wait > 0, "no copies at all, or no time to wait for them");
  cuts_.reserve(kCutsWithoutAllocation);
  out_.reserve(kMost + 2);  // a failure and a wait are said whatever else is
}

SnapshotCommands SnapshotPlan::on(const SnapshotEvent& event) {
  demand(event.now >= now_, "time went back");
  demand(!more_ || event.kind == SnapshotEvent::tick, "an event came before the commands that are left");
  counters_.blocked += static_cast<Time>(waiting_) * (event.now - now_);
  now_ = event.now;
  out_.clear();
  const ZoneIndex end = event.zone + event.count;
  switch (event.kind) {
    case SnapshotEvent::tick: break;
    case SnapshotEvent::protect:
      watch_again();
      if (end > zones_.size()) zones_.resize(end);
      for (ZoneIndex z = event.zone; z < end; ++z) on_protect(z);
      break;
    case SnapshotEvent::unprotect:
      watch_again();
      for (ZoneIndex z = event.zone; z < end; ++z) on_unprotect(z);
      break;
    case SnapshotEvent::fault: on_fault(event.zone); break;
    case SnapshotEvent::touch:
      for (ZoneIndex z = event.zone; z < end && !failed_; ++z) on_touch(z);
      break;
    case SnapshotEvent::restored:
      watch_again();
      for (ZoneIndex z = event.zone; z < end; ++z) on_restored(z);
      break;
    case SnapshotEvent::cut: on_cut(false); break;
    case SnapshotEvent::full_cut: on_cut(true); break;
    case SnapshotEvent::copied: on_copied(event); break;
    case SnapshotEvent::drained: buffer_.drained(event.slot); break;
    case SnapshotEvent::failed:
      demand(event.trouble != SnapshotTrouble::none, "a failure without a name");
      fail(event.trouble);
      break;
  }
  if (!failed_) advance();
  if (!more_ && deadline() <= now_) fail(SnapshotTrouble::waited_too_long);
  if (event.kind == SnapshotEvent::fault) say_wait(event.zone);
  return {.list = out_, .more = more_, .wakeup = more_ ? now_ : deadline()};
}

SnapshotCounters SnapshotPlan::counters() const {
  SnapshotCounters counters = counters_;
  counters.dirty = written_.size;
  return counters;
}

// --- lists -----------------------------------------------------------------------------------------------------------

void SnapshotPlan::push(List& list, ZoneIndex zone) {
  zones_[zone].next = kNoZone;
  zones_[zone].prev = list.tail;
  (list.tail == kNoZone ? list.head : zones_[list.tail].next) = zone;
  list.tail = zone;
  ++list.size;
}

void SnapshotPlan::unlink(List& list, ZoneIndex zone) {
  const Zone& z = zones_[zone];
  (z.prev == kNoZone ? list.head : zones_[z.prev].next) = z.next;
  (z.next == kNoZone ? list.tail : zones_[z.next].prev) = z.prev;
  --list.size;
}

void SnapshotPlan::append(List& list, List& other) {
  if (other.size == 0) return;
  zones_[other.head].prev = list.tail;
  (list.tail == kNoZone ? list.head : zones_[list.tail].next) = other.head;
  list.tail = other.tail;
  list.size += std::exchange(other, {}).size;
}

SnapshotPlan::Zone& SnapshotPlan::known(ZoneIndex zone) {
  demand(zone < zones_.size(), "there is no such zone");
  return zones_[zone];
}

SnapshotPlan::Cut& SnapshotPlan::cut_at(CutIndex index) {
  const auto found = std::ranges::find(cuts_, index, &Cut::index);
  demand(found != cuts_.end(), "a zone is owed to a cut that is not in flight");
  return *found;
}

// --- events ----------------------------------------------------------------------------------------------------------

void SnapshotPlan::on_protect(ZoneIndex zone) {
  demand(zones_[zone].state == ZoneState::gone, "a zone was protected twice");
  zones_[zone].cut = 0;
  write(zone);
}

void SnapshotPlan::on_unprotect(ZoneIndex zone) {
  Zone& z = known(zone);
  demand(!z.waits, "a zone was unprotected while a write waits for it");
  const bool listed = z.state == ZoneState::dirty || z.state == ZoneState::duplicated;
  z.state = transition(z.state, ZoneState::gone);
  if (listed) unlink(written_, zone);
}

// Makes a zone clean that is done for a cut that is copied.
void SnapshotPlan::settle(Zone& zone) {
  if (zone.state == ZoneState::done && zone.cut <= copied_ && !zone.waits)
    zone.state = transition(ZoneState::done, ZoneState::clean);
}

void SnapshotPlan::write(ZoneIndex zone) {
  demand(!pending(zones_[zone].state), "a zone was written that a cut is owed");
  zones_[zone].state = transition(zones_[zone].state, ZoneState::dirty);
  push(written_, zone);
}

void SnapshotPlan::wait(ZoneIndex zone) {
  zones_[zone].waits = true;
  zones_[zone].since = now_;
  ++waiting_;
}

void SnapshotPlan::answer(ZoneIndex zone) {
  waiting_ -= std::exchange(zones_[zone].waits, false);
  out_.push_back({.kind = SnapshotCommand::answer, .zone = zone});
}

void SnapshotPlan::say_wait(ZoneIndex zone) {
  if (failed_ || !zones_[zone].waits) return;
  const bool at_once = std::ranges::any_of(
      out_, [&](const SnapshotCommand& c) { return c.kind == SnapshotCommand::duplicate && c.zone == zone; });
  if (at_once) return;
  ++counters_.waits;
  out_.push_back({.kind = SnapshotCommand::wait, .zone = zone});
}

void SnapshotPlan::on_fault(ZoneIndex zone) {
  Zone& z = known(zone);
  ++counters_.faults;
  if (failed_) {
    out_.push_back({.kind = SnapshotCommand::answer, .zone = zone});
    return;
  }
  settle(z);
  if (z.waits) return;  // one answer is for both
  switch (z.state) {
    case ZoneState::gone:
    case ZoneState::dirty:
    case ZoneState::duplicated: return answer(zone);
    case ZoneState::clean: write(zone); return answer(zone);
    case ZoneState::done:
      if (spec_.hints) {
        write(zone);
        return answer(zone);
      }
      push(cut_at(z.cut).waiting, zone);
      break;
    case ZoneState::owed:
      unlink(owed_, zone);
      push(faulted_, zone);
      break;
    case ZoneState::copying:
      if (!copy_frees()) break;
      z.state = transition(z.state, ZoneState::duplicating);
      push(written_, zone);
      break;
    case ZoneState::duplicating: break;  // a write waits for it already
  }
  wait(zone);
  if (z.state == ZoneState::done || !copy_frees()) {
    Cut& cut = cut_at(z.cut);
    cut.waits_since = std::min(cut.waits_since, now_);
  }
}

void SnapshotPlan::on_touch(ZoneIndex zone) {
  Zone& z = known(zone);
  settle(z);
  demand(!z.waits, "a zone was written while a write waits for it");
  if (z.state != ZoneState::dirty && z.state != ZoneState::duplicated) write(zone);
}

void SnapshotPlan::on_restored(ZoneIndex zone) {
  Zone& z = known(zone);
  settle(z);
  if (z.state == ZoneState::clean) return;
  if (z.state == ZoneState::duplicated) z.state = transition(z.state, ZoneState::dirty);
  demand(z.state == ZoneState::dirty, "a zone was restored that could not be written");
  z.state = transition(z.state, ZoneState::clean);
  unlink(written_, zone);
}

// Counts all zones as written after a failure.
void SnapshotPlan::watch_again() {
  if (!std::exchange(failed_, false)) return;
  for (ZoneIndex i = 0; i < zones_.size(); ++i) {
    Zone& z = zones_[i];
    z.waits = z.in_turn = false;
    if (z.state == ZoneState::gone) continue;
    if (z.state != ZoneState::dirty) z.state = transition(z.state, ZoneState::dirty);
    push(written_, i);
  }
}

void SnapshotPlan::owe(Zone& zone) {
  zone.state = transition(zone.state, ZoneState::owed);
  zone.cut = last_cut_;
}

// What is dirty was written first by the interval that ends, in this order; the next one is likely to repeat it. The
// list is taken over as it is: the program is blocked meanwhile.
void SnapshotPlan::on_cut(bool full) {
  watch_again();
  const ZoneIndex before = owed_.size;
  ++last_cut_;
  ++counters_.cuts;
  List later;  // zones whose write has not happened yet
  for (ZoneIndex i = written_.head; i != kNoZone;) {
    Zone& z = zones_[i];
    const ZoneIndex next = z.next;
    if (z.state == ZoneState::duplicating) {
      unlink(written_, i);
      push(later, i);
    } else {
      if (z.state == ZoneState::duplicated) z.state = transition(z.state, ZoneState::dirty);
      owe(z);
    }
    i = next;
  }
  append(owed_, written_);
  written_ = later;
  for (ZoneIndex i = 0; full && i < zones_.size(); ++i) {
    settle(zones_[i]);
    if (zones_[i].state != ZoneState::clean) continue;
    owe(zones_[i]);
    push(owed_, i);
  }
  Cut& cut = cuts_.emplace_back();
  cut.index = last_cut_;
  cut.left = owed_.size - before;
  out_.push_back({.kind = SnapshotCommand::begun, .cut = cut.index, .count = cut.left});
}

void SnapshotPlan::on_copied(const SnapshotEvent& event) {
  const CutIndex of = buffer_.copied(event.slot);
  if (of == 0) return;
  Zone& z = known(event.zone);
  demand(z.cut == of, "a zone was copied that its slot does not have");
  ++counters_.copies;
  counters_.gathered += event.bytes;
  copying_ -= std::exchange(z.in_turn, false);
  Cut& cut = cut_at(z.cut);
  --cut.left;
  if (z.state == ZoneState::duplicating) {
    z.state = transition(z.state, ZoneState::duplicated);
    return answer(event.zone);
  }
  z.state = transition(z.state, ZoneState::done);
  if (z.waits) push(cut.waiting, event.zone);
}

// Does nothing zone by zone, since writes wait for it. watch_again() does that at the next cut.
void SnapshotPlan::fail(SnapshotTrouble trouble) {
  if (std::exchange(failed_, true)) return;
  ++counters_.failures;
  const CutIndex first = cuts_.empty() ? 0 : cuts_.front().index;
  out_.push_back({.kind = SnapshotCommand::failed, .cut = first, .trouble = trouble});
  cuts_.clear();
  written_ = owed_ = faulted_ = freed_ = {};
  copying_ = 0;
  waiting_ = 0;
  more_ = false;
  buffer_.fail();
}

// --- decisions -------------------------------------------------------------------------------------------------------

void SnapshotPlan::advance() {
  bool moved = true;
  while (moved && room()) {
    moved = end_cuts();
    moved |= answer_freed();
    moved |= serve_writes();
    moved |= copy_in_turn();
    moved |= drain_slots();
  }
  more_ = !room();
}

bool SnapshotPlan::end_cuts() {
  const std::size_t before = out_.size();
  for (Cut& cut : cuts_) {
    if (cut.copied) continue;
    if (cut.left > 0 || !room()) break;
    cut.copied = true;
    cut.waits_since = kNever;
    copied_ = cut.index;
    append(freed_, cut.waiting);
    out_.push_back({.kind = SnapshotCommand::copied, .cut = cut.index});
  }
  std::erase_if(cuts_, [&](const Cut& cut) {
    if (!cut.copied || buffer_.has(cut.index) || !room()) return false;
    out_.push_back({.kind = SnapshotCommand::drained, .cut = cut.index});
    return true;
  });
  return out_.size() > before;
}

bool SnapshotPlan::answer_freed() {
  const std::size_t before = out_.size();
  while (freed_.size > 0 && room()) {
    const ZoneIndex zone = freed_.head;
    unlink(freed_, zone);
    zones_[zone].state = transition(zones_[zone].state, ZoneState::clean);
    write(zone);
    answer(zone);
  }
  return out_.size() > before;
}

bool SnapshotPlan::serve_writes() {
  const std::size_t before = out_.size();
  while (faulted_.size > 0 && room()) {
    if (!spec_.duplicate && copying_ >= spec_.copies) break;
    const ZoneIndex zone = faulted_.head;
    const auto place = buffer_.take(zones_[zone].cut, 0);
    if (!place) break;
    unlink(faulted_, zone);
    begin_copy(zone, *place, true);
  }
  return out_.size() > before;
}

bool SnapshotPlan::copy_in_turn() {
  const std::size_t before = out_.size();
  while (owed_.size > 0 && copying_ < spec_.copies && room()) {
    const ZoneIndex zone = owed_.head;
    const auto place = buffer_.take(zones_[zone].cut, spec_.duplicate ? spec_.reserve : 0);
    if (!place) break;
    unlink(owed_, zone);
    begin_copy(zone, *place, false);
  }
  return out_.size() > before;
}

void SnapshotPlan::begin_copy(ZoneIndex zone, ZoneBuffer::BufferPlace place, bool at_once) {
  Zone& z = zones_[zone];
  const bool frees = at_once && copy_frees();
  z.state = transition(z.state, frees ? ZoneState::duplicating : ZoneState::copying);
  if (frees) push(written_, zone);
  const bool duplicate = at_once && spec_.duplicate;
  counters_.duplicates += duplicate;
  z.in_turn = !duplicate;
  copying_ += z.in_turn;
  out_.push_back({.kind = duplicate ? SnapshotCommand::duplicate : SnapshotCommand::copy,
                  .zone = zone,
                  .cut = z.cut,
                  .slot = place.slot,
                  .place = place.place});
}

bool SnapshotPlan::drain_slots() {
  const std::size_t before = out_.size();
  while (room()) {
    const auto full = buffer_.next_drain([&](CutIndex cut) { return cut_at(cut).left == 0; });
    if (!full) break;
    out_.push_back({.kind = SnapshotCommand::drain, .cut = full->cut, .slot = full->slot, .count = full->places});
  }
  return out_.size() > before;
}

// A copy under way is not timed: the thread that makes it reports its failure.
Time SnapshotPlan::deadline() const {
  Time since = faulted_.size > 0 ? zones_[faulted_.head].since : kNever;
  for (const Cut& cut : cuts_) since = std::min(since, cut.waits_since);
  return since > kNever - spec_.longest_wait ? kNever : since + spec_.longest_wait;
}

}  // namespace ebb::planner
