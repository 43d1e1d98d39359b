#include "store/planner_port.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

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
    receiver_.take(locked, output_);
  } catch (const std::logic_error& error) {
    // The planner can no longer be relied on: every call throws from now on.
    poison(locked, std::string(error.what()));
    throw;
  }
}

void PlannerPort::poison(const Locked& locked, std::string error) {
  poisoned_ = std::move(error);
  receiver_.wake_everyone(locked);
}

void PlannerPort::poison(Locked& locked, const std::exception& error) {
  if (!locked.native().owns_lock()) locked.lock();
  if (!poisoned_) poison(locked, std::string(error.what()));
}

void PlannerPort::Locked::unlock(Wake wake) {
  const bool wanted = wake == Wake::pump && port_.receiver_.pump_wanted(*this);
  release();
  if (wanted) port_.receiver_.wake_pump();
}

void PlannerPort::Locked::release() {
  if (port_.let_go_.empty()) return lock_.unlock();
  const auto gone = std::exchange(port_.let_go_, {});
  lock_.unlock();
}

void PlannerPort::Locked::wake_pump() {
  if (port_.receiver_.pump_wanted(*this)) port_.receiver_.wake_pump();
  let_go();
}

void PlannerPort::Locked::let_go() {
  if (port_.let_go_.empty()) return;
  release();
  lock();
}

void PlannerPort::begin_log(std::unique_ptr<trace::EventLog> log, std::shared_ptr<trace::ProvisionLog> memory) {
  log_ = std::move(log);
  memory_log_ = std::move(memory);
  trace::append_text(log_->text(), machine());
}

void PlannerPort::write_log(Locked& locked) {
  std::string text;
  text.swap(log_->text());
  locked.unlock(Locked::Wake::nothing);
  log_->write(text);
  locked.lock();
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
