#pragma once
// What becomes of moves as their commands end, and with them of the checkpoints that they carry and of the calls that
// they serve. One end causes another: a write that fails ends the restores that follow it, which try other ways.
#include <string>

#include "planner/events.hpp"
#include "planner/state.hpp"
#include "planner/waits.hpp"

namespace ebb::planner {

class Outcomes : Decider {
 public:
  Outcomes(State& state, Waits& waits) : Decider(state), waits_(waits) {}

  // What a driver reports of commands.
  void on(HistoryId client, const event::Carried& e);
  void on(HistoryId client, const event::Finished& e);
  void on(HistoryId client, const event::Failed& e);

  // Moves.
  void cancel_move(MoveIndex index);
  // Ends both moves of a split that is not complete: what has come of it goes.
  void undo_split(Slot slot);
  void spoil_readers(const Move& filler, Bytes from, bool displaced);

  // Calls.
  void start_read(Request& request);
  void start_parked(Slot slot);
  void finish_read(Slot slot, bool keep);
  bool stop_waiting(RequestId id, Reason reason, const std::string& detail);

  // Checkpoints.
  void begin_delete(Slot slot, bool consumed);
  void drop(Slot slot);
  void undo_write(Slot slot, WriteState to = WriteState::unwritten);
  void discard_failed(Slot slot);

 private:
  void settle(MoveIndex index);
  void complete_move(MoveIndex index);
  void abort_move(MoveIndex index);

  Waits& waits_;
};

}  // namespace ebb::planner
