#include "transfer/copy_engine.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ebb::transfer {
namespace {

// Nothing depends on it: submits and stop() interrupt the wait.
constexpr std::chrono::milliseconds kLongestWait{100};

}  // namespace

/// Thread safety:
/// 1. A link's mutex is held from copy() to record(), so that each event stands for its own copy, and guards the queue.
/// 2. mutex_ guards pending_, stopping_ and closed_. closed_ is set with pending_ at 0, by the reporting thread, which
///    ends then: so what was submitted, be it while stopping, is reported.
/// 3. Only the reporting thread takes from queues.
struct CopyEngine::State {
  struct Copy {
    Token token = 0;
    std::size_t bytes = 0;
    platform::EventId event = 0;
    std::optional<Error> refused;  // by the device; then there is no event
  };
  struct Link {
    platform::StreamId stream = 0;
    std::mutex mutex;
    std::deque<Copy> under_way;
    std::vector<platform::EventId> idle_events;
  };

  State(platform::Device& device, Done done) : device_(device), done_(std::move(done)) {}

  ~State() {
    stop();
    for (const auto& link : links_) {
      device_.destroy_stream(link->stream);
      for (const platform::EventId event : link->idle_events) device_.destroy_event(event);
    }
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

  // Everything between the copy and its event, or how the device refused.
  Result<platform::EventId> start_locked(Link& link, void* to, const void* from, std::size_t bytes) {
    platform::EventId event;
    if (link.idle_events.empty()) {
      Result<platform::EventId> made = device_.create_event();
      if (!made) return made;
      event = *made;
    } else {
      event = link.idle_events.back();
      link.idle_events.pop_back();
    }
    Result<void> started = device_.copy(link.stream, to, from, bytes);
    if (started) started = device_.record(event, link.stream);
    if (started) return event;
    link.idle_events.push_back(event);
    return started.error();
  }

  // The oldest copy of a link, if it has ended; else its event, if there is one, goes to `waited`.
  std::optional<Copy> take_ended(Link& link, std::vector<platform::EventId>& waited, Result<void>& how) {
    std::lock_guard lock(link.mutex);
    if (link.under_way.empty()) return {};
    Copy& oldest = link.under_way.front();
    if (oldest.refused) {
      how = *oldest.refused;
    } else {
      const platform::EventState state = device_.query(oldest.event);
      if (state == platform::EventState::pending) {
        waited.push_back(oldest.event);
        return {};
      }
      if (state == platform::EventState::failed) {
        how = Error{Errc::io_error, "a copy of " + std::to_string(oldest.bytes) + " bytes failed on device '" +
                                        std::string(device_.name()) + "'"};
      }
      link.idle_events.push_back(oldest.event);
    }
    Copy taken = std::move(oldest);
    link.under_way.pop_front();
    return taken;
  }

  void report() {
    std::vector<platform::EventId> waited;
    for (;;) {
      waited.clear();
      bool any = false;
      for (const auto& link : links_) {
        Result<void> how;
        const std::optional<Copy> copy = take_ended(*link, waited, how);
        if (!copy) continue;
        any = true;
        done_(copy->token, std::move(how));
        std::lock_guard lock(mutex_);
        --pending_;
      }
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

  platform::Device& device_;
  const Done done_;
  std::vector<std::unique_ptr<Link>> links_;
  mutable std::mutex mutex_;
  std::size_t pending_ = 0;
  bool stopping_ = false, closed_ = false;
  std::thread reporter_;
};

CopyEngine::CopyEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}
CopyEngine::~CopyEngine() = default;

Result<std::unique_ptr<CopyEngine>> CopyEngine::create(platform::Device& device, unsigned links, Done done) {
  auto state = std::make_unique<State>(device, std::move(done));
  for (unsigned link = 0; link < links; ++link) {
    Result<platform::StreamId> stream = device.create_stream();
    if (!stream) return stream.error();
    state->links_.push_back(std::make_unique<State::Link>());
    state->links_.back()->stream = *stream;
  }
  state->reporter_ = std::thread([state = state.get()] { state->report(); });
  return std::unique_ptr<CopyEngine>(new CopyEngine(std::move(state)));
}

void CopyEngine::submit(unsigned number, Token token, void* to, const void* from, std::size_t bytes) {
  State::Link& link = *state_->links_.at(number);
  {
    std::lock_guard lock(state_->mutex_);
    if (state_->closed_) throw std::logic_error("a copy was submitted to a stopped engine");
    ++state_->pending_;
  }
  bool first = false;
  {
    std::lock_guard lock(link.mutex);
    Result<platform::EventId> event = state_->start_locked(link, to, from, bytes);
    first = link.under_way.empty();
    if (event) {
      link.under_way.push_back({token, bytes, *event, {}});
    } else {
      link.under_way.push_back({token, bytes, 0, event.error()});
    }
  }
  // Behind another copy of its link it is seen when that one ends.
  if (first) state_->device_.interrupt();
}

std::size_t CopyEngine::pending() const {
  std::lock_guard lock(state_->mutex_);
  return state_->pending_;
}

void CopyEngine::stop() { state_->stop(); }

}  // namespace ebb::transfer
