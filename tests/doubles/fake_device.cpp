#include "tests/doubles/fake_device.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "os/files.hpp"
#include "os/pages.hpp"

namespace ebb::doubles {

FakeDevice::FakeDevice(Options options)
    : FakeStreams(options.seed, !options.automatic), discrete_(options.discrete), granule_(options.granule) {
  std::lock_guard lock(mutex_);
  if (discrete_) streams_.emplace(device::kLegacyStream, Stream{});
}

FakeDevice::~FakeDevice() {
  stop();
  for (const auto& [memory, bytes] : memory_.all_allocated()) os::unmap_pages(memory, bytes);
  for (const auto& [range, reserved] : memory_.all_reserved())
    os::unmap_pages(range, os::round_up(reserved.bytes, os::kHugePage));
}

bool FakeDevice::capturing(device::StreamId stream) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(stream);
  return found != streams_.end() && found->second.capturing;
}

Result<device::StreamId> FakeDevice::create_stream() {
  std::lock_guard lock(mutex_);
  streams_.emplace(next_stream_, Stream{});
  return next_stream_++;
}

void FakeDevice::destroy_stream(device::StreamId id) noexcept {
  std::unique_lock lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  changed_.wait(lock, [&] { return found->second.items.empty(); });
  streams_.erase(found);
}

Result<device::EventId> FakeDevice::create_event() {
  std::lock_guard lock(mutex_);
  if (refuse_event_.next()) return Error{Errc::io_error, "the device refused an event"};
  events_.emplace(next_event_, Event{});
  return next_event_++;
}

void FakeDevice::destroy_event(device::EventId event) noexcept {
  std::lock_guard lock(mutex_);
  if (state_locked(event) == device::EventState::pending) violations_.push_back("a pending event is destroyed");
  events_.erase(event);
}

Result<void> FakeDevice::copy(device::StreamId id, void* to, const void* from, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (refuse_copy_.next()) return Error{Errc::io_error, "the device refused a copy"};
  if (const auto refusal = refusal_locked(to, from, bytes)) return *refusal;
  if (id == device::kInlineStream) {
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

Result<void> FakeDevice::digest(device::StreamId id, const void* memory, std::size_t bytes, device::Digest* parts) {
  std::lock_guard lock(mutex_);
  if (const auto why = memory_.unusable(memory, bytes)) {
    return Error{Errc::io_error, "the device could not compute a digest: " + *why};
  }
  if (id == device::kInlineStream) {
    if (discrete_) throw std::logic_error("this device has no inline stream");
    check_locked("a digest at once", memory, bytes, false);
    device::put_parts(parts, device::digest_of(memory, bytes));
    return {};
  }
  enqueue_locked(id, {Item::Kind::copy, reinterpret_cast<std::byte*>(parts), static_cast<const std::byte*>(memory),
                      bytes, 0, 0, false, fail_copy_.next(), true});
  return {};
}

bool FakeDevice::owns(const void* memory, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  return discrete_ && memory_.is_device(memory, bytes);
}

Result<void> FakeDevice::zones(device::StreamId id, const device::ZoneJob& job) {
  const device::Zones& zones = std::visit([](const auto& one) -> const device::Zones& { return one.zones; }, job);
  std::lock_guard lock(mutex_);
  if (const auto why = memory_.unusable(zones.memory, zones.bytes)) {
    return Error{Errc::io_error, "the device could not work on zones: " + *why};
  }
  if (id == device::kInlineStream) {
    if (discrete_) throw std::logic_error("this device has no inline stream");
    check_locked("work on zones at once", zones.memory, zones.bytes, std::holds_alternative<device::ScatterZones>(job));
    device::do_zones(job);
    return {};
  }
  enqueue_locked(id,
                 {Item::Kind::copy, nullptr, zones.memory, zones.bytes, 0, 0, false, fail_copy_.next(), false, job});
  return {};
}

Result<void> FakeDevice::record(device::EventId id, device::StreamId stream) {
  if (discrete_ && stream == device::kInlineStream) throw std::logic_error("this device has no inline stream");
  std::lock_guard lock(mutex_);
  if (refuse_record_.next()) return Error{Errc::io_error, "the device refused to record an event"};
  Event& event = events_.at(id);
  ++event.recorded;
  if (stream == device::kInlineStream) {
    event.reached = event.recorded;
  } else {
    streams_.at(stream).items.push_back({Item::Kind::record, nullptr, nullptr, 0, id, event.recorded, false, false});
  }
  settle_locked();
  return {};
}

Result<void> FakeDevice::stream_wait(device::StreamId stream, device::EventId event) {
  if (discrete_ && stream == device::kInlineStream) throw std::logic_error("this device has no inline stream");
  if (stream == device::kInlineStream) return wait(event);
  std::lock_guard lock(mutex_);
  const std::uint64_t generation = events_.at(event).recorded;
  streams_.at(stream).items.push_back({Item::Kind::wait, nullptr, nullptr, 0, event, generation, false, false});
  settle_locked();
  return {};
}

Result<void> FakeDevice::synchronize() {
  std::unique_lock lock(mutex_);
  if (refuse_synchronize_.next()) return Error{Errc::io_error, "the device failed"};
  changed_.wait(lock, [&] {
    return std::ranges::all_of(streams_, [](const auto& entry) { return entry.second.items.empty(); });
  });
  return {};
}

device::EventState FakeDevice::query(device::EventId event) noexcept {
  std::lock_guard lock(mutex_);
  return state_locked(event);
}

Result<void> FakeDevice::wait(device::EventId event) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return state_locked(event) != device::EventState::pending; });
  if (state_locked(event) == device::EventState::failed) return Error{Errc::io_error, "a copy on the device failed"};
  return {};
}

void FakeDevice::wait_any(std::span<const device::EventId> events, std::chrono::nanoseconds at_most) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] {
    return interrupted_ || std::any_of(events.begin(), events.end(), [&](device::EventId event) {
             return state_locked(event) != device::EventState::pending;
           });
  });
  interrupted_ = false;
}

void FakeDevice::interrupt() noexcept {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  changed_.notify_all();
}

}  // namespace ebb::doubles
