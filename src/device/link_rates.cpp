#include "device/link_rates.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>

namespace ebb::device {
namespace {

constexpr int kRepeats = 5;

// Memory, streams and events to measure with, freed at the end. Not movable.
struct Bench {
  Bench(Device& on, std::size_t bytes) : device(on), span(bytes) {}
  Bench(const Bench&) = delete;
  ~Bench() {
    for (const StreamId stream : streams)
      if (stream) device.destroy_stream(stream);
    for (const EventId event : events)
      if (event) device.destroy_event(event);
    for (std::byte* memory : inside)
      if (memory) device.free(memory, span);
    for (std::byte* memory : outside)
      if (memory) device.free_host(memory, span);
  }

  Result<void> prepare() {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto here = device.allocate(span);
      if (!here) return here.error();
      inside[i] = *here;
      const auto there = device.allocate_host(span);
      if (!there) return there.error();
      outside[i] = *there;
      const auto stream = device.create_stream();
      if (!stream) return stream.error();
      streams[i] = *stream;
      const auto event = device.create_event();
      if (!event) return event.error();
      events[i] = *event;
    }
    return {};
  }

  Result<void> start(std::size_t lane, void* to, const void* from) {
    if (auto copied = device.copy(streams[lane], to, from, span); !copied) return copied;
    return device.record(events[lane], streams[lane]);
  }
  Result<void> down() { return start(0, outside[0], inside[0]); }
  Result<void> up() { return start(1, inside[1], outside[1]); }
  Result<void> within() { return start(0, inside[1], inside[0]); }

  // Seconds that `begin` and what it started take. The first run, which loads code and touches pages, does not count.
  Result<double> median(const std::function<Result<void>()>& begin) {
    std::array<double, kRepeats> seconds{};
    for (int i = -1; i < kRepeats; ++i) {
      const auto started = std::chrono::steady_clock::now();
      Result<void> result = begin();
      for (const EventId event : events) {  // after a refusal too: nothing may be in flight when it is freed
        Result<void> ended = device.wait(event);
        if (result && !ended) result = std::move(ended);
      }
      if (!result) return result.error();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
      if (i >= 0) seconds[static_cast<std::size_t>(i)] = std::max(taken.count(), 1e-9);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
    return seconds[kRepeats / 2];
  }

  Device& device;
  std::size_t span;
  std::array<std::byte*, 2> inside{}, outside{};
  std::array<StreamId, 2> streams{};
  std::array<EventId, 2> events{};
};

}  // namespace

Result<machine::LinkRates> measure_links(Device& device, std::size_t span) {
  Bench bench(device, span);
  if (auto prepared = bench.prepare(); !prepared) return prepared.error();
  const auto bytes = static_cast<double>(span);
  machine::LinkRates rates;
  const auto measure = [&](double& rate, double moved, const std::function<Result<void>()>& begin) -> Result<void> {
    const Result<double> seconds = bench.median(begin);
    if (!seconds) return seconds.error();
    rate = moved / *seconds;
    return {};
  };
  // Device to host first: it fills the host memory that is copied back.
  if (auto done = measure(rates.device_to_host, bytes, [&] { return bench.down(); }); !done) return done.error();
  if (auto done = measure(rates.host_to_device, bytes, [&] { return bench.up(); }); !done) return done.error();
  const auto both = [&]() -> Result<void> {
    if (auto down = bench.down(); !down) return down;
    return bench.up();
  };
  if (auto done = measure(rates.both, 2 * bytes, both); !done) return done.error();
  if (auto done = measure(rates.device_copy, bytes, [&] { return bench.within(); }); !done) return done.error();
  return rates;
}

}  // namespace ebb::device
