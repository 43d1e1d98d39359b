#include "store/planner_port.hpp"

#include <algorithm>
#include <stdexcept>

#include "store/engine.hpp"
#include "trace/event_text.hpp"

namespace ebb::runtime {

void PlannerPort::submit(const Locked& locked, policy::HistoryId client, policy::event::Any what) {
  throw_if_poisoned(locked);
  try {
    // Threads read the clock here, one after the other, so that the planner's time never goes back.
    last_event_ = std::max(now(), last_event_);
    const policy::Event event{last_event_, client, std::move(what)};
    if (log_) append_text(log_->text(), event);
    output_.clear();
    planner_.on(event, output_);
    wakeup_ = output_.wakeup;
    if (log_) append_text(log_->text(), output_);
    receivers_.take(locked, output_);
  } catch (const std::logic_error& error) {
    // The planner can no longer be relied on, whoever asks: every call says so from now on.
    poison(locked, std::string(error.what()));
    throw;
  }
}

void PlannerPort::poison(const Locked& locked, std::string error) {
  poisoned_ = std::move(error);
  receivers_.wake_everyone(locked);
}

void PlannerPort::poison(Locked& locked, const std::exception& error) {
  if (!locked.native().owns_lock()) locked.lock();
  if (!poisoned_) poison(static_cast<const Locked&>(locked), std::string(error.what()));
}

void PlannerPort::Locked::unlock() {
  const bool wake = port_.receivers_.wants_pump(*this);
  lock_.unlock();
  if (wake) port_.receivers_.notify_pump();
}

void PlannerPort::begin_log(std::unique_ptr<EventLog> log) {
  log_ = std::move(log);
  append_text(log_->text(), machine());
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
  log_->write(log_->text());
  Result<void> result = log_->result();
  log_.reset();
  return result;
}

}  // namespace ebb::runtime
