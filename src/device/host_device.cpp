#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/start_thread.hpp"
#include "device/copy_bytes.hpp"
#include "device/device.hpp"
#include "os/files.hpp"
#include "os/memory_guard.hpp"
#include "os/pages.hpp"

namespace ebb::device {
namespace {

/// Thread safety: as Device.
/// 1. mutex_ guards streams, their queues and events; it is never held while bytes are copied.
/// 2. An event's `reached` only grows; it is pending while reached < recorded.
/// 3. Only a stream's own thread takes from its queue.
class HostDevice final : public Device {
 public:
  ~HostDevice() override {
    while (!streams_.empty()) destroy_stream(streams_.begin()->first);
  }

  std::string_view name() const noexcept override { return "host memory"; }
  bool host_memory() const noexcept override { return true; }
  Result<std::byte*> allocate(std::size_t bytes) override {
    Result<std::byte*> memory = os::map_pages(bytes);
    if (memory) os::touch_pages(*memory, bytes);
    return memory;
  }
  void free(std::byte* memory, std::size_t bytes) noexcept override { os::unmap_pages(memory, bytes); }
  Result<std::byte*> allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override { free(memory, bytes); }
  std::uint64_t free_bytes() noexcept override { return os::free_host_memory(); }

  // Reserved addresses are ordinary untouched memory: a copy that comes before map() finds memory all the same.
  Result<std::byte*> reserve(std::size_t bytes) override {
    if (bytes > SIZE_MAX - os::kHugePage) return os::map_pages(bytes);  // which refuses it by name
    return os::map_pages(os::round_up(bytes, os::kHugePage));
  }
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    if (at % os::kBlock) throw std::logic_error("a piece to be mapped does not begin at a multiple of map_granule()");
    return os::populate(range + at, bytes);
  }
  std::size_t map_granule() const noexcept override { return os::kBlock; }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override {
    os::unmap_pages(range, os::round_up(bytes, os::kHugePage));
  }
  Result<void> pin(std::byte*, std::size_t) override { return {}; }
  void unpin(std::byte*, std::size_t) noexcept override {}

  Result<StreamId> create_stream() override {
    std::lock_guard lock(mutex_);
    const StreamId id = next_stream_++;
    auto& stream = *streams_.emplace(id, std::make_unique<Stream>()).first->second;
    auto thread = base::start_thread([this, &stream] { work(stream); });
    if (!thread) {
      streams_.erase(id);
      return thread.error();
    }
    stream.thread = std::move(*thread);
    return id;
  }

  void destroy_stream(StreamId id) noexcept override {
    std::unique_ptr<Stream> stream;
    {
      std::lock_guard lock(mutex_);
      auto node = streams_.extract(id);
      if (node.empty()) return;
      stream = std::move(node.mapped());
      stream->stopping = true;
      stream->changed.notify_one();
    }
    stream->thread.join();
  }

  Result<EventId> create_event() override {
    std::lock_guard lock(mutex_);
    events_.emplace(next_event_, Event{});
    return next_event_++;
  }

  void destroy_event(EventId event) noexcept override {
    std::lock_guard lock(mutex_);
    events_.erase(event);
  }

  Result<void> copy(StreamId stream, void* to, const void* from, std::size_t bytes) override {
    if (stream == kInlineStream) {
      if (os::try_touch([&] { copy_bytes(to, from, bytes); })) return {};
      return refused();
    }
    std::lock_guard lock(mutex_);
    enqueue_locked(stream, {Item::Kind::copy, to, from, bytes, 0, 0});
    return {};
  }

  Result<void> copy_all(StreamId stream, std::span<const BareCopy> parts) override {
    if (stream != kInlineStream) return Device::copy_all(stream, parts);
    const auto copy_each = [&] {
      for (const BareCopy& one : parts) copy_bytes(one.to, one.from, one.bytes);
    };
    if (os::try_touch(copy_each)) return {};
    return refused();
  }

  Result<void> digest(StreamId stream, const void* memory, std::size_t bytes, Digest* parts) override {
    if (stream == kInlineStream) {
      if (os::try_touch([&] { put_parts(parts, digest_of(memory, bytes)); })) return {};
      return refused();
    }
    std::lock_guard lock(mutex_);
    enqueue_locked(stream, {Item::Kind::digest, parts, memory, bytes, 0, 0});
    return {};
  }

  Result<void> zones(StreamId stream, const ZoneJob& job) override {
    if (stream == kInlineStream) {
      do_zones(job);
      return {};
    }
    std::lock_guard lock(mutex_);
    enqueue_locked(stream, {Item::Kind::zones, nullptr, nullptr, 0, 0, 0, job});
    return {};
  }

  bool capturing(StreamId) noexcept override { return false; }

  Result<void> record(EventId id, StreamId stream) override {
    std::lock_guard lock(mutex_);
    Event& event = event_locked(id);
    const std::uint64_t generation = ++event.recorded;
    if (stream == kInlineStream) {
      event.reached = generation;
      event.failed = false;
      progress_.notify_all();
    } else {
      enqueue_locked(stream, {Item::Kind::record, nullptr, nullptr, 0, id, generation});
    }
    return {};
  }

  Result<void> stream_wait(StreamId stream, EventId id) override {
    if (stream == kInlineStream) return wait(id);
    std::lock_guard lock(mutex_);
    enqueue_locked(stream, {Item::Kind::wait, nullptr, nullptr, 0, id, event_locked(id).recorded});
    return {};
  }

  Result<void> synchronize() override {
    std::unique_lock lock(mutex_);
    progress_.wait(lock,
                   [&] { return std::ranges::all_of(streams_, [](const auto& entry) { return entry.second->idle; }); });
    return {};
  }

  EventState query(EventId event) noexcept override {
    std::lock_guard lock(mutex_);
    return state_locked(event);
  }

  Result<void> wait(EventId event) override {
    std::unique_lock lock(mutex_);
    progress_.wait(lock, [&] { return state_locked(event) != EventState::pending; });
    return state_locked(event) == EventState::failed ? Result<void>(refused()) : Result<void>();
  }

  void wait_any(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept override {
    std::unique_lock lock(mutex_);
    progress_.wait_for(lock, at_most, [&] {
      if (interrupted_) return true;
      for (const EventId event : events) {
        if (state_locked(event) != EventState::pending) return true;
      }
      return false;
    });
    interrupted_ = false;
  }

  void interrupt() noexcept override {
    std::lock_guard lock(mutex_);
    interrupted_ = true;
    progress_.notify_all();
  }

  void discard(void*, std::size_t) noexcept override {}

 private:
  struct Item {
    enum class Kind : std::uint8_t { copy, digest, zones, record, wait } kind;
    void* to;
    const void* from;
    std::size_t bytes;
    EventId event;
    std::uint64_t generation;
    ZoneJob job = {};
  };
  struct Stream {
    std::deque<Item> items;
    std::condition_variable changed;
    bool stopping = false, idle = true;
    bool refused = false;  // memory, since an event was last reached
    std::thread thread;
  };
  struct Event {
    std::uint64_t recorded = 0, reached = 0;
    bool failed = false;  // the work before it that was reached last
  };
  static Error refused() { return {Errc::invalid_argument, "the system refused memory that was copied from or to"}; }

  Event& event_locked(EventId id) {
    const auto found = events_.find(id);
    if (found == events_.end()) throw std::logic_error("an event that does not exist was recorded or waited for");
    return found->second;
  }

  EventState state_locked(EventId id) const {
    const auto found = events_.find(id);
    if (found == events_.end()) return EventState::done;
    const Event& event = found->second;
    return event.reached < event.recorded ? EventState::pending : event.failed ? EventState::failed : EventState::done;
  }

  void enqueue_locked(StreamId id, const Item& item) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) throw std::logic_error("work was given to a stream that does not exist");
    found->second->items.push_back(item);
    found->second->idle = false;
    found->second->changed.notify_one();
  }

  bool reached_locked(EventId id, std::uint64_t generation) const {
    const auto found = events_.find(id);
    return found == events_.end() || found->second.reached >= generation;
  }

  void work(Stream& stream) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stream.items.empty()) {
        stream.idle = true;
        progress_.notify_all();
      }
      stream.changed.wait(lock, [&] { return stream.stopping || !stream.items.empty(); });
      if (stream.items.empty()) return;
      const Item item = stream.items.front();
      stream.items.pop_front();
      if (item.kind == Item::Kind::copy) {
        lock.unlock();
        const bool copied = os::try_touch([&] { copy_bytes(item.to, item.from, item.bytes); });
        lock.lock();
        stream.refused |= !copied;
      } else if (item.kind == Item::Kind::digest) {
        lock.unlock();
        const bool read =
            os::try_touch([&] { put_parts(static_cast<Digest*>(item.to), digest_of(item.from, item.bytes)); });
        lock.lock();
        stream.refused |= !read;
      } else if (item.kind == Item::Kind::zones) {
        lock.unlock();
        do_zones(item.job);
        lock.lock();
      } else if (item.kind == Item::Kind::wait) {
        progress_.wait(lock, [&] { return reached_locked(item.event, item.generation); });
      } else if (const auto found = events_.find(item.event); found != events_.end()) {
        found->second.reached = item.generation;
        found->second.failed = std::exchange(stream.refused, false);
        progress_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable progress_;  // an event was reached, or interrupt()
  std::map<StreamId, std::unique_ptr<Stream>> streams_;
  std::unordered_map<EventId, Event> events_;
  StreamId next_stream_ = 16;  // after the named ones
  EventId next_event_ = 1;
  bool interrupted_ = false;
};

}  // namespace

std::unique_ptr<Device> make_host_device() { return std::make_unique<HostDevice>(); }

}  // namespace ebb::device
