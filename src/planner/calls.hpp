#pragma once
// The application's calls until each is answered, and what it was granted until it gives that back.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/recycled.hpp"

namespace ebb::planner {

struct Request {
  RequestId id = 0;
  enum class Kind : std::uint8_t { checkpoint, reserve, restore, borrow } kind = Kind::checkpoint;
  Slot checkpoint = 0;
  Time since = 0, deadline = kNever;
  Time fallback = kNever;  // when waiting for room gives way to a direct path
  bool keep = false, waiting = false, cancelled = false, hint_taken = false;
  bool file_tried = false;  // what the file had refused was tried again for it
  bool ordered = false, ready = false;
  std::uint32_t excluded = 0;  // tiers (bits) that failed it
  Bytes restored = 0;          // bytes that earlier sources delivered
  Bytes adopt = 0;             // event::Adopt: its place
  TierIndex found_on = kNoTier;
  std::uint32_t distance = 0;
  MoveIndex move = kNoMove;
};

struct Wait {
  RequestId id = 0;
  HistoryId history = 0;
  TierIndex tier = kNoTier;
  std::unordered_set<Slot> open;
};

// A granted reservation or borrow.
struct Hold {
  Slot checkpoint = 0;
  bool ending = false;       // by itself, with a stream
  bool memory_only = false;  // committed, or given back: only its memory is still in use
};

class Calls {
 public:
  Calls(Context& context, const CheckpointTable& table) : context_(context), table_(table) {}

  Request& add(const Request& r) { return requests_.emplace(r.id, r).first->second; }
  Request& at(RequestId id) { return requests_.at(id); }
  Request* find(RequestId id) {
    const auto it = requests_.find(id);
    return it == requests_.end() ? nullptr : &it->second;
  }
  void answer(Request& request, Reason reason, std::string detail = {});
  void refuse_missing(RequestId id, HistoryId client, Version version) const;
  // The requests for a checkpoint for which `which` holds, by id.
  template <class Which>
  std::vector<RequestId> of(Slot slot, const Which& which) const {
    std::vector<RequestId> found;
    for (const auto& [id, r] : requests_)
      if (r.checkpoint == slot && which(r)) found.push_back(id);
    std::sort(found.begin(), found.end());
    return found;
  }

  // The requests that wait for room, in the order of their calls.
  const std::vector<RequestId>& waiting() const { return waiting_; }
  // Calls `each` for them, except for those that an earlier `each` has answered.
  template <class Each>
  void for_waiting(const Each& each) {
    for (const RequestId id : std::vector(waiting_))
      if (Request* const r = find(id); r != nullptr && r->waiting) each(*r);
  }
  void wait(Request& request);
  void end_wait(Request& request);

  // Granted reservations and borrows, until they end.
  void hold(RequestId id, const Hold& hold) { held_.emplace(id, hold); }
  Hold* find_hold(RequestId id);
  void set_ending(Hold& hold, bool by_itself);
  // The checkpoint that a granted reserve or borrow holds; nullopt: none (any more).
  std::optional<Hold> end_hold(RequestId id);
  bool any_ending() const { return ending_ > 0; }

 private:
  friend class Invariants;

  Context& context_;
  const CheckpointTable& table_;
  RecycledHashMap<RequestId, Request> requests_;
  std::vector<RequestId> waiting_;
  RecycledHashMap<RequestId, Hold> held_;
  int ending_ = 0;  // of them, those that end by themselves
};

}  // namespace ebb::planner
