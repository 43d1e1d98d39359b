// What an arena does in the background.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "cache/tier_memory.hpp"

namespace ebb::memory {

using policy::ByteRange;
using policy::ProvisionEvent;

namespace {

// What is thrown for want of memory is as much a refusal as one that is returned.
template <typename Work>
auto attempt(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return Error{Errc::out_of_memory, error.what()};
  }
}

// So that nothing can fail between a registration and its being known.
template <typename T>
void make_room(std::vector<T>& list, std::size_t more) {
  if (list.capacity() - list.size() < more) list.reserve(2 * list.size() + more);
}

}  // namespace

// --- what the others say -------------------------------------------------------------------------------------------

void TierMemory::want(std::size_t end) {
  std::size_t wanted = wanted_.load(std::memory_order_relaxed);
  do {
    if (end <= wanted) return;
  } while (!wanted_.compare_exchange_weak(wanted, end, std::memory_order_relaxed));
  const std::size_t more = untouched(end);
  const Result<void> left = more > 0 ? attempt([&] { return options_.left(more); }) : Result<void>();
  if (!left) tell({.kind = ProvisionEvent::refused, .offset = wanted}, left);
  tell({.kind = ProvisionEvent::placed, .length = end});
}

// Before `end`, of memory that may be used before it was touched.
std::size_t TierMemory::untouched(std::size_t end) const {
  if (finished_.load(std::memory_order_relaxed)) return 0;
  std::lock_guard lock(mutex_);
  if (!provisioner_ || !provisioner_->spec().faults_in) return 0;
  end = std::min(end, provisioner_->state().limit);
  return end - std::min(end, provisioner_->state().touched);
}

void TierMemory::produced(std::size_t bytes) { tell({.kind = ProvisionEvent::produced, .length = bytes}); }

void TierMemory::copy_begun(std::size_t offset, std::size_t bytes) {
  if (registers_) {
    std::lock_guard lock(copies_mutex_);
    copies_.push_back({offset, bytes});
  }
  tell({.kind = ProvisionEvent::copy_begun});
}

void TierMemory::copy_ended(std::size_t offset, std::size_t bytes, std::size_t moved, std::chrono::nanoseconds took) {
  if (registers_) {
    std::lock_guard lock(copies_mutex_);
    const auto ended = std::ranges::find(copies_, ByteRange{offset, bytes});
    if (ended == copies_.end()) throw std::logic_error("a copy ended that had not begun");
    *ended = copies_.back();
    copies_.pop_back();
  }
  tell({.kind = ProvisionEvent::copy_ended, .length = moved, .took = took.count()});
}

bool TierMemory::copies_use(ByteRange range) const {
  std::lock_guard lock(copies_mutex_);
  return std::ranges::any_of(
      copies_, [&](const ByteRange& copy) { return copy.offset < range.end() && range.offset < copy.end(); });
}

// Who calls may hold locks of his own: what is to be said is said by a thread of ours.
void TierMemory::tell(ProvisionEvent event, const Result<void>& left) {
  if (finished_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  if (finished_.load(std::memory_order_relaxed)) return;
  if (!left) touch_error_ = left.error().message;
  feed_locked(event, unsaid_);
  if (unsaid_.changed || !unsaid_.troubles.empty()) touching_.notify_one();
}

void TierMemory::feed_locked(ProvisionEvent event, News& news) {
  if (ended_) return;
  event.now = now();
  policy::ProvisionCommands out;
  provisioner_->on(event, out);
  touches_.insert(touches_.end(), out.touch.begin(), out.touch.end());
  give_back_ = give_back_ || out.give_back;
  ask_ = ask_ || out.ask;
  if (out.pin) pin_ = out.pin;
  const bool sooner = out.wakeup < wakeup_;
  wakeup_ = out.wakeup;
  if (out.touch.size() > 1) {
    touching_.notify_all();
  } else if (!out.touch.empty() || sooner) {
    touching_.notify_one();
  }
  if (out.ask || sooner) pinning_.notify_one();

  const policy::ProvisionState& state = provisioner_->state();
  settle_locked(state.ready, state.limit, news);
  if (provisioner_->finished()) finished_ = true;
  // The limit may fall again as long as something is being touched.
  if (state.touch_failed && state.touching == 0 && !said_.touch) {
    said_.touch = true;
    trouble_locked(had_text(state.limit) + touch_error_, news);
  }
  if (state.pin_failed && !said_.pin) {
    said_.pin = true;
    trouble_locked("after " + std::to_string(state.pinned) + " bytes no more can be registered with the device, and " +
                       "copies of the rest are slower: " + pin_error_,
                   news);
  }
  if (state.token_late && !said_.late) {
    said_.late = true;
    trouble_locked(
        "other processes have the turn to register memory for too long: what is needed meanwhile is used "
        "without, and copies of it are slower until it is registered too",
        news);
  }
  if (state.pin_late && !said_.slow) {
    said_.slow = true;
    trouble_locked(
        "memory is registered with the device more slowly than it is needed: what is needed meanwhile is "
        "used without, and copies of it are slower until it is registered too",
        news);
  }
}

std::string TierMemory::had_text(std::size_t bytes) const {
  return std::to_string(bytes) + " of " + std::to_string(size_) + " bytes can be had: ";
}

void TierMemory::settle_locked(std::size_t ready, std::size_t limit, News& news) {
  if (limit_.load(std::memory_order_relaxed) != limit) {
    limit_.store(limit, std::memory_order_release);
    news.changed = true;
  }
  if (ready_.load(std::memory_order_relaxed) != ready) {
    ready_.store(ready, std::memory_order_release);
    news.changed = true;
  }
}

void TierMemory::trouble_locked(std::string text, News& news) {
  if (!troubles_.empty()) troubles_ += "; ";
  troubles_ += text;
  news.troubles.push_back(std::move(text));
}

// Returns with the lock as it was.
void TierMemory::say(std::unique_lock<std::mutex>& lock, News& news) {
  const News said = std::exchange(news, {});
  if (!said.changed && said.troubles.empty()) return;
  lock.unlock();
  for (const std::string& text : said.troubles) {
    try {
      if (options_.trouble) options_.trouble(text);
    } catch (const std::exception&) {  // report() has it all the same
    }
  }
  if (said.changed && options_.changed) options_.changed();
  lock.lock();
}

// --- threads -------------------------------------------------------------------------------------------------------

// Nobody could be told of what a thread throws.
void TierMemory::run(void (TierMemory::*work)()) noexcept {
  try {
    (this->*work)();
  } catch (const std::exception& error) {
    end_here(error.what());
  }
}

// There was no memory to go on with: what is ready stays.
void TierMemory::end_here(const char* why) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (ended_) return;
    ended_ = finished_ = true;
    stop_.request_stop();
    touching_.notify_all();
    pinning_.notify_all();
    News news;
    settle_locked(ready(), ready(), news);
    trouble_locked(had_text(ready()) + why, news);
    say(lock, news);
  } catch (const std::exception&) {  // not even for saying so
    if (options_.changed) options_.changed();
  }
}

void TierMemory::run_touching() {
  std::unique_lock lock(mutex_);
  News news;
  while (!stop_.stop_requested()) {
    if (unsaid_.changed || !unsaid_.troubles.empty()) {
      say(lock, unsaid_);
    } else if (!touches_.empty()) {
      const ByteRange range = touches_.front();
      touches_.pop_front();
      lock.unlock();
      const policy::Time begun = now();
      const Result<void> touched = attempt([&] { return options_.touch(data_ + range.offset, range.length); });
      const policy::Time took = now() - begun;
      lock.lock();
      if (!touched) touch_error_ = touched.error().message;
      feed_locked(
          {touched ? ProvisionEvent::touched : ProvisionEvent::touch_failed, 0, range.offset, range.length, took},
          news);
      say(lock, news);
    } else {
      wait_locked(touching_, lock, news);
    }
  }
}

// Until there may be something to do, or the time that the growth waits for has come.
void TierMemory::wait_locked(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, News& news) {
  if (wakeup_ <= now()) {
    feed_locked({}, news);
    say(lock, news);
  } else if (wakeup_ == policy::kNever) {
    changed.wait(lock);
  } else {
    changed.wait_until(lock, begun_ + std::chrono::nanoseconds(wakeup_));
  }
}

// The turn is taken and given back here alone, so that what it brings is ordered here alone too. Rests end here as
// well: those who touch may all be at it.
void TierMemory::run_pinning() {
  struct Turn {
    PinTurn* turn;
    bool ours = false;
    bool take(std::stop_token stop) { return ours = !turn || turn->take(stop); }
    void give_back() {
      if (std::exchange(ours, false) && turn) turn->give_back();
    }
    ~Turn() { give_back(); }
  } turn{options_.turn.get()};
  std::unique_lock lock(mutex_);
  News news;
  while (!stop_.stop_requested()) {
    if (!ask_) {
      wait_locked(pinning_, lock, news);
      continue;
    }
    ask_ = false;
    lock.unlock();
    if (!turn.take(stop_.get_token())) return;
    const std::string alone = turn.turn ? turn.turn->trouble() : std::string();
    lock.lock();
    if (!alone.empty() && !std::exchange(said_.alone, true)) {
      trouble_locked("memory is registered beside other processes, slower for all of them: " + alone, news);
    }
    feed_locked({.kind = ProvisionEvent::granted}, news);
    if (const auto range = std::exchange(pin_, {})) {
      make_room(pinned_, 1);
      lock.unlock();
      const policy::Time begun = now();
      const Result<Pinned> pinned = attempt([&] { return pin(*range); });
      const policy::Time took = now() - begun;
      lock.lock();
      ProvisionEvent::Kind how = ProvisionEvent::pin_failed;
      if (!pinned) {
        pin_error_ = pinned.error().message;
      } else if (*pinned == Pinned::busy) {
        how = ProvisionEvent::pin_busy;
      } else {
        pinned_.push_back(*range);
        how = ProvisionEvent::pinned;
      }
      feed_locked({how, 0, range->offset, range->length, took}, news);
    }
    if (std::exchange(give_back_, false)) {
      lock.unlock();
      turn.give_back();
      lock.lock();
    }
    say(lock, news);
  }
}

Result<TierMemory::Pinned> TierMemory::pin(ByteRange range) {
  if (provisioner_->spec().pinning == policy::Pinning::whole) return pin_whole(range);
  if (range.offset < ready()) return pin_in_use(range);
  {
    std::lock_guard borders(borders_mutex_);
    make_room(borders_, 2);
  }
  if (const Result<void> pinned = device_.pin(data_ + range.offset, range.length); !pinned) return pinned.error();
  std::lock_guard borders(borders_mutex_);  // in time, for nobody uses it before it is ready
  add_borders_locked(range);
  return Pinned::yes;
}

// Not where a copy that has begun may cross the borders yet. One that begins stands until it can see them, as the
// device would make it stand.
Result<TierMemory::Pinned> TierMemory::pin_in_use(ByteRange range) {
  std::lock_guard borders(borders_mutex_);
  make_room(borders_, 2);
  if (copies_use(range)) return Pinned::busy;
  if (const Result<void> pinned = device_.pin(data_ + range.offset, range.length); !pinned) return pinned.error();
  add_borders_locked(range);
  return Pinned::yes;
}

void TierMemory::add_borders_locked(ByteRange range) {
  for (const std::size_t border : {range.offset, range.end()}) {
    const auto place = std::ranges::lower_bound(borders_, border);
    if (place == borders_.end() || *place != border) borders_.insert(place, border);
  }
}

// Copies of it may be under way. New ones stand still meanwhile; those that have begun are waited for, though not for
// ever: where one always follows another, the device itself puts them in order.
Result<TierMemory::Pinned> TierMemory::pin_whole(ByteRange range) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  for (;;) {
    {
      std::lock_guard borders(borders_mutex_);
      if (!copies_use(range) || std::chrono::steady_clock::now() >= until || stop_.stop_requested()) {
        if (const Result<void> pinned = device_.pin(data_ + range.offset, range.length); !pinned) return pinned.error();
        return Pinned::yes;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void TierMemory::run_mapping() {
  std::unique_lock lock(mutex_);
  News news;
  while (mapped_ < size_ && !stop_.stop_requested()) {
    const std::size_t length = std::min(map_piece(), size_ - mapped_);
    lock.unlock();
    const Result<void> mapped = attempt([&] { return device_.map(data_, mapped_, length); });
    lock.lock();
    if (mapped) {
      mapped_ += length;
      settle_locked(mapped_, limit(), news);
      say(lock, news);
      continue;
    }
    // The last bytes of the device are left to the program: no smaller pieces are tried.
    settle_locked(mapped_, mapped_, news);
    trouble_locked(had_text(mapped_) + mapped.error().message, news);
    say(lock, news);
    return;
  }
}

}  // namespace ebb::memory
