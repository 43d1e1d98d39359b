#include "planner/restore_order.hpp"

#include <algorithm>

namespace ebb::planner {

void RestoreOrder::append(std::uint32_t checkpoint) {
  positions_[checkpoint].push_back(tail_++);
  entries().push_back(checkpoint);
  ++size_;
}

void RestoreOrder::prepend(std::uint32_t checkpoint) {
  entries().push_front(checkpoint);
  --base_;
  auto& mine = positions_[checkpoint];
  mine.insert(mine.begin(), base_);
  ++size_;
}

bool RestoreOrder::remove_first(std::uint32_t checkpoint) {
  const auto it = positions_.find(checkpoint);
  if (it == positions_.end()) return false;
  entries()[static_cast<std::size_t>(it->second.front() - base_)] = kWithdrawn;
  it->second.erase(it->second.begin());
  if (it->second.empty()) positions_.erase(it);
  --size_;
  trim();
  return true;
}

void RestoreOrder::rename(std::uint32_t from, std::uint32_t to) {
  auto node = positions_.extract(from);
  if (node.empty()) return;
  for (Position p : node.mapped()) entries()[static_cast<std::size_t>(p - base_)] = to;
  node.key() = to;
  positions_.insert(std::move(node));
}

void RestoreOrder::clear() {
  base_ = tail_;
  if (entries_) entries_->clear();
  positions_.clear();
  size_ = 0;
}

RestoreOrder::Position RestoreOrder::first(std::uint32_t checkpoint) const {
  const auto it = positions_.find(checkpoint);
  return it == positions_.end() ? kNone : it->second.front();
}

std::uint32_t RestoreOrder::count(std::uint32_t checkpoint) const {
  const auto it = positions_.find(checkpoint);
  return it == positions_.end() ? 0 : static_cast<std::uint32_t>(it->second.size());
}

void RestoreOrder::trim() {
  std::deque<std::uint32_t>& all = entries();
  while (!all.empty() && all.front() == kWithdrawn) {
    all.pop_front();
    ++base_;
  }
  while (!all.empty() && all.back() == kWithdrawn) {
    all.pop_back();
    --tail_;
  }
}

}  // namespace ebb::planner
