#include "store/request.hpp"

#include <algorithm>

namespace ebb::runtime {

void Request::add(const policy::Command& command) {
  if (stream) {
    if (command.offset < ordered_to) {  // once more, from another place: what was copied of it does not count
      enqueued = std::min(enqueued, command.offset);
      ahead.clear();
    }
    ordered_to = command.offset + command.length;
  }
  commands.push_back(command);
}

void Request::count_enqueued(const policy::Command& command) {
  std::uint64_t& end = ahead[command.offset];
  end = std::max(end, command.offset + command.length);
  for (auto first = ahead.begin(); first != ahead.end() && first->first <= enqueued; first = ahead.erase(first)) {
    enqueued = std::max(enqueued, first->second);
  }
}

}  // namespace ebb::runtime
