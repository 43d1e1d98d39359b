#include "tests/doubles/fake_streams.hpp"

#include <algorithm>
#include <cstring>

#include "tests/doubles/fake_memory.hpp"

namespace ebb::doubles {

void poison(void* memory, std::size_t bytes) {
  if (bytes) std::memset(memory, std::to_integer<int>(kPoison), bytes);
}

bool is_poison(const void* memory, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(memory);
  return bytes > 0 && std::all_of(begin, begin + bytes, [](std::byte b) { return b == kPoison; });
}

FakeStreams::FakeStreams(std::uint64_t seed, bool held)
    : random_(seed), held_(held), scheduler_([this] { schedule(); }) {}

void FakeStreams::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  scheduler_.join();
}

// --- completing ---

bool FakeStreams::ready_locked(const Stream& stream) const {
  if (stream.items.empty()) return false;
  const Item& item = stream.items.front();
  if (item.kind != Item::Kind::wait) return true;
  const auto found = events_.find(item.event);
  return found == events_.end() || found->second.reached >= item.generation;
}

void FakeStreams::complete_locked(Stream& stream) {
  const Item item = stream.items.front();
  stream.items.pop_front();
  if (item.kind == Item::Kind::copy) {
    if (item.fails) {
      stream.failed = true;
    } else if (item.zones) {
      if (!stream.failed) device::do_zones(*item.zones);  // its list may be what failed
    } else if (item.digests) {
      device::put_parts(reinterpret_cast<device::Digest*>(item.to), device::digest_of(item.from, item.bytes));
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
void FakeStreams::settle_locked() {
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

bool FakeStreams::step_locked() {
  std::vector<Stream*> able;
  for (auto& [id, stream] : streams_) {
    if (ready_locked(stream)) able.push_back(&stream);
  }
  if (able.empty()) return false;
  complete_locked(*able[random_() % able.size()]);
  settle_locked();
  return true;
}

bool FakeStreams::step() {
  std::lock_guard lock(mutex_);
  return step_locked();
}

bool FakeStreams::complete(device::StreamId id) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end() || !ready_locked(found->second)) return false;
  complete_locked(found->second);
  settle_locked();
  return true;
}

std::size_t FakeStreams::run() {
  std::lock_guard lock(mutex_);
  const std::size_t before = unfinished_;
  while (step_locked()) {
  }
  return before - unfinished_;
}

void FakeStreams::schedule() {
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

void FakeStreams::hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeStreams::release() {
  std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeStreams::set_capturing(device::StreamId stream, bool capturing) {
  std::lock_guard lock(mutex_);
  streams_.at(stream).capturing = capturing;
}

// --- being asked ---

std::size_t FakeStreams::unfinished() const {
  std::lock_guard lock(mutex_);
  return unfinished_;
}

void FakeStreams::await_unfinished(std::size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return unfinished_ >= n; });
}

std::uint64_t FakeStreams::copies() const {
  std::lock_guard lock(mutex_);
  return copies_;
}

std::vector<std::string> FakeStreams::violations() const {
  std::lock_guard lock(mutex_);
  return violations_;
}

void FakeStreams::check_locked(const char* what, const void* memory, std::size_t bytes, bool writes) {
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

void FakeStreams::enqueue_locked(device::StreamId id, Item item) {
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

device::EventState FakeStreams::state_locked(device::EventId id) const {
  const auto found = events_.find(id);
  if (found == events_.end()) return device::EventState::done;
  const Event& event = found->second;
  if (event.reached < event.recorded) return device::EventState::pending;
  return event.failed.contains(event.recorded) ? device::EventState::failed : device::EventState::done;
}

}  // namespace ebb::doubles
