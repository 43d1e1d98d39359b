#pragma once
// The only way to the planner: its mutex, its clock and its event log.
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/lock_soon.hpp"
#include "os/clock.hpp"
#include "planner/planner.hpp"
#include "trace/event_log.hpp"
#include "trace/provision_text.hpp"

namespace ebb::store {

class Receiver;

/// Owns the planner. Events go in one at a time, each with its time; what the planner gives goes to its receiver.
///
/// Thread safety: lock(), now() and machine() may be called from any thread; everything else takes the Locked that
/// lock() makes.
/// 1. A Locked holds the mutex, and only lock() makes one. A method that takes a `const Locked&` holds the mutex
///    throughout; one that takes a `Locked&` may release it meanwhile, and holds it again when it returns.
/// 2. Only submit() changes the planner. Event times never go back.
/// 3. Everything that the planner gives for an event has been taken by its receiver when submit() returns.
/// 4. Once the planner's contract was broken the port is poisoned: submit() throws from then on, and every call that
///    waits ends by throwing.
class PlannerPort {
 public:
  /// The mutex, held. Its release wakes the pump thread if that has work.
  class Locked {
   public:
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
    ~Locked() {
      if (lock_.owns_lock()) unlock();
    }
    void lock() { lock_ = base::lock_soon(port_.mutex_); }
    enum class Wake { pump, nothing };
    void unlock(Wake wake = Wake::pump);
    /// Before a wait: wakes the pump thread if that has work. May release the mutex meanwhile.
    void wake_pump();
    /// Before a wait of a thread that holds the mutex all along: destroys what was let go of. May release it meanwhile.
    void let_go();
    /// For waits.
    std::unique_lock<std::mutex>& native() { return lock_; }

   private:
    friend class PlannerPort;
    explicit Locked(PlannerPort& port) : port_(port), lock_(base::lock_soon(port.mutex_)) {}
    PlannerPort& port_;
    void release();
    std::unique_lock<std::mutex> lock_;
  };

  PlannerPort(std::shared_ptr<os::Clock> clock, const planner::Machine& machine, Receiver& receiver)
      : clock_(std::move(clock)), planner_(machine), receiver_(receiver) {
    while (in_memory(first_file_)) ++first_file_;
  }

  Locked lock() { return Locked(*this); }
  planner::Time now() const { return clock_->now(); }
  const planner::Machine& machine() const { return planner_.machine(); }
  bool in_memory(planner::TierIndex tier) const {
    return tier != planner::kNoTier && static_cast<std::size_t>(tier) < machine().tiers.size() &&
           machine().tiers[static_cast<std::size_t>(tier)].medium != planner::Medium::file;
  }
  /// The fastest file tier: all below it are file tiers. As many as there are tiers: there is none.
  planner::TierIndex first_file() const { return first_file_; }
  /// How many file tiers are faster than this one.
  std::size_t file_number(planner::TierIndex tier) const { return static_cast<std::size_t>(tier - first_file_); }
  const planner::Planner& planner(const Locked& /*locked*/) const { return planner_; }

  /// Throws std::logic_error when the planner's contract is, or was, broken.
  void submit(const Locked& locked, planner::HistoryId client, planner::event::Any what);
  /// The latest time at which the planner wants its next event.
  planner::Time wakeup(const Locked& /*locked*/) const { return wakeup_; }
  planner::Time last_event(const Locked& /*locked*/) const { return last_event_; }

  /// For a contract found broken on a thread of the store's own: the calls throw in its place. The first error is kept.
  /// Takes the mutex if it is released.
  void poison(Locked& locked, const std::exception& error);
  void poison(const Locked& locked, std::string error);
  bool poisoned(const Locked& /*locked*/) const { return poisoned_.has_value(); }
  /// Throws std::logic_error.
  void throw_if_poisoned(const Locked& /*locked*/) const {
    if (poisoned_) throw std::logic_error(*poisoned_);
  }

  /// Destroys it once the mutex is released: the end of what the program lent is the program's code.
  void let_go(const Locked& /*locked*/, std::shared_ptr<const void> what) { let_go_.push_back(std::move(what)); }

  /// Notified when a Future has ended, something became durable or never will, a timer fired.
  std::condition_variable& ended() { return ended_; }

  /// Called before the store has any threads but those of its memory, which write to `memory`.
  void begin_log(std::unique_ptr<trace::EventLog> log, std::shared_ptr<trace::ProvisionLog> memory);
  bool log_full(const Locked& /*locked*/) const { return log_ && log_->full(); }
  /// Releases the mutex while it writes, and wakes no thread.
  void write_log(Locked& locked);
  Result<void> end_log(const Locked& locked);

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  const std::shared_ptr<os::Clock> clock_;
  planner::Planner planner_;                         // by mutex_, but for its machine, which is constant
  planner::TierIndex first_file_ = 0;                // constant
  planner::Output output_;                           // by mutex_
  planner::Time last_event_ = 0;                     // by mutex_
  planner::Time wakeup_ = planner::kNever;           // by mutex_
  std::vector<std::shared_ptr<const void>> let_go_;  // by mutex_
  std::optional<std::string> poisoned_;              // by mutex_: what broke the contract
  std::unique_ptr<trace::EventLog> log_;             // its text by mutex_; the pump thread writes
  // With log_. The memory writes to it without mutex_.
  std::shared_ptr<trace::ProvisionLog> memory_log_;
  Receiver& receiver_;
};

using Locked = PlannerPort::Locked;

/// What stands behind the port: it takes the planner's output, and wakes who waits.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void take(const Locked& locked, planner::Output& output) = 0;
  /// Whether the pump thread sleeps though there is work: wake_pump() follows.
  virtual bool pump_wanted(const Locked& locked) = 0;
  virtual void wake_pump() = 0;  // without the mutex, or with it
  virtual void wake_everyone(const Locked& locked) = 0;
};

}  // namespace ebb::store
