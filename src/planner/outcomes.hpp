#pragma once
// What becomes of moves, and with them of the checkpoints that they carry and of the calls that they serve. One end
// brings about another: a write that fails ends the restores that follow it, which try other ways.
#include <string>

#include "planner/state.hpp"

namespace ebb::policy {

class Outcomes : Part {
 public:
  explicit Outcomes(State& state) : Part(state) {}

  // Moves.
  void settle(MoveIndex index);  // of chunks that have arrived
  void cancel_move(MoveIndex index);
  void abort_move(MoveIndex index);
  void spoil_readers(const Move& filler, Bytes from, bool displaced);

  // Calls.
  void start_read(Request& request);
  void start_parked(Slot slot);
  void finish_read(Slot slot, bool keep);
  bool stop_waiting(RequestId id, Reason reason, const std::string& detail);

  // Checkpoints.
  void begin_delete(Slot slot, bool consumed);
  void drop(Slot slot);
  void undo_write(Slot slot);
  void discard_failed(Slot slot);

 private:
  void complete_move(MoveIndex index);
};

}  // namespace ebb::policy
