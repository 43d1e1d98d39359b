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
  // All memory first, so that nothing has changed if there is none; also that for taking the nodes back.
  const auto room_for = [](auto& spare, std::size_t nodes) {
    if (spare.capacity() < nodes) spare.reserve(2 * nodes);
  };
  room_for(spare_queues_, queues_.size() + spare_queues_.size() + 1);
  room_for(spare_tokens_, by_token_.size() + spare_tokens_.size() + 1);
  if (spare_copies_.empty()) spare_copies_.emplace_back();
  const QueueKey key{stream, this_thread()};
  auto place = queues_.find(key);
  if (place == queues_.end() && spare_queues_.empty()) {
    Queues made;
    made.try_emplace(key);
    spare_queues_.push_back(made.extract(made.begin()));
  }
  const Token token = copy.token;
  auto by_token = by_token_.find(token);
  if (by_token == by_token_.end()) {
    if (spare_tokens_.empty()) {
      by_token = by_token_.emplace(token, nullptr).first;
    } else {
      spare_tokens_.back().key() = token;
      by_token = by_token_.insert(std::move(spare_tokens_.back())).position;
      spare_tokens_.pop_back();
    }
  }
  if (place == queues_.end()) {
    spare_queues_.back().key() = key;
    place = queues_.insert(std::move(spare_queues_.back())).position;
    spare_queues_.pop_back();
  }
  std::list<Copy>& queue = place->second;
  const bool first = queue.empty();
  queue.splice(queue.end(), spare_copies_, spare_copies_.begin());
  queue.back() = std::move(copy);
  by_token->second = &queue.back();
  return first;
}

const Copy* Followed::find(Token token) const {
  const auto found = by_token_.find(token);
  return found == by_token_.end() ? nullptr : found->second;
}

void Followed::drop_ended() {
  for (auto place = queues_.begin(); place != queues_.end();) {
    std::list<Copy>& queue = place->second;
    while (!queue.empty() && queue.front().ended) {
      // A token may be reused once it was reported: then it is the newer one's.
      const auto found = by_token_.find(queue.front().token);
      if (found != by_token_.end() && found->second == &queue.front())
        spare_tokens_.push_back(by_token_.extract(found));
      queue.front() = Copy();
      spare_copies_.splice(spare_copies_.begin(), queue, queue.begin());
    }
    const auto next = std::next(place);
    if (queue.empty()) spare_queues_.push_back(queues_.extract(place));
    place = next;
  }
}

}  // namespace ebb::transfer
