#include "store/planner_port.hpp"

#include <algorithm>
#include <stdexcept>

#include "store/cache_memory.hpp"
#include "store/call_table.hpp"
#include "store/catalog.hpp"
#include "store/link_queues.hpp"
#include "store/persistence.hpp"
#include "store/pump_thread.hpp"
#include "trace/event_text.hpp"

namespace ebb::store {

void PlannerPort::submit(const Locked& locked, planner::HistoryId client, planner::event::Any what) {
  throw_if_poisoned(locked);
  try {
    // Threads read the clock here, one after the other, so that the planner's time never goes back.
    last_event_ = std::max(now(), last_event_);
    const planner::Event event{last_event_, client, std::move(what)};
    if (log_) {
      memory_log_->take(log_->text());
      trace::append_text(log_->text(), event);
    }
    output_.clear();
    planner_.on(event, output_);
    wakeup_ = output_.wakeup;
    if (log_) trace::append_text(log_->text(), output_);
    deliver(locked);
  } catch (const std::logic_error& error) {
    // The planner can no longer be relied on: every call throws from now on.
    poison(locked, std::string(error.what()));
    throw;
  }
}

void PlannerPort::deliver(const Locked& locked) {
  const auto& [catalog, memory, files, queues, calls, pump] = receivers_;
  for (const planner::Retired& one : output_.retired) catalog.forget_written(locked, one.history, one.version);
  bool in_file = false;
  for (const planner::Freed& freed : output_.freed) {  // before the room is used again
    if (in_memory(freed.tier))
      memory.discard(locked, freed);
    else
      in_file = true, files.release(locked, freed);
  }
  for (const planner::Command& command : output_.commands) queues.dispatch(locked, command);
  if (output_.commit) files.commit(locked);
  for (const planner::Failure& failure : output_.failures) catalog.take_failure(locked, failure);
  if (!output_.failures.empty()) calls.ended().notify_all();
  for (const planner::RequestId id : output_.spoiled) calls.take_spoiled(locked, id);
  for (const planner::Returned& returned : output_.returned) memory.take_returned(locked, returned);
  for (planner::Answer& answer : output_.answers) calls.take_answer(locked, answer);
  if (in_file) files.report_unreleased(locked);
}

void PlannerPort::poison(const Locked& locked, std::string error) {
  poisoned_ = std::move(error);
  receivers_.calls.wake_everyone(locked);
}

void PlannerPort::poison(Locked& locked, const std::exception& error) {
  if (!locked.native().owns_lock()) locked.lock();
  if (!poisoned_) poison(locked, std::string(error.what()));
}

void PlannerPort::Locked::unlock() {
  PumpThread& pump = port_.receivers_.pump;
  const bool wake = pump.wanted(*this);
  lock_.unlock();
  if (wake) pump.notify();
}

void PlannerPort::Locked::wake_pump() {
  if (PumpThread& pump = port_.receivers_.pump; pump.wanted(*this)) pump.notify();
}

void PlannerPort::begin_log(std::unique_ptr<trace::EventLog> log, std::shared_ptr<trace::ProvisionLog> memory) {
  log_ = std::move(log);
  memory_log_ = std::move(memory);
  trace::append_text(log_->text(), machine());
}

void PlannerPort::write_log(Locked& locked) {
  std::string text;
  text.swap(log_->text());
  locked.native().unlock();
  log_->write(text);
  locked.native().lock();
}

Result<void> PlannerPort::end_log(const Locked& /*locked*/) {
  if (!log_) return {};
  memory_log_->take(log_->text());
  log_->write(log_->text());
  Result<void> result = log_->result();
  log_.reset();
  return result;
}

}  // namespace ebb::store
