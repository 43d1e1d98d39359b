#include "planner/write_turns.hpp"

#include <algorithm>
#include <utility>

namespace ebb::planner {

WriteTurns::Turn& WriteTurns::of(Party party) {
  const auto found = std::ranges::find(turns_, party, &Turn::party);
  if (found != turns_.end()) return *found;
  Bytes served = 0;  // who comes late has no claim on the past
  for (const Turn& turn : turns_) served = turn.objects.empty() ? served : std::max(served, turn.served);
  return turns_.emplace_back(Turn{party, served, false, {}});
}

void WriteTurns::end_hurries(const std::function<bool(Party)>& done) {
  for (Turn& turn : turns_) turn.hurries = turn.hurries && !done(turn.party);
}

void WriteTurns::forget(Party party) {
  std::erase_if(turns_, [&](const Turn& turn) { return turn.party == party; });
}

std::optional<WriteTurns::Object> WriteTurns::next() const {
  const Turn* next = nullptr;
  const auto order = [](const Turn& turn) { return std::pair(!turn.hurries, turn.served); };
  for (const Turn& turn : turns_)
    if (!turn.objects.empty() && (next == nullptr || order(turn) < order(*next))) next = &turn;
  if (next == nullptr) return {};
  return next->objects.front();
}

}  // namespace ebb::planner
