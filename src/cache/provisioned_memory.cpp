#include "cache/provisioned_memory.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "os/files.hpp"
#include "os/processors.hpp"

namespace ebb::cache {

using planner::ByteRange;
using planner::ProvisionEvent;
using planner::UsedWhen;

namespace {

constexpr planner::Time kLongestWait = 3600ll * 1000 * 1000 * 1000;  // a later wakeup overflows a condition variable's

// Out of memory is a refusal too.
template <typename Work>
auto attempt(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return Error{Errc::out_of_memory, error.what()};
  }
}

}  // namespace

// --- made ------------------------------------------------------------------------------------------------------------

planner::ProvisionSpec usual_provision() {
  planner::ProvisionSpec spec;
  spec.touchers = static_cast<int>(std::clamp<unsigned>(os::usable_processors() / 2, 1, 6));
  return spec;
}

MadeMemory incremental_host_memory(device::Device& device, std::size_t bytes, MemoryOptions options,
                                   planner::ProvisionSpec spec) {
  spec.used_when = !device.host_memory() ? UsedWhen::pinned : options.addresses ? UsedWhen::touched : UsedWhen::always;
  return ProvisionedMemory::make(device, bytes, "incremental", spec, std::move(options));
}

MadeMemory mapped_device_memory(device::Device& device, std::size_t bytes, MemoryOptions options) {
  planner::ProvisionSpec spec = usual_provision();
  spec.used_when = device.host_memory() ? UsedWhen::always : UsedWhen::touched;
  if (spec.used_when == UsedWhen::touched) {
    spec.piece = os::round_up(std::max<std::size_t>(options.map_piece, 1), device.map_granule());
    spec.lead = planner::kAllAhead;
    spec.touchers = 1;
  }
  return ProvisionedMemory::make(device, bytes, "mapped", spec, std::move(options));
}

MadeMemory ProvisionedMemory::make(device::Device& device, std::size_t bytes, std::string strategy,
                                   planner::ProvisionSpec spec, MemoryOptions options) {
  if (bytes > SIZE_MAX - os::kBlock) {
    return Error{Errc::out_of_memory, std::to_string(bytes) + " bytes exceed the address space"};
  }
  std::unique_ptr<ProvisionedMemory> made(
      new ProvisionedMemory(device, os::round_up(bytes), std::move(strategy), spec.used_when, std::move(options)));
  if (made->size_ > 0) {
    if (const auto started = made->start(spec); !started) return started.error();
  }
  return std::unique_ptr<TierMemory>(std::move(made));
}

ProvisionedMemory::ProvisionedMemory(device::Device& device, std::size_t size, std::string strategy, UsedWhen used_when,
                                     MemoryOptions options)
    : TierMemory(std::move(strategy), size), device_(device), used_when_(used_when), options_(std::move(options)) {}

Result<void> ProvisionedMemory::reserve_addresses() {
  addresses_ = size_;
  if (options_.addresses) {
    data_ = options_.addresses.get();
    return {};
  }
  Result<std::byte*> reserved = mapped() ? device_.reserve(size_) : os::map_pages(size_);
  const std::string refused = reserved ? "" : reserved.error().message;
  for (int half = 0; !reserved && half < 3 && !mapped() && !options_.whole; ++half) {
    addresses_ = os::round_up(addresses_ / 2);
    reserved = os::map_pages(addresses_);
  }
  if (!reserved) return Error{Errc::out_of_memory, refused};
  data_ = *reserved;
  add_trouble(addresses_ < size_, 1, [&] { return limit_text(addresses_) + refused; });
  return {};
}

Result<void> ProvisionedMemory::start(planner::ProvisionSpec spec) {
  if (auto reserved = reserve_addresses(); !reserved) return reserved;
  if (used_when_ == UsedWhen::pinned && !options_.addresses) os::keep_from_children(data_, addresses_);
  spec.capacity = limit_ = addresses_;
  if (used_when_ == UsedWhen::always && addresses_ <= os::kHugePage) {
    ready_ = addresses_;  // written sooner than touched by a thread that would have to be started
    return {};
  }
  const std::size_t pieces = (addresses_ - 1) / std::max<std::size_t>(spec.piece, 1) + 1;
  spec.touchers = static_cast<int>(std::min(static_cast<std::size_t>(spec.touchers), pieces));
  provisioner_.emplace(spec);
  finished_ = false;
  submit({});
  if (mapped()) {
    const ByteRange first = todo_.touch.front();
    todo_.touch.erase(todo_.touch.begin());
    if (auto mapped = touch(first); !mapped) return mapped;
    submit({ProvisionEvent::touched, 0, first.offset, first.length});
  }
  for (int i = 0; i < spec.touchers && !finished_; ++i) {
    if (auto started = start_thread(&ProvisionedMemory::touch_pieces); !started) return started;
  }
  return used_when_ == UsedWhen::pinned ? start_thread(&ProvisionedMemory::pin_pieces) : Result<void>();
}

Result<void> ProvisionedMemory::start_thread(void (ProvisionedMemory::*work)()) {
  try {
    threads_.emplace_back(&ProvisionedMemory::run, this, work);
  } catch (const std::system_error& error) {
    return Error{Errc::out_of_memory, std::string("a thread cannot be started: ") + error.what()};
  }
  return {};
}

void ProvisionedMemory::stop() {
  std::lock_guard stopping(stop_mutex_);
  {
    std::lock_guard lock(mutex_);
    stop_.request_stop();
    finished_ = true;
  }
  touch_work_.notify_all();
  pin_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

ProvisionedMemory::~ProvisionedMemory() {
  stop();
  ranges_.unpin_all(device_, data_);
  if (data_ && !options_.addresses) mapped() ? device_.unreserve(data_, size_) : os::unmap_pages(data_, addresses_);
}

// --- from callers ----------------------------------------------------------------------------------------------------

void ProvisionedMemory::want(std::size_t end) {
  std::size_t wanted = wanted_.load(std::memory_order_relaxed);
  do {
    if (end <= wanted) return;
  } while (!wanted_.compare_exchange_weak(wanted, end, std::memory_order_relaxed));
  if (const std::size_t more = untouched(end); more > 0) {
    const Result<void> left = attempt([&] { return options_.left(more); });
    if (!left) from_caller({.kind = ProvisionEvent::refused, .offset = wanted}, left);
  }
  from_caller({.kind = ProvisionEvent::placed, .length = end});
}

// Before `end`, of memory that is used before it is touched.
std::size_t ProvisionedMemory::untouched(std::size_t end) const {
  if (used_when_ != UsedWhen::always || finished_.load(std::memory_order_relaxed)) return 0;
  std::lock_guard lock(mutex_);
  const planner::ProvisionState& state = provisioner_->state();
  return std::max(std::min(end, state.limit), state.touched) - state.touched;
}

void ProvisionedMemory::produced(std::size_t bytes) {
  from_caller({.kind = ProvisionEvent::produced, .length = bytes});
}

void ProvisionedMemory::expect(std::size_t bytes) {
  if (used_when_ == UsedWhen::pinned) from_caller({.kind = ProvisionEvent::expected, .length = bytes});
}

void ProvisionedMemory::copy_begun(std::size_t offset, std::size_t bytes) {
  if (used_when_ == UsedWhen::pinned) ranges_.copy_begun({offset, bytes});
}

void ProvisionedMemory::copy_ended(std::size_t offset, std::size_t bytes) {
  if (used_when_ == UsedWhen::pinned) ranges_.copy_ended({offset, bytes});
}

// The caller may hold locks of its own, so a provisioning thread makes the callbacks.
void ProvisionedMemory::from_caller(ProvisionEvent event, const Result<void>& left) {
  if (finished_.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex_);
  if (finished_.load(std::memory_order_relaxed)) return;
  if (!left) touch_error_ = left.error().message;
  submit(event);
  if (changed_ || !new_troubles_.empty()) touch_work_.notify_one();
}

MemoryReport ProvisionedMemory::report() const {
  std::lock_guard lock(mutex_);
  MemoryReport report = TierMemory::report();
  report.trouble = troubles_;
  report.huge_pages = !mapped() && size_ >= os::kHugePage && os::huge_pages().on;
  if (!provisioner_) return report;
  const planner::ProvisionState& state = provisioner_->state();
  (mapped() ? report.mapped : report.touched) = state.touched;
  report.pinned = state.pinned;
  report.piece = mapped() ? 0 : state.piece;
  report.pieces = state.pieces;
  return report;
}

// --- with mutex_ held ------------------------------------------------------------------------------------------------

void ProvisionedMemory::submit(ProvisionEvent event) {
  if (ended_) return;
  event.now = now();
  const planner::ProvisionCommands out = provisioner_->on(event);
  if (options_.record) options_.record(*provisioner_, event, out);
  todo_.touch.insert(todo_.touch.end(), out.touch.begin(), out.touch.end());
  todo_.take_ticket = todo_.take_ticket || out.take_ticket;
  if (out.pin) todo_.pin = out.pin;
  const bool sooner = out.wakeup < std::exchange(todo_.wakeup, out.wakeup);
  if (out.touch.size() > 1) {
    touch_work_.notify_all();
  } else if (!out.touch.empty() || sooner) {
    touch_work_.notify_one();
  }
  if (out.take_ticket || sooner) pin_work_.notify_one();
  publish(provisioner_->state().ready, provisioner_->state().limit);
  report_troubles();
  if (provisioner_->finished()) finished_ = true;
}

void ProvisionedMemory::report_troubles() {
  const planner::ProvisionState& state = provisioner_->state();
  // The limit may fall again while something is being touched.
  add_trouble(state.touch_failed && !state.touching, 2, [&] { return limit_text(state.limit) + touch_error_; });
  add_trouble(state.pin_failed, 4, [&] {
    return "after " + std::to_string(state.pinned) +
           " bytes no more can be registered with the device, and copies of the rest are slower: " + pin_error_;
  });
  const auto late = [](const char* why) {
    return std::string(why) + ": it is used unregistered meanwhile, with slower copies, and registered later";
  };
  add_trouble(state.queue_late, 8,
              [&] { return late("memory waits too long for other processes that register theirs"); });
  add_trouble(state.pin_late, 16,
              [&] { return late("memory is registered with the device more slowly than it is needed"); });
}

void ProvisionedMemory::add_trouble(bool now, std::uint8_t kind, const auto& text) {
  if (!now || (reported_ & kind)) return;
  reported_ |= kind;
  new_troubles_.push_back(text());
  troubles_ += (troubles_.empty() ? "" : "; ") + new_troubles_.back();
}

void ProvisionedMemory::publish(std::size_t ready, std::size_t limit) {
  const bool lower = limit_.exchange(limit, std::memory_order_release) != limit;
  const bool more = ready_.exchange(ready, std::memory_order_release) != ready;
  changed_ = changed_ || lower || more;
}

std::string ProvisionedMemory::limit_text(std::size_t bytes) const {
  return std::to_string(bytes) + " of " + std::to_string(size_) + " bytes are available: ";
}

// Makes the pending callbacks with the lock released. False: there were none.
bool ProvisionedMemory::notify(std::unique_lock<std::mutex>& lock) {
  const bool changed = std::exchange(changed_, false);
  const std::vector<std::string> troubles = std::exchange(new_troubles_, {});
  if (!changed && troubles.empty()) return false;
  lock.unlock();
  for (const std::string& text : troubles) {
    try {
      if (options_.trouble) options_.trouble(text);
    } catch (const std::exception&) {  // report() has it anyway
    }
  }
  if (changed && options_.changed) options_.changed();
  lock.lock();
  return true;
}

// Until there may be work, or the provisioner wants to be called.
void ProvisionedMemory::wait(std::condition_variable& work, std::unique_lock<std::mutex>& lock) {
  const planner::Time time = now();
  if (todo_.wakeup <= time) {
    submit({});
  } else if (todo_.wakeup == planner::kNever) {
    work.wait(lock);
  } else {
    work.wait_for(lock, std::chrono::nanoseconds(std::min(todo_.wakeup - time, kLongestWait)));
  }
}

// --- threads ---------------------------------------------------------------------------------------------------------

void ProvisionedMemory::run(void (ProvisionedMemory::*work)()) noexcept {
  try {
    try {
      (this->*work)();
    } catch (const std::exception& error) {  // no memory to continue: ready bytes stay
      std::unique_lock lock(mutex_);
      if (std::exchange(ended_, true)) return;
      finished_ = true;
      stop_.request_stop();
      touch_work_.notify_all();
      pin_work_.notify_all();
      publish(ready(), ready());
      add_trouble(true, 64, [&] { return limit_text(ready()) + error.what(); });
      notify(lock);
    }
  } catch (const std::exception&) {  // no memory even for the report
    if (options_.changed) options_.changed();
  }
}

Result<void> ProvisionedMemory::touch(ByteRange range) {
  return attempt([&] {
    return mapped() ? device_.map(data_, range.offset, range.length)
                    : options_.touch(data_ + range.offset, range.length);
  });
}

void ProvisionedMemory::touch_pieces() {
  std::unique_lock lock(mutex_);
  while (!stop_.stop_requested()) {
    if (notify(lock)) continue;
    if (todo_.touch.empty()) {
      wait(touch_work_, lock);
      continue;
    }
    const ByteRange range = todo_.touch.front();
    todo_.touch.erase(todo_.touch.begin());
    lock.unlock();
    const Result<void> touched = touch(range);
    lock.lock();
    if (!touched) touch_error_ = touched.error().message;
    submit({touched ? ProvisionEvent::touched : ProvisionEvent::touch_failed, 0, range.offset, range.length});
  }
}

// Only this thread enters and leaves the queue.
void ProvisionedMemory::pin_pieces() {
  const auto left = [](os::PinQueue* queue) { queue->leave(); };
  std::unique_lock lock(mutex_);
  while (!stop_.stop_requested()) {
    if (notify(lock)) continue;
    if (!std::exchange(todo_.take_ticket, false)) {
      wait(pin_work_, lock);
      continue;
    }
    lock.unlock();
    os::PinQueue* const queue = options_.queue.get();
    if (queue && !queue->wait(stop_.get_token())) return;
    std::unique_ptr<os::PinQueue, decltype(left)> turn(queue, left);
    const std::string alone = queue ? queue->trouble() : std::string();
    lock.lock();
    add_trouble(!alone.empty(), 32,
                [&] { return "memory is registered beside other processes, slower for all of them: " + alone; });
    submit({.kind = ProvisionEvent::called});
    const auto range = std::exchange(todo_.pin, {});
    lock.unlock();
    const planner::Time begun = now();
    const Result<bool> pinned = attempt(
        [&] { return range ? ranges_.pin(device_, data_, *range, range->offset < ready()) : Result<bool>(false); });
    const planner::Time took = now() - begun;
    turn.reset();
    lock.lock();
    if (!pinned) pin_error_ = pinned.error().message;
    if (!range) continue;
    const auto kind = !pinned   ? ProvisionEvent::pin_failed
                      : *pinned ? ProvisionEvent::pinned
                                : ProvisionEvent::pin_busy;
    submit({kind, 0, range->offset, range->length, took});
  }
}

}  // namespace ebb::cache
