#include "tests/doubles/fake_device.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "os/files.hpp"
#include "os/pages.hpp"

namespace ebb::platform::testing {
void poison(void* memory, std::size_t bytes) {
  if (bytes) std::memset(memory, std::to_integer<int>(kPoison), bytes);
}

bool is_poison(const void* memory, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  return bytes > 0 && std::all_of(begin, begin + bytes, [](std::byte b) { return b == kPoison; });
}

FakeDevice::FakeDevice(Options options)
    : discrete_(options.discrete),
      granule_(options.granule),
      random_(options.seed),
      held_(!options.automatic),
      scheduler_([this] { schedule(); }) {
  std::lock_guard lock(mutex_);
  if (discrete_) streams_.emplace(kLegacyStream, Stream{});
}

FakeDevice::~FakeDevice() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  scheduler_.join();
  for (const auto& [memory, bytes] : memory_.all_allocated()) unmap_pages(memory, bytes);
  for (const auto& [range, reserved] : memory_.all_reserved()) unmap_pages(range, round_up(reserved.bytes, kHugePage));
}

// --- completing ---

bool FakeDevice::ready_locked(const Stream& stream) const {
  if (stream.items.empty()) return false;
  const Item& item = stream.items.front();
  if (item.kind != Item::Kind::wait) return true;
  const auto found = events_.find(item.event);
  return found == events_.end() || found->second.reached >= item.generation;
}

void FakeDevice::complete_locked(Stream& stream) {
  const Item item = stream.items.front();
  stream.items.pop_front();
  if (item.kind == Item::Kind::copy) {
    if (item.fails) {
      stream.failed = true;
    } else if (item.digests) {
      put_parts(reinterpret_cast<Digest*>(item.to), digest_of(item.from, item.bytes));
    } else if (item.bytes) {
      std::memmove(item.to, item.from, item.bytes);
    }
    --unfinished_;
  } else if (item.kind == Item::Kind::record) {
    if (const auto found = events_.find(item.event); found != events_.end()) {
      found->second.reached = item.generation;
      if (stream.failed) found->second.failed.insert(item.generation);
    }
    stream.failed = false;
  } else if (const auto found = events_.find(item.event);
             found != events_.end() && found->second.failed.contains(item.generation)) {
    stream.failed = true;
  }
}

// Records and waits take no time of their own: they complete as soon as they can. Then what may start is poisoned.
void FakeDevice::settle_locked() {
  for (bool again = true; again;) {
    again = false;
    for (auto& [id, stream] : streams_) {
      while (ready_locked(stream) && stream.items.front().kind != Item::Kind::copy) {
        complete_locked(stream);
        again = true;
      }
    }
  }
  for (auto& [id, stream] : streams_) {
    if (stream.items.empty() || stream.items.front().kind != Item::Kind::copy) continue;
    Item& item = stream.items.front();
    if (!item.poisoned) poison(item.to, item.to_bytes());
    item.poisoned = true;
  }
  changed_.notify_all();
}

bool FakeDevice::step_locked() {
  std::vector<Stream*> able;
  for (auto& [id, stream] : streams_) {
    if (ready_locked(stream)) able.push_back(&stream);
  }
  if (able.empty()) return false;
  complete_locked(*able[random_() % able.size()]);
  settle_locked();
  return true;
}

bool FakeDevice::step() {
  std::lock_guard lock(mutex_);
  return step_locked();
}

bool FakeDevice::complete(StreamId id) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end() || !ready_locked(found->second)) return false;
  complete_locked(found->second);
  settle_locked();
  return true;
}

std::size_t FakeDevice::run() {
  std::lock_guard lock(mutex_);
  const std::size_t before = unfinished_;
  while (step_locked()) {
  }
  return before - unfinished_;
}

void FakeDevice::schedule() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return stopping_ || (!held_ && std::any_of(streams_.begin(), streams_.end(),
                                                 [&](const auto& entry) { return ready_locked(entry.second); }));
    });
    if (stopping_) return;
    // Others run first for a while: what comes of a wait left out differs from seed to seed.
    const auto turns = random_() % 8;
    lock.unlock();
    for (std::uint64_t turn = 0; turn < turns; ++turn) std::this_thread::yield();
    lock.lock();
    if (!held_ && !stopping_) step_locked();
  }
}

void FakeDevice::hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeDevice::release() {
  std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeDevice::set_capturing(StreamId stream, bool capturing) {
  std::lock_guard lock(mutex_);
  streams_.at(stream).capturing = capturing;
}

bool FakeDevice::capturing(StreamId stream) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  return found != streams_.end() && found->second.capturing;
}

void FakeDevice::set(Nth& nth, std::uint64_t n) {
  std::lock_guard lock(mutex_);
  nth.set(n);
}

// --- being asked ---

std::size_t FakeDevice::unfinished() const {
  std::lock_guard lock(mutex_);
  return unfinished_;
}

void FakeDevice::await_unfinished(std::size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unfinished_ >= n; });
}

std::uint64_t FakeDevice::copies() const {
  std::lock_guard lock(mutex_);
  return copies_;
}

std::vector<std::string> FakeDevice::violations() const {
  std::lock_guard lock(mutex_);
  return violations_;
}

void FakeDevice::check_locked(const char* what, const void* memory, std::size_t bytes, bool writes) {
  for (const auto& [id, stream] : streams_) {
    for (const Item& item : stream.items) {
      if (item.kind != Item::Kind::copy) continue;
      const char* met = overlap(memory, bytes, item.to, item.to_bytes())          ? "the target"
                        : writes && overlap(memory, bytes, item.from, item.bytes) ? "the source"
                                                                                  : nullptr;
      if (met) {
        violations_.push_back(std::string(what) + " meets " + met + " of an unfinished copy on stream " +
                              std::to_string(id));
      }
    }
  }
}

// --- Device ---

Result<StreamId> FakeDevice::create_stream() {
  std::lock_guard lock(mutex_);
  streams_.emplace(next_stream_, Stream{});
  return next_stream_++;
}

void FakeDevice::destroy_stream(StreamId id) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  changed_.wait(lock, [&] { return found->second.items.empty(); });
  streams_.erase(found);
}

Result<EventId> FakeDevice::create_event() {
  std::lock_guard lock(mutex_);
  if (refuse_event_.next()) return Error{Errc::io_error, "the device refused an event"};
  events_.emplace(next_event_, Event{});
  return next_event_++;
}

void FakeDevice::destroy_event(EventId event) noexcept {
  std::lock_guard lock(mutex_);
  if (state_locked(event) == EventState::pending) violations_.push_back("a pending event is destroyed");
  events_.erase(event);
}

Result<void> FakeDevice::copy(StreamId id, void* to, const void* from, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (refuse_copy_.next()) return Error{Errc::io_error, "the device refused a copy"};
  if (const auto refusal = refusal_locked(to, from, bytes)) return *refusal;
  if (id == kInlineStream) {
    if (discrete_) throw std::logic_error("this device has no inline stream");
    check_locked("a copy at once from here", from, bytes, false);
    check_locked("a copy at once to here", to, bytes, true);
    if (bytes) std::memmove(to, from, bytes);
    return {};
  }
  ++copies_;
  enqueue_locked(id, {Item::Kind::copy, static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, 0, 0,
                      false, fail_copy_.next()});
  return {};
}

Result<void> FakeDevice::digest(StreamId id, const void* memory, std::size_t bytes, Digest* parts) {
  std::lock_guard lock(mutex_);
  if (const auto why = memory_.unusable(memory, bytes)) {
    return Error{Errc::io_error, "the device could not compute a digest: " + *why};
  }
  if (id == kInlineStream) {
    if (discrete_) throw std::logic_error("this device has no inline stream");
    check_locked("a digest at once", memory, bytes, false);
    put_parts(parts, digest_of(memory, bytes));
    return {};
  }
  enqueue_locked(id, {Item::Kind::copy, reinterpret_cast<std::byte*>(parts), static_cast<const std::byte*>(memory),
                      bytes, 0, 0, false, fail_copy_.next(), true});
  return {};
}

void FakeDevice::enqueue_locked(StreamId id, Item item) {
  // A copy enqueued before may still have to read the target (legitimately so, if the streams order the two): then the
  // poison comes when this one starts.
  item.poisoned = std::none_of(streams_.begin(), streams_.end(), [&](const auto& entry) {
    return std::any_of(entry.second.items.begin(), entry.second.items.end(), [&](const Item& earlier) {
      return earlier.kind == Item::Kind::copy && overlap(item.to, item.to_bytes(), earlier.from, earlier.bytes);
    });
  });
  if (item.poisoned) poison(item.to, item.to_bytes());
  streams_.at(id).items.push_back(item);
  ++unfinished_;
  settle_locked();
}

Result<void> FakeDevice::record(EventId id, StreamId stream) {
  if (discrete_ && stream == kInlineStream) throw std::logic_error("this device has no inline stream");
  std::lock_guard lock(mutex_);
  if (refuse_record_.next()) return Error{Errc::io_error, "the device refused to record an event"};
  Event& event = events_.at(id);
  ++event.recorded;
  if (stream == kInlineStream) {
    event.reached = event.recorded;
  } else {
    streams_.at(stream).items.push_back({Item::Kind::record, nullptr, nullptr, 0, id, event.recorded, false, false});
  }
  settle_locked();
  return {};
}

Result<void> FakeDevice::stream_wait(StreamId stream, EventId event) {
  if (discrete_ && stream == kInlineStream) throw std::logic_error("this device has no inline stream");
  if (stream == kInlineStream) return wait(event);
  std::lock_guard lock(mutex_);
  const std::uint64_t generation = events_.at(event).recorded;
  streams_.at(stream).items.push_back({Item::Kind::wait, nullptr, nullptr, 0, event, generation, false, false});
  settle_locked();
  return {};
}

EventState FakeDevice::state_locked(EventId id) const {
  const auto found = events_.find(id);
  if (found == events_.end()) return EventState::done;
  const Event& event = found->second;
  if (event.reached < event.recorded) return EventState::pending;
  return event.failed.contains(event.recorded) ? EventState::failed : EventState::done;
}

Result<void> FakeDevice::synchronize() {
  std::unique_lock lock(mutex_);
  if (refuse_synchronize_.next()) return Error{Errc::io_error, "the device failed"};
  changed_.wait(lock, [&] {
    return std::ranges::all_of(streams_, [](const auto& entry) { return entry.second.items.empty(); });
  });
  return {};
}

EventState FakeDevice::query(EventId event) noexcept {
  std::lock_guard lock(mutex_);
  return state_locked(event);
}

Result<void> FakeDevice::wait(EventId event) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_locked(event) != EventState::pending; });
  if (state_locked(event) == EventState::failed) return Error{Errc::io_error, "a copy on the device failed"};
  return {};
}

void FakeDevice::wait_any(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] {
    return interrupted_ || std::any_of(events.begin(), events.end(),
                                       [&](EventId event) { return state_locked(event) != EventState::pending; });
  });
  interrupted_ = false;
}

void FakeDevice::interrupt() noexcept {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  changed_.notify_all();
}

}  // namespace ebb::platform::testing
