#pragma once
// The calls under way: who waits for the planner's answer, and how they are woken.
#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_set>

#include "planner/recycled.hpp"
#include "store/parts.hpp"
#include "store/request.hpp"

namespace ebb::store {

/// The requests that the planner knows and has not answered.
///
/// Thread safety: every method takes the port's Locked.
/// 1. A request is here from before its event is submitted until it was answered and its call has returned. Those of
///    calls that have returned are shared, and end with their answer.
/// 2. A request is woken through its `changed`, a wait for a Future or for durability through the port's ended().
/// 3. A request that was given up before its answer is in `abandoned_` until that comes: nothing of its caller's is
///    touched any more.
class CallTable {
 public:
  CallTable(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, Streams& streams, CallStatistics& statistics,
            bool verify_all)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        streams_(streams),
        statistics_(statistics),
        verify_all_(verify_all) {}

  /// A request's place in the table, for as long as its call lasts.
  class Entered {
   public:
    Entered(CallTable& table, const Locked& locked, CallRow& request);
    Entered(const Entered&) = delete;
    ~Entered();
    /// The call returns, the request stays until it is answered; an error goes to `waitable`.
    void detach(std::shared_ptr<CallRow> request, std::shared_ptr<Waitable> waitable);

   private:
    CallTable& table_;
    const Locked& locked_;
    CallRow& request_;
    bool detached_ = false;
  };
  /// Adds a request whose call does not wait.
  void add_background(const Locked& locked, std::shared_ptr<CallRow> request);

  // What there is to do for requests whose caller does not wait. Copies of one request come in the order in which they
  // were ordered.
  struct Work {
    std::shared_ptr<CallRow> request;
    bool check = false;  // it was answered, and what it was handed is to be checked before it ends; else: its next copy
  };
  /// Waits for the next. Nothing: the store is closed.
  std::optional<Work> next_work(Locked& locked);

  /// Takes a command that copies from or to the application.
  void take_command(const Locked& locked, const planner::Command& command);
  void take_answer(const Locked& locked, planner::Answer& answer);
  /// The request fails: a copy that its own come after has failed.
  void take_spoiled(const Locked& locked, planner::RequestId id);
  /// The target's owner may use it, or free it, from here on; no other thread touches the request again.
  void end_background(const Locked& locked, CallRow& request);
  /// Ends all requests: the store is closed.
  void end_all(const Locked& locked);

  /// A command was ordered; on a GPU, others may be to come after it.
  void set_unsent(const Locked& locked, planner::CommandId command);
  /// The command's copy is on a stream, or has ended: others can come after it.
  void set_sent(const Locked& locked, planner::CommandId command);
  /// What the application's stream held before the call is done.
  void stream_ready(const Locked& locked, planner::RequestId id);
  /// There may be memory for the requests that wait for it.
  void wake_requests(const Locked& locked);
  void wake_everyone(const Locked& locked);
  /// The copy that the command comes after is ordered, and on no stream yet.
  bool unsent(const Locked& /*locked*/, planner::CommandId command) const { return unsent_.contains(command); }
  /// The caller returns before the planner has answered; the answer is dropped when it comes.
  void abandon(const Locked& locked, CallRow& request);

 private:
  void enter(CallRow& request);
  void leave(CallRow& request);
  /// Its error is there already.
  void end(const Locked& locked, Waitable& waitable);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  Streams& streams_;
  CallStatistics& statistics_;
  const bool verify_all_;
  std::condition_variable work_;  // for next_work()
  // All below by the port's mutex.
  planner::RecycledHashMap<planner::RequestId, CallRow*> requests_;
  planner::RecycledHashMap<planner::RequestId, std::shared_ptr<CallRow>> background_;
  std::deque<planner::RequestId> copies_to_make_;  // one entry for each command
  std::deque<planner::RequestId> checks_;
  std::unordered_set<planner::RequestId> abandoned_;     // given up and returned from before the planner answered
  planner::RecycledHashSet<planner::CommandId> unsent_;  // ordered, and on no stream yet: nothing can come after them
  std::vector<planner::Command> spare_commands_;         // memory for those of the next call
  planner::RequestId next_request_ = 1;
};

}  // namespace ebb::store
