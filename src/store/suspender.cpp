#include "store/suspender.hpp"

#include <bit>
#include <chrono>

#include "base/start_thread.hpp"
#include "store/engine.hpp"

namespace ebb::store {
namespace {

constexpr Seconds kDropTimeout{60};

Seconds left_until(planner::Time now, planner::Time until) {
  return Seconds(static_cast<double>(std::max<planner::Time>(0, until - now)) * 1e-9);
}

std::int64_t since_1970() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<void> Suspender::on(int signal, const SuspendOptions& options) {
  const std::string given = "signal=" + std::to_string(signal);
  if (!os::is_a_request(signal))
    return Error{Errc::invalid_argument,
                 given + " is not valid: expected one that a program may take as a request, such as SIGTERM"};
  if (options.within && !(options.within->count() > 0))
    return Error{Errc::invalid_argument,
                 "within=" + std::to_string(options.within->count()) + " is not valid: expected seconds, above zero"};
  auto level = engine_.suspension_level(options.level);
  if (!level) return level.error();
  const std::lock_guard lock(mutex_);
  if (stopping_) return Error{Errc::closed, "the store is closed"};
  if (!wake_) wake_ = std::make_unique<os::SignalWake>();
  if (const auto added = wake_->add(signal); !added) {
    if (!thread_.joinable()) wake_.reset();
    if (added.error == EMFILE)
      return Error{Errc::in_use, std::to_string(os::SignalWake::kSlots) +
                                     " stores of this process wait for signals already: close one"};
    return os::system_error(given + " cannot be handled", added.error);
  }
  plans_[static_cast<std::size_t>(signal)] = {true, std::move(*level), options.within};
  if (thread_.joinable()) return {};
  auto thread = base::start_thread([this] { run(); });
  if (!thread) {
    wake_.reset();
    return thread.error();
  }
  thread_ = std::move(*thread);
  used_ = true;
  return {};
}

void Suspender::run() {
  for (;;) {
    wake_->sleep();
    Plan plan;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      const std::uint64_t came = wake_->take();
      if (came == 0 || suspended_) {
        ended_.notify_all();  // a call may have seen the signal, and wait
        continue;
      }
      signal_ = std::countr_zero(came) + 1;
      plan = plans_[static_cast<std::size_t>(signal_)];
      draining_ = true;
    }
    const Result<void> done = suspend(plan);
    const std::lock_guard lock(mutex_);
    draining_ = false;
    suspended_ = static_cast<bool>(done);
    failure_.reset();
    if (!done)
      failure_ = Error{done.error().code, os::name_of_signal(signal_) +
                                              " came, and the store could not be suspended: " + done.error().message};
    ended_.notify_all();
  }
}

Result<void> Suspender::suspend(const Plan& plan) {
  const planner::Time until = plan.within ? later(engine_.now(), *plan.within) : planner::kNever;
  Result<void> done;
  try {
    const auto before = engine_.histories().versions(
        engine_.histories().history(std::string(kReservedForSuspension), Order::none).first);
    if (!before) done = before.error();
    if (done && !before->empty()) done = drop_marks(until);  // of an earlier process: if this fails, there is none
    if (done) done = engine_.drain(plan.level, until, [this] { return stopping(); });
    if (done) done = write_mark(plan.level, until);
  } catch (const std::exception& broken) {  // the planner's contract: every call on the store throws from now on
    done = Error{Errc::io_error, broken.what()};
  }
  engine_.log_suspension(done);
  return done;
}

bool Suspender::stopping() {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

Result<void> Suspender::write_mark(const std::string& level, planner::Time until) {
  const auto [history, in_hand] = engine_.histories().history(std::string(kReservedForSuspension), Order::none);
  if (!in_hand) return not_open();
  const Version version = since_1970();
  const Interrupt stopped = [this] { return stopping(); };
  const auto written =
      engine_.writes().checkpoint(engine_.shared_from_this(), history, version, {},
                                  {.timeout = left_until(engine_.now(), until), .interrupted = stopped});
  if (!written) return written.error();
  auto durable = engine_.waits().wait(history, version, level, left_until(engine_.now(), until), stopped);
  if (!durable) static_cast<void>(static_cast<bool>(engine_.histories().drop(history, version)));
  return durable;
}

bool Suspender::await(std::unique_lock<std::mutex>& lock, const Interrupt& interrupted) {
  const auto over = [this] { return !under_way() || stopping_; };
  while (!over()) {
    if (!interrupted) {
      ended_.wait(lock, over);
      break;
    }
    if (ended_.wait_for(lock, kInterruptEvery, over)) break;
    lock.unlock();
    const bool asked = interrupted();
    lock.lock();
    if (asked) return false;
  }
  return true;
}

bool Suspender::settle(const Interrupt& interrupted) {
  if (!used_ || process_ != ::getpid()) return true;
  std::unique_lock lock(mutex_);
  return await(lock, interrupted);
}

std::optional<Error> Suspender::refusal(const Interrupt& interrupted) {
  if (!used_ || process_ != ::getpid()) return {};
  std::unique_lock lock(mutex_);
  if (!await(lock, interrupted))
    return Error{Errc::timed_out, "the call was interrupted while the store was being suspended"};
  if (suspended_)
    return Error{Errc::suspended, os::name_of_signal(signal_) +
                                      " came: what was written is durable, and the store takes no more calls until "
                                      "the mark is cleared"};
  return std::exchange(failure_, std::nullopt);
}

Result<std::optional<std::int64_t>> Suspender::mark() {
  const auto [history, in_hand] = engine_.histories().history(std::string(kReservedForSuspension), Order::none);
  if (!in_hand) return not_open();
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return std::optional<std::int64_t>();  // a mark is being written, and may not be durable yet
  }
  const auto versions = engine_.histories().versions(history);
  if (!versions) return versions.error();
  return versions->empty() ? std::nullopt : std::optional<std::int64_t>(versions->back());
}

// Without history, its number would be that of the program's own, "".
Error Suspender::not_open() const {
  if (process_ != ::getpid())
    return {Errc::unsupported, "this store was opened by the parent process, and this is a forked child"};
  return {Errc::closed, "the store is closed, or is being closed"};
}

Result<void> Suspender::drop_marks(planner::Time until) {
  const auto [history, in_hand] = engine_.histories().history(std::string(kReservedForSuspension), Order::none);
  if (!in_hand) return not_open();
  if (auto dropped = engine_.histories().drop(history, {}); !dropped) return dropped;
  const Seconds left = until == planner::kNever ? kDropTimeout : left_until(engine_.now(), until);
  if (engine_.histories().wait_for_drops(left, [this] { return stopping(); })) return {};
  return Error{Errc::timed_out, "the mark was dropped, but the disk has not answered yet: a later process may find it"};
}

Result<void> Suspender::clear() {
  if (auto dropped = drop_marks(planner::kNever); !dropped) return dropped;
  const std::lock_guard lock(mutex_);
  suspended_ = false;
  return {};
}

void Suspender::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ended_.notify_all();
  }
  if (!thread_.joinable()) return;
  wake_->wake();
  thread_.join();
  const std::lock_guard lock(mutex_);
  wake_.reset();  // from now on the signal does what it did before
}

}  // namespace ebb::store
