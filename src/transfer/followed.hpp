#pragma once
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "transfer/token.hpp"

namespace ebb::transfer {

/// A copy, or the work on a stream at some moment, until its end is reported.
struct Copy {
  Token token = 0;
  std::size_t bytes = 0;
  std::shared_ptr<const device::EventId> event;  // none: nothing of it is in flight
  std::optional<Error> refused;                  // with an event: reported once that is done
  std::optional<Result<void>> ended;
};

/// What is followed on the application's streams, in a queue for each stream and each thread that follows it.
///
/// Thread safety: none; CopyEngine has a lock around it.
/// 1. A thread pushes what it recorded in the order in which it recorded it, and a stream is in order: so nothing in a
///    queue is done before its oldest, and only the oldest need be polled. Two threads cannot share a stream's queue:
///    no lock spans the recording and the push, and the per-thread default stream has one name for a stream of each
///    thread.
/// 2. A destroyed stream whose handle the driver reused may still be in front: later entries are then reported late,
///    never early.
/// 3. No queue is empty: streams and threads that come and go leave nothing behind but memory for as much at once.
class Followed {
 public:
  /// On `stream`, by the calling thread, which has just recorded its event. True: it is the oldest of its queue.
  /// Running out of memory throws and changes nothing.
  bool push(device::StreamId stream, Copy copy);
  /// Null: not found.
  const Copy* find(Token token) const;
  /// Adds the oldest of each queue. They stay where they are until drop_ended().
  void add_oldest(std::vector<Copy*>& to) {
    for (auto& [place, copies] : queues_) to.push_back(&copies.front());
  }
  /// Removes those in front that have ended.
  void drop_ended();
  std::size_t queues() const { return queues_.size(); }

 private:
  using QueueKey = std::pair<device::StreamId, std::uint64_t>;  // with the thread
  using Queues = std::map<QueueKey, std::list<Copy>>;
  using Tokens = std::unordered_map<Token, const Copy*>;
  Queues queues_;
  Tokens by_token_;
  // Unused nodes of these, so that following a stream takes no memory.
  std::vector<Queues::node_type> spare_queues_;
  std::list<Copy> spare_copies_;
  std::vector<Tokens::node_type> spare_tokens_;
};

}  // namespace ebb::transfer
