#pragma once
// Calls that write (checkpoints and reservations) and that read (restores and borrows), and what the application says
// of them until they end.
#include "planner/events.hpp"
#include "planner/outcomes.hpp"
#include "planner/placing.hpp"
#include "planner/state.hpp"

namespace ebb::planner {

class Requests : Decider {
 public:
  Requests(State& state, Waits& waits, Outcomes& outcomes, Placing& placing)
      : Decider(state), waits_(waits), outcomes_(outcomes), placing_(placing) {}

  void on(HistoryId client, const event::Checkpoint& e);
  void on(HistoryId client, const event::Reserve& e);
  void on(HistoryId client, const event::Adopt& e);
  void on(HistoryId client, const event::Restore& e);
  void on(HistoryId client, const event::Borrow& e);
  void on(HistoryId client, const event::Commit& e);
  void on(HistoryId client, const event::Abandon& e);
  void on(HistoryId client, const event::Release& e);
  void on(HistoryId client, const event::Submit& e);
  void on(HistoryId client, const event::Ready& e);
  void on(HistoryId client, const event::Cancel& e);

 private:
  template <class Write>
  Request* begin_write(HistoryId client, const Write& e);
  Request& begin_read(HistoryId client, Request r);
  void place_or_wait(Request& r);

  Waits& waits_;
  Outcomes& outcomes_;
  Placing& placing_;
};

}  // namespace ebb::planner
