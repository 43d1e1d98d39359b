#include "transfer/followed.hpp"

#include <atomic>
#include <iterator>

namespace ebb::transfer {
namespace {

// Never reused, as std::thread::id may be: what a thread that ended left on its default stream would delay what the
// next one follows on its own.
std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t number = ++last;
  return number;
}

}  // namespace

bool Followed::push(device::StreamId stream, Copy copy) {
  const auto place = queues_.try_emplace({stream, this_thread()}).first;
  std::deque<Copy>& queue = place->second;
  const std::size_t before = queue.size();
  const Token token = copy.token;
  try {
    queue.push_back(std::move(copy));
    by_token_.insert_or_assign(token, &queue.back());
  } catch (...) {
    if (queue.size() != before) queue.pop_back();
    if (queue.empty()) queues_.erase(place);
    throw;
  }
  return before == 0;
}

const Copy* Followed::find(Token token) const {
  const auto found = by_token_.find(token);
  return found == by_token_.end() ? nullptr : found->second;
}

void Followed::drop_ended() {
  for (auto place = queues_.begin(); place != queues_.end();) {
    std::deque<Copy>& queue = place->second;
    while (!queue.empty() && queue.front().ended) {
      // A token may be reused once it was reported: then it is the newer one's.
      const auto found = by_token_.find(queue.front().token);
      if (found != by_token_.end() && found->second == &queue.front()) by_token_.erase(found);
      queue.pop_front();
    }
    place = queue.empty() ? queues_.erase(place) : std::next(place);
  }
}

}  // namespace ebb::transfer
