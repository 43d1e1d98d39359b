#include "store/request.hpp"

#include <algorithm>

namespace ebb::store {

void CallRow::add(const planner::Command& command) {
  if (stream) enqueued.order(command);
  commands.push_back(command);
}

void Enqueued::order(const planner::Command& command) {
  if (command.offset < ordered_to) {  // once more, from another place: what was copied of it does not count
    bytes = std::min(bytes, command.offset);
    ahead.clear();
  }
  ordered_to = command.offset + command.length;
}

void Enqueued::count(const planner::Command& command) {
  if (ahead.empty() && command.offset <= bytes) {  // in order, as nearly all are
    bytes = std::max(bytes, command.offset + command.length);
    return;
  }
  std::uint64_t& end = ahead[command.offset];
  end = std::max(end, command.offset + command.length);
  for (auto first = ahead.begin(); first != ahead.end() && first->first <= bytes; first = ahead.erase(first)) {
    bytes = std::max(bytes, first->second);
  }
}

}  // namespace ebb::store
