#include "store/dispatcher.hpp"

#include "store/cache_memory.hpp"
#include "store/call_table.hpp"
#include "store/catalog.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/persistence.hpp"
#include "store/pump_thread.hpp"

namespace ebb::store {

void Dispatcher::take(const Locked& locked, planner::Output& output) {
  for (const planner::Retired& one : output.retired) catalog_.forget_written(locked, one.history, one.version);
  bool in_file = false;
  for (const planner::Freed& freed : output.freed) {  // before the room is used again
    if (port_.in_memory(freed.tier))
      memory_.discard(locked, freed);
    else
      in_file = true, files_.release(locked, freed);
  }
  for (const planner::Command& command : output.commands) take_command(locked, command);
  if (output.commit != 0) files_.commit(locked, output.commit);
  for (const planner::Failure& failure : output.failures) {
    catalog_.take_failure(locked, failure);
    files_.note_failure(locked, failure);
  }
  if ((output.silent | output.heard) != 0) files_.trouble().note_silence(locked, files_.tiers(), output);
  if (in_file || !output.failures.empty() || !output.retired.empty()) port_.ended().notify_all();
  for (const planner::RequestId id : output.spoiled) calls_.take_spoiled(locked, id);
  for (const planner::Returned& returned : output.returned) memory_.take_returned(locked, returned);
  for (planner::Answer& answer : output.answers) calls_.take_answer(locked, answer);
  if (in_file) files_.report_unreleased(locked);
}

// To its link's queue, or to the call whose copy it is.
void Dispatcher::take_command(const Locked& locked, const planner::Command& command) {
  using planner::Endpoint;
  calls_.set_unsent(locked, command.id);
  memory_.want(command);
  if (command.from.at.kind == Endpoint::application || command.to.at.kind == Endpoint::application)
    calls_.take_command(locked, command);
  else
    queues_.add(locked, command);
}

bool Dispatcher::pump_wanted(const Locked& locked) { return pump_.wanted(locked); }
void Dispatcher::wake_pump() { pump_.notify(); }

void Dispatcher::wake_everyone(const Locked& locked) {
  calls_.wake_everyone(locked);
  memory_.wake_lenders(locked);
  lifetime_.wake(locked);
  pump_.wake(locked);
}

}  // namespace ebb::store
