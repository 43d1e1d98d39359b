#pragma once
// The calls under way: who waits for the planner's answer, and how they are woken.
#include <condition_variable>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "store/parts.hpp"
#include "store/request.hpp"

namespace ebb::store {

/// The requests that the planner knows and has not answered.
///
/// Thread safety: every method takes the port's Locked.
/// 1. A request is here from before its event is submitted until it was answered and its call has returned. Those of
///    calls that have returned are shared, and end with their answer.
/// 2. A request is woken through its `changed`, a wait for a Future or for durability through ended().
/// 3. A request that was given up before its answer is in `abandoned_` until that comes: nothing of its caller's is
///    touched any more.
class CallTable {
 public:
  CallTable(PlannerPort& port, Lifetime& lifetime, Catalog& catalog, Streams& streams, CallStatistics& statistics,
            CacheMemory& memory, LinkQueues& queues, ApplicationCopies& copies, PumpThread& pump,
            BackgroundWorker& worker, bool verify_all)
      : port_(port),
        lifetime_(lifetime),
        catalog_(catalog),
        streams_(streams),
        statistics_(statistics),
        memory_(memory),
        queues_(queues),
        copies_(copies),
        pump_(pump),
        worker_(worker),
        verify_all_(verify_all) {}

  /// A request's place in the table, for as long as its call lasts.
  class Entered {
   public:
    Entered(CallTable& table, const Locked& locked, Request& request);
    Entered(const Entered&) = delete;
    ~Entered();
    /// The call returns, the request stays until it is answered; an error goes to `waitable`.
    void detach(std::shared_ptr<Request> request, std::shared_ptr<Waitable> waitable);

   private:
    CallTable& table_;
    const Locked& locked_;
    Request& request_;
    bool detached_ = false;
  };
  /// Adds a request whose call does not wait.
  void add_background(const Locked& locked, std::shared_ptr<Request> request);
  /// Throws std::out_of_range if the request has ended.
  const std::shared_ptr<Request>& background(const Locked& /*locked*/, planner::RequestId id) const {
    return background_.at(id);
  }
  /// Returns when the planner has answered, every copy is on the application's stream, or the store is closed. Throws
  /// std::logic_error when the planner's contract is broken.
  void run_until_answered(Locked& locked, Request& request, const Timer* timer, const Interrupt& interrupted);

  /// Takes a command that copies from or to the application.
  void take_command(const Locked& locked, const planner::Command& command);
  void take_answer(const Locked& locked, planner::Answer& answer);
  /// The request fails: a copy that its own come after has failed.
  void take_spoiled(const Locked& locked, planner::RequestId id);
  /// The target's owner may use it, or free it, from here on; the worker does not touch the request again.
  void end_background(const Locked& locked, Request& request);
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
  /// Notified when a Future has ended, something became durable or never will, a timer fired.
  std::condition_variable& ended() { return ended_; }

 private:
  void enter(Request& request);
  void leave(planner::RequestId id) { spare_ = requests_.extract(id); }
  /// Whether the request has a copy that can be made now: its memory is there, and the copies before it are made.
  bool has_work(const Locked& locked, const Request& request) const;
  void ask_ready(Locked& locked, Request& request);
  void cancel(const Locked& locked, Request& request);

  PlannerPort& port_;
  Lifetime& lifetime_;
  Catalog& catalog_;
  Streams& streams_;
  CallStatistics& statistics_;
  CacheMemory& memory_;
  LinkQueues& queues_;
  ApplicationCopies& copies_;
  PumpThread& pump_;
  BackgroundWorker& worker_;
  const bool verify_all_;
  std::condition_variable ended_;
  // All below by the port's mutex.
  std::unordered_map<planner::RequestId, Request*> requests_;
  decltype(requests_)::node_type spare_;  // a node of requests_ for the next call
  std::unordered_map<planner::RequestId, std::shared_ptr<Request>> background_;
  std::unordered_set<planner::RequestId> abandoned_;  // given up and returned from before the planner answered
  std::unordered_set<planner::CommandId> unsent_;     // ordered, and on no stream yet: nothing can come after them
  planner::RequestId next_request_ = 1;
};

}  // namespace ebb::store
