#include "transfer/copy_engine.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ebb::transfer {
namespace {

// Nothing depends on it: submits and stop() interrupt the wait.
constexpr std::chrono::milliseconds kLongestWait{100};

}  // namespace

/// Thread safety:
/// 1. A link's mutex is held from copy() to record(), so that each event stands for its own copy, and guards the queue;
///    followed_mutex_ guards followed_ and its idle events.
/// 2. mutex_ guards pending_, stopping_ and closed_. closed_ is set with pending_ at 0, by the reporting thread, which
///    ends then: so what was submitted, be it while stopping, is reported.
/// 3. Only the reporting thread takes from queues.
struct CopyEngine::State {
  struct Copy {
    Token token = 0;
    std::size_t bytes = 0;
    platform::EventId event = 0;
    std::optional<Error> refused;  // with an event: reported once that is done
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
    for (const platform::EventId event : idle_events_) device_.destroy_event(event);
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

  Result<platform::EventId> take_event(std::vector<platform::EventId>& idle) {
    if (idle.empty()) return device_.create_event();
    const platform::EventId event = idle.back();
    idle.pop_back();
    return event;
  }

  // Everything between the copy and its event, or how the device refused.
  Result<platform::EventId> start_locked(Link& link, void* to, const void* from, std::size_t bytes) {
    const Result<platform::EventId> event = take_event(link.idle_events);
    if (!event) return event;
    Result<void> started = device_.copy(link.stream, to, from, bytes);
    if (started) {
      started = device_.record(*event, link.stream);
      // A copy that nothing can be told of any more must not outlive its report.
      if (!started) static_cast<void>(static_cast<bool>(device_.synchronize()));
    }
    if (started) return event;
    link.idle_events.push_back(*event);
    return started.error();
  }

  // How a copy ended; nothing: it has not, and its event goes to `waited`.
  std::optional<Result<void>> outcome(const Copy& copy, std::vector<platform::EventId>& waited) {
    if (copy.event != 0) {
      const platform::EventState state = device_.query(copy.event);
      if (state == platform::EventState::pending) {
        waited.push_back(copy.event);
        return {};
      }
      if (state == platform::EventState::failed && !copy.refused) {
        return Error{Errc::io_error, "a copy of " + std::to_string(copy.bytes) + " bytes failed on device '" +
                                         std::string(device_.name()) + "'"};
      }
    }
    if (copy.refused) return Result<void>(*copy.refused);
    return Result<void>();
  }

  bool report_oldest(Link& link, std::vector<platform::EventId>& waited) {
    Token token = 0;
    std::optional<Result<void>> how;
    {
      std::lock_guard lock(link.mutex);
      if (link.under_way.empty()) return false;
      const Copy& oldest = link.under_way.front();
      if (how = outcome(oldest, waited); !how) return false;
      if (oldest.event != 0) link.idle_events.push_back(oldest.event);
      token = oldest.token;
      link.under_way.pop_front();
    }
    report_one(token, std::move(*how));
    return true;
  }

  // Streams of the application go each at its own pace.
  bool report_followed(std::vector<platform::EventId>& waited) {
    std::vector<std::pair<Token, Result<void>>> ended;
    {
      std::lock_guard lock(followed_mutex_);
      std::erase_if(followed_, [&](const Copy& copy) {
        std::optional<Result<void>> how = outcome(copy, waited);
        if (!how) return false;
        idle_events_.push_back(copy.event);
        ended.emplace_back(copy.token, std::move(*how));
        return true;
      });
    }
    for (auto& [token, how] : ended) report_one(token, std::move(how));
    return !ended.empty();
  }

  void report_one(Token token, Result<void> how) {
    done_(token, std::move(how));
    std::lock_guard lock(mutex_);
    --pending_;
  }

  void report() {
    std::vector<platform::EventId> waited;
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

  platform::Device& device_;
  const Done done_;
  std::vector<std::unique_ptr<Link>> links_;
  std::mutex followed_mutex_;
  std::vector<Copy> followed_;
  std::vector<platform::EventId> idle_events_;
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

Result<void> CopyEngine::follow(platform::StreamId stream, Token token, std::optional<Error> refused) {
  {
    std::lock_guard lock(state_->mutex_);
    if (state_->closed_) throw std::logic_error("a stream was followed by a stopped engine");
    ++state_->pending_;
  }
  const Result<platform::EventId> event = [&] {
    std::lock_guard lock(state_->followed_mutex_);
    return state_->take_event(state_->idle_events_);
  }();
  // Without the lock: a stream that is full makes it stand, and the reporting thread must not.
  const Result<void> followed = event ? state_->device_.record(*event, stream) : Result<void>(event.error());
  if (event) {
    std::lock_guard lock(state_->followed_mutex_);
    if (followed) state_->followed_.push_back({token, 0, *event, std::move(refused)});
    else state_->idle_events_.push_back(*event);
  }
  if (!followed) {
    std::lock_guard lock(state_->mutex_);
    --state_->pending_;
    return followed;
  }
  state_->device_.interrupt();
  return {};
}

std::size_t CopyEngine::pending() const {
  std::lock_guard lock(state_->mutex_);
  return state_->pending_;
}

void CopyEngine::stop() { state_->stop(); }

}  // namespace ebb::transfer
