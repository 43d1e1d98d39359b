#include "planner/calls.hpp"

#include <utility>

namespace ebb::planner {

void Calls::answer(Request& r, Reason reason, std::string detail) {
  Answer a{.request = r.id,
           .reason = reason,
           .checkpoint = table_.ref(r.checkpoint),
           .found_on = r.found_on,
           .distance = r.distance,
           .detail = std::move(detail)};
  if (reason == Reason::ok && (r.kind == Request::Kind::reserve || r.kind == Request::Kind::borrow)) {
    a.place = {{Endpoint::tier, 0}, table_[r.checkpoint].at[0].offset};
    held_.emplace(r.id, Hold{r.checkpoint});
  }
  context_.out->answers.push_back(std::move(a));
  end_wait(r);
  requests_.erase(r.id);
}

// Refuses a call for a version that does not exist, and says why it does not.
void Calls::refuse_missing(RequestId id, HistoryId client, Version version) const {
  const History& h = table_.history(client);
  const Slot slot = table_.lookup(client, version);
  const std::string name = "version " + std::to_string(version);
  if (const auto lost = h.lost.find(version); lost != h.lost.end())
    return context_.answer(id, Reason::lost, name + " is lost: " + lost->second);
  if (h.consumed.contains(version))
    return context_.answer(id, Reason::consumed, name + " was restored already and no hint asked to keep it");
  const bool reserved = slot != kNoSlot && table_[slot].write == WriteState::reserved;
  context_.answer(id, Reason::unknown_version,
                  name + (reserved ? " is reserved and not committed yet" : " was never written"));
}

void Calls::wait(Request& r) {
  r.waiting = true;
  waiting_.push_back(r.id);
}

void Calls::end_wait(Request& r) {
  if (!r.waiting) return;
  r.waiting = false;
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), r.id));
}

Hold* Calls::find_hold(RequestId id) {
  const auto it = held_.find(id);
  return it == held_.end() ? nullptr : &it->second;
}

void Calls::set_ending(Hold& hold, bool by_itself) {
  ending_ += (by_itself ? 1 : 0) - (hold.ending ? 1 : 0);
  hold.ending = by_itself;
}

std::optional<Hold> Calls::end_hold(RequestId id) {
  const auto it = held_.find(id);
  if (it == held_.end()) return std::nullopt;
  const Hold hold = it->second;
  if (hold.ending) --ending_;
  held_.erase(it);
  return hold;
}

}  // namespace ebb::planner
