#include "planner/hints.hpp"

#include <algorithm>

namespace ebb::planner {

void Hints::on(HistoryId client, const event::Hint& e) {
  context_.dirty = true;
  if (e.replace) on(client, event::UnhintAll{});
  for (Version v : e.versions) replicas_.hint(client, v, false);
}

void Hints::on(HistoryId client, const event::HintFront& e) {
  context_.dirty = true;
  replicas_.hint(client, e.version, true);
  table_.history(client).foreseen = false;
}

void Hints::on(HistoryId client, const event::Unhint& e) {
  std::vector<Slot> named;
  for (Version v : e.versions)
    if (const Slot s = table_.lookup(client, v); s != kNoSlot) named.push_back(s);
  unhint(named);
}

void Hints::on(HistoryId client, const event::UnhintAll&) {
  const RestoreOrder& order = table_.history(client).order;
  std::vector<Slot> named;
  for (auto p = order.head(); p < order.tail(); ++p)
    if (order.at(p) != RestoreOrder::kWithdrawn) named.push_back(order.at(p));
  unhint(named);
}

void Hints::on(HistoryId client, const event::StartPrefetch&) {
  context_.dirty = true;
  table_.history(client).started = table_.history(client).reading = true;
}

void Hints::on(HistoryId client, const event::Order& e) { table_.history(client).reverse = e.reverse; }

void Hints::on(HistoryId client, const event::Drop& e) {
  const Slot s = table_.lookup(client, e.version);
  table_.history(client).consumed.erase(e.version);
  table_.history(client).lost.erase(e.version);
  if (s != kNoSlot) outcomes_.drop(s);
}

void Hints::on(HistoryId client, const event::DropAll&) {
  History& h = table_.history(client);
  std::vector<Slot> named;
  for (const auto& [version, slot] : h.slots) named.push_back(slot);
  std::sort(named.begin(), named.end());
  h.consumed.clear();
  h.lost.clear();
  for (Slot s : named) outcomes_.drop(s);
}

void Hints::on(HistoryId client, const event::Forget&) { table_.forget(client); }

void Hints::unhint(const std::vector<Slot>& named) {
  context_.dirty = true;
  for (Slot s : named)
    if (table_[s].hint != RestoreOrder::kNone) replicas_.withdraw_hint(s);
  for (Slot s : named) replicas_.try_release(s);
}

}  // namespace ebb::planner
