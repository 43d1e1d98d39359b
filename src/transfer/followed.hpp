#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "transfer/token.hpp"

namespace ebb::transfer {

/// A copy, or what a stream holds at some moment, until its end has been told.
struct Copy {
  Token token = 0;
  std::size_t bytes = 0;
  std::shared_ptr<const platform::EventId> event;  // none: nothing of it is under way
  std::optional<Error> refused;                    // with an event: reported once that is done
  std::optional<Result<void>> ended;
};

/// What is followed on streams of the application, in a queue for each stream and each thread that follows it.
///
/// Thread safety: none; CopyEngine has a lock around it.
/// 1. A thread pushes what it recorded in the order in which it recorded it, and a stream is in order: so nothing of a
///    queue is done before its oldest is, and the oldest alone need be asked. Queues of one stream that two threads
///    share would not do: an event is recorded and pushed without a lock around both, and the per-thread default stream
///    is one name for a stream of each thread.
/// 2. A stream that was destroyed, and whose name the driver gave to another, may still be in front: what is behind it
///    is then told late, and never early.
/// 3. No queue is empty: streams and threads that come and go leave nothing.
class Followed {
 public:
  /// On `stream`, by the calling thread, which has recorded its event just now. True: it is the oldest of its queue.
  /// What throws for want of memory changes nothing.
  bool push(platform::StreamId stream, Copy copy);
  /// Null: there is none.
  const Copy* find(Token token) const;
  /// Calls `ended` for the oldest of each queue and, while it says true, for the next one.
  template <class Ended>
  void ask_oldest(Ended ended) {
    for (auto& [place, copies] : queues_) {
      for (auto copy = copies.begin(); copy != copies.end() && ended(*copy); ++copy) continue;
    }
  }
  /// Forgets those in front that have ended.
  void drop_ended();
  std::size_t queues() const { return queues_.size(); }

 private:
  using Place = std::pair<platform::StreamId, std::uint64_t>;  // with the thread
  std::map<Place, std::deque<Copy>> queues_;
  std::unordered_map<Token, const Copy*> by_token_;
};

}  // namespace ebb::transfer
