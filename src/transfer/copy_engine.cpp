#include "transfer/copy_engine.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/lock_soon.hpp"
#include "base/start_thread.hpp"
#include "transfer/followed.hpp"

namespace ebb::transfer {
namespace {

// An upper bound that nothing depends on: submits and stop() interrupt the wait.
constexpr std::chrono::milliseconds kLongestWait{100};

}  // namespace

/// Events for reuse. Thread safety: every method may be called from any thread.
class EventPool {
 public:
  explicit EventPool(device::Device& device) : device_(device) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    for (const Lease& event : events_) device_.destroy_event(*event);
  }

  /// Unused again once its last owner has let go of it: a thread that makes a stream wait for it may still do so after
  /// the report.
  using Lease = std::shared_ptr<const device::EventId>;
  Result<Lease> take() {
    {
      std::lock_guard lock(mutex_);
      for (std::size_t tried = 0; tried < std::min(kTries, events_.size()); ++tried) {
        const Lease& event = events_[next_];
        next_ = next_ + 1 == events_.size() ? 0 : next_ + 1;
        // With the pool as its only owner, all that others asked the device to do with it has been asked.
        if (event.use_count() == 1) return event;
      }
    }
    const Result<device::EventId> made = device_.create_event();
    if (!made) return made.error();
    Lease event = std::make_shared<const device::EventId>(*made);
    std::lock_guard lock(mutex_);
    try {
      events_.push_back(event);
    } catch (...) {
      device_.destroy_event(*event);
      throw;
    }
    return event;
  }

 private:
  static constexpr std::size_t kTries = 4;  // they come back nearly in the order in which they were taken
  device::Device& device_;
  std::mutex mutex_;
  std::vector<Lease> events_;
  std::size_t next_ = 0;  // the one that was taken longest ago
};

/// Thread safety:
/// 1. A link's mutex is held from copy() to record(), so that each event belongs to its own copy, and guards the queue;
///    followed_mutex_ guards followed_.
/// 2. mutex_ guards pending_, stopping_ and closed_. The reporting thread sets closed_ when pending_ is 0, and then
///    ends, so whatever was submitted, even while stopping, is reported.
/// 3. Only the reporting thread takes from queues, and only after it has reported: a thread that does not find a token
///    there knows that its end has been reported. So it asks the driver about the oldest with no lock held: what it
///    asks about stays, and no call waits for the driver's answer.
/// 4. Only the oldest of each queue is polled and waited for, so that the work of a call does not grow with what is
///    outstanding. What is pushed behind others needs no interrupt: the reporting thread waits for the oldest, and
///    looks at the queue again after reporting it.
struct CopyEngine::Impl {
  struct Link {
    device::StreamId stream = 0;
    std::mutex mutex;
    std::deque<Copy> in_flight;  // no more than the driver queues at once
  };

  Impl(device::Device& device, Done done) : device_(device), done_(std::move(done)), events_(device) {}

  ~Impl() {
    stop();
    for (const auto& link : links_) device_.destroy_stream(link->stream);
  }

  void stop() {
    if (!reporter_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    device_.interrupt();
    reporter_.join();
  }

  // Everything between the copy and its event, or the device's refusal.
  Copy start_locked(Link& link, Token token, std::span<const Part> parts, const std::optional<Digested>& digested) {
    Copy copy{.token = token, .bytes = 0, .event = {}, .refused = {}, .ended = {}};
    Result<EventPool::Lease> event = events_.take();
    if (!event) {
      copy.refused = event.error();
      return copy;
    }
    Result<void> started;
    std::size_t begun = 0;
    for (const Part& part : parts) {
      copy.bytes += part.bytes;
      if (started) started = device_.copy(link.stream, part.to, part.from, part.bytes);
      if (started) ++begun;
    }
    if (started && digested) {
      started = device_.digest(link.stream, digested->memory, digested->bytes, digested->parts);
    }
    if (!started) copy.refused = started.error();
    if (begun == 0 && !started) return copy;
    // After a refused part too: the parts before it must not outlive the report.
    if (const Result<void> recorded = device_.record(**event, link.stream)) {
      copy.event = std::move(*event);
    } else {
      // A copy without an event to wait for must not outlive the report either.
      static_cast<void>(static_cast<bool>(device_.synchronize()));
      if (!copy.refused) copy.refused = recorded.error();
    }
    return copy;
  }

  // How a copy ended; nothing: it is pending, and its event goes to `waited`.
  std::optional<Result<void>> outcome(const Copy& copy, std::vector<device::EventId>& waited) {
    if (copy.event) {
      const device::EventState state = device_.query(*copy.event);
      if (state == device::EventState::pending) {
        waited.push_back(*copy.event);
        return {};
      }
      if (state == device::EventState::failed && !copy.refused) {
        const Result<void> why = device_.wait(*copy.event);
        return Error{Errc::io_error, "a copy of " + std::to_string(copy.bytes) + " bytes failed on device '" +
                                         std::string(device_.name()) + "'" + (why ? "" : ": " + why.error().message)};
      }
    }
    if (copy.refused) return Result<void>(*copy.refused);
    return Result<void>();
  }

  bool report_oldest(Link& link, std::vector<device::EventId>& waited) {
    Copy* oldest = nullptr;
    {
      const auto lock = base::lock_soon(link.mutex);
      if (link.in_flight.empty()) return false;
      oldest = &link.in_flight.front();
    }
    const auto how = outcome(*oldest, waited);
    if (!how) return false;
    {
      const auto lock = base::lock_soon(link.mutex);
      oldest->ended = how;
    }
    report_one(oldest->token, *how);
    const auto lock = base::lock_soon(link.mutex);
    link.in_flight.pop_front();
    return true;
  }

  // Each stream of the application advances at its own pace.
  bool report_followed(std::vector<device::EventId>& waited) {
    oldest_.clear();
    ended_.clear();
    {
      const auto lock = base::lock_soon(followed_mutex_);
      followed_.add_oldest(oldest_);
    }
    for (Copy* const copy : oldest_)
      if (auto how = outcome(*copy, waited)) ended_.emplace_back(copy, std::move(*how));
    if (ended_.empty()) return false;
    {
      const auto lock = base::lock_soon(followed_mutex_);
      for (const auto& [copy, how] : ended_) copy->ended = how;
    }
    for (auto& [copy, how] : ended_) report_one(copy->token, std::move(how));
    const auto lock = base::lock_soon(followed_mutex_);
    followed_.drop_ended();
    return true;
  }

  void report_one(Token token, Result<void> how) {
    done_(token, std::move(how));
    std::lock_guard lock(mutex_);
    --pending_;
  }

  // The event of a pending `token`; none: it has ended. Error: how it failed.
  static Result<EventPool::Lease> end_of(const Copy& copy) {
    if (copy.refused) return *copy.refused;
    if (!copy.ended) return copy.event;
    if (!*copy.ended) return copy.ended->error();
    return EventPool::Lease();
  }

  // The event of a copy in flight as `token`; none if there is no such copy.
  Result<EventPool::Lease> in_flight(Token token) {
    for (const auto& link : links_) {
      std::lock_guard lock(link->mutex);
      const auto found = std::ranges::find(link->in_flight, token, &Copy::token);
      if (found != link->in_flight.end()) return end_of(*found);
    }
    std::lock_guard lock(followed_mutex_);
    const Copy* const found = followed_.find(token);
    return found ? end_of(*found) : EventPool::Lease();
  }

  void report() {
    std::vector<device::EventId> waited;
    for (;;) {
      waited.clear();
      bool any = report_followed(waited);
      for (const auto& link : links_) any |= report_oldest(*link, waited);
      if (any) continue;
      {
        std::lock_guard lock(mutex_);
        if (stopping_ && pending_ == 0) {
          closed_ = true;
          return;
        }
      }
      device_.wait_any(waited, kLongestWait);
    }
  }

  device::Device& device_;
  const Done done_;
  EventPool events_;  // outlives the copies that hold its events
  std::vector<std::unique_ptr<Link>> links_;
  std::mutex followed_mutex_;
  Followed followed_;
  std::vector<Copy*> oldest_;                          // of the reporting thread alone
  std::vector<std::pair<Copy*, Result<void>>> ended_;  // of the reporting thread alone
  mutable std::mutex mutex_;
  std::size_t pending_ = 0;
  bool stopping_ = false, closed_ = false;
  std::thread reporter_;
};

CopyEngine::CopyEngine(std::unique_ptr<Impl> state) : state_(std::move(state)) {}
CopyEngine::~CopyEngine() = default;

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(device::Device& device, unsigned links, Done done) {
  auto state = std::make_unique<Impl>(device, std::move(done));
  for (unsigned link = 0; link < links; ++link) {
    Result<device::StreamId> stream = device.create_stream();
    if (!stream) return stream.error();
    state->links_.push_back(std::make_unique<Impl::Link>());
    state->links_.back()->stream = *stream;
  }
  auto reporter = base::start_thread([state = state.get()] { state->report(); });
  if (!reporter) return reporter.error();
  state->reporter_ = std::move(*reporter);
  return std::unique_ptr<CopyEngine>(new CopyEngine(std::move(state)));
}

void CopyEngine::submit(unsigned link, Token token, void* to, const void* from, std::size_t bytes) {
  const Part whole{to, from, bytes};
  submit(link, token, std::span(&whole, 1));
}

void CopyEngine::submit(unsigned number, Token token, std::span<const Part> parts,
                        const std::optional<Digested>& digested) {
  Impl::Link& link = *state_->links_.at(number);
  {
    std::lock_guard lock(state_->mutex_);
    if (state_->closed_) throw std::logic_error("a copy was submitted to a stopped engine");
    ++state_->pending_;
  }
  bool first = false;
  try {
    std::lock_guard lock(link.mutex);
    Copy copy = state_->start_locked(link, token, parts, digested);
    first = link.in_flight.empty();
    link.in_flight.push_back(std::move(copy));
  } catch (...) {  // no memory, say: the copy cannot be reported, so it must be complete
    static_cast<void>(static_cast<bool>(state_->device_.synchronize()));
    std::lock_guard lock(state_->mutex_);
    --state_->pending_;
    throw;
  }
  // Behind another copy of its link: it is looked at when that one ends.
  if (first) state_->device_.interrupt();
}

Result<void> CopyEngine::follow(device::StreamId stream, Token token, std::optional<Error> refused) {
  {
    std::lock_guard lock(state_->mutex_);
    if (state_->closed_) throw std::logic_error("a stream was followed by a stopped engine");
    ++state_->pending_;
  }
  const auto undo = [&] {
    std::lock_guard lock(state_->mutex_);
    --state_->pending_;
  };
  bool oldest = false;
  try {
    Result<EventPool::Lease> event = state_->events_.take();
    // Without the lock: a full stream blocks the caller, and the reporting thread must not wait for that.
    const Result<void> followed = event ? state_->device_.record(**event, stream) : Result<void>(event.error());
    if (!followed) {
      undo();
      return followed;
    }
    const auto lock = base::lock_soon(state_->followed_mutex_);
    oldest = state_->followed_.push(
        stream, {.token = token, .bytes = 0, .event = std::move(*event), .refused = std::move(refused), .ended = {}});
  } catch (const std::bad_alloc&) {
    undo();
    return Error{Errc::out_of_memory, "there is no memory to wait for a stream with"};
  }
  if (oldest) state_->device_.interrupt();
  return {};
}

Result<void> CopyEngine::come_after(device::StreamId stream, Token token) {
  const Result<EventPool::Lease> event = state_->in_flight(token);
  if (!event) return event.error();
  if (!*event) return {};
  return state_->device_.stream_wait(stream, **event);
}

std::size_t CopyEngine::pending() const {
  std::lock_guard lock(state_->mutex_);
  return state_->pending_;
}

void CopyEngine::stop() { state_->stop(); }

}  // namespace ebb::transfer
