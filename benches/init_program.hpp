#pragma once
// The program that benches/init measures: its own copies beside the store's work, and what it sees of that work.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benches/common.hpp"
#include "benches/init_device.hpp"
#include "device/device.hpp"
#include "ebbtide/store.hpp"
#include "options/device_choice.hpp"
#include "os/pin_queue.hpp"

namespace bench {

namespace device = ebb::device;
namespace os = ebb::os;
using Moment = Clock::time_point;

inline double since(Moment begin) { return seconds(Clock::now() - begin); }
inline double rounded(double seconds) { return std::round(seconds * 1e9) / 1e9; }

/// Wait in the pin queue and register memory for a while when they are called, as so many processes of the same user
/// would.
///
/// Thread safety: its threads share nothing.
class Others {
 public:
  Others(std::size_t count, std::chrono::duration<double> turn) {
    if (count > 0) ebb::os::NodePinQueue().enter().value();  // throws: without a queue there are no others
    for (std::size_t i = 0; i < count; ++i) {
      threads_.emplace_back([turn](std::stop_token stop) {
        ebb::os::NodePinQueue queue;
        while (!stop.stop_requested()) {
          queue.enter().value();
          while (!queue.poll() && !stop.stop_requested()) std::this_thread::sleep_for(std::chrono::microseconds(100));
          if (queue.has_ticket()) std::this_thread::sleep_for(turn);
          queue.leave();
        }
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

/// The program's side: a stream of its own on the store's GPU, and memory there.
class Own {
 public:
  explicit Own(const std::string& device) : device_(ebb::options::open_device(device).value()) {
    if (!device_->host_memory()) {
      device_ = std::make_shared<RuntimeAllocations>(device_);
      clock_.emplace();
    }
    stream_ = device_->create_stream().value();
    event_ = device_->create_event().value();
  }
  Own(const Own&) = delete;
  Own& operator=(const Own&) = delete;
  ~Own() {
    device_->destroy_stream(stream_);
    device_->destroy_event(event_);
    for (const auto& [memory, bytes] : device_memory_) device_->free(memory, bytes);
    for (const auto& [memory, bytes] : host_memory_) device_->free_host(memory, bytes);
  }
  device::Device& device() const { return *device_; }
  std::byte* on_device(std::size_t bytes) { return kept(device_memory_, device_->allocate(bytes), bytes); }
  std::byte* on_host(std::size_t bytes) { return kept(host_memory_, device_->allocate_host(bytes), bytes); }
  void enqueue(void* to, const void* from, std::size_t bytes) { device_->copy(stream_, to, from, bytes).value(); }
  /// Looks again and again: what is measured is the device, not how soon a thread is woken.
  void finish() {
    device_->record(event_, stream_).value();
    if (device_->host_memory()) return device_->wait(event_).value();
    device::EventState state;
    while ((state = device_->query(event_)) == device::EventState::pending) {
    }
    if (state == device::EventState::failed) throw std::runtime_error("a copy of the program failed");
  }
  double timed(void* to, const void* from, std::size_t bytes) {
    const Moment begin = Clock::now();
    enqueue(to, from, bytes);
    finish();
    return since(begin);
  }
  struct Clocked {
    double host = 0, gpu = 0;  // seconds; the GPU's own, where there is one
  };
  /// By both clocks. The GPU's goes on while the host is held up between the calls that begin and end it.
  Clocked clocked(void* to, const void* from, std::size_t bytes) {
    if (!clock_) return {timed(to, from, bytes), 0};
    const Moment begin = Clock::now();
    clock_->begin(stream_);
    enqueue(to, from, bytes);
    clock_->end(stream_);
    while (!clock_->over()) {
    }
    return {since(begin), clock_->seconds()};
  }

 private:
  using Memory = std::vector<std::pair<std::byte*, std::size_t>>;
  static std::byte* kept(Memory& memory, ebb::Result<std::byte*> made, std::size_t bytes) {
    std::byte* const pointer = std::move(made).value();
    memory.emplace_back(pointer, bytes);
    return pointer;
  }
  std::shared_ptr<device::Device> device_;
  device::StreamId stream_ = 0;
  device::EventId event_ = 0;
  std::optional<DeviceClock> clock_;
  Memory device_memory_, host_memory_;
};

inline std::uint64_t flushed(const ebb::Stats& stats) {
  std::uint64_t bytes = 0;
  for (const ebb::LinkStats& link : stats.links) {
    if (link.name == "device>host" || link.name == "app>host") bytes += link.bytes;
  }
  return bytes;
}
inline std::uint64_t pinned(const ebb::Stats& stats) {
  std::uint64_t bytes = 0;
  for (const ebb::TierStats& tier : stats.tiers) bytes += tier.arena.pinned;
  return bytes;
}

/// A thread of the program's that does `look` every so often, until it is stopped. What it throws comes out of stop().
class Beside {
 public:
  template <class Look>
  Beside(std::chrono::microseconds every, Look look)
      : thread_([this, every, look] {
          try {
            for (Moment next = Clock::now(); !stopped_; std::this_thread::sleep_until(next)) {
              look();
              next = std::max(next + every, Clock::now());
            }
          } catch (...) {
            failed_ = std::current_exception();
          }
        }) {}
  ~Beside() { join(); }
  void stop() {
    join();
    if (failed_) std::rethrow_exception(std::exchange(failed_, nullptr));
  }

 private:
  void join() {
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::atomic<bool> stopped_{false};
  std::exception_ptr failed_;
  std::thread thread_;  // last: it uses the others
};

/// The program's own copies and when they were, and when the store's memory was last seen to grow.
class Copier {
 public:
  Copier(const Options& options, std::size_t bytes)
      : own_(options.text("device")), one_(own_.on_device(bytes)), other_(own_.on_device(bytes)), bytes_(bytes) {
    for (int i = 0; i < 8; ++i) own_.clocked(other_, one_, bytes_);
  }
  void copy(ebb::Store* store) {
    const Moment begin = Clock::now();
    const Own::Clocked took = own_.clocked(other_, one_, bytes_);
    copies_.push_back({begin, took.host, took.gpu});
    if (!store) return;
    if (const std::uint64_t now = pinned(store->stats()); now != pinned_) {
      pinned_ = now;
      grew_ = Clock::now();
    }
  }
  /// Beside: those from `begin` until the memory grew no more (until `opened`, at least), with the registrations that
  /// they met. Alone: those before it, when there was no store.
  void put(Json& json, Moment begin, Moment opened, const Registrations& registrations) const {
    const Moment end = std::max(grew_, opened);
    std::vector<Copy> beside, alone;
    for (const Copy& copy : copies_) {
      const bool before = seconds(copy.at - begin) + copy.host < 0;
      if (before) alone.push_back(copy);
      if (!before && copy.at <= end) beside.push_back(copy);
    }
    json.put("copies_beside", static_cast<double>(beside.size())).put("growing_s", seconds(end - begin));
    put_times(json, "copy_alone", alone);
    put_times(json, "copy_beside", beside);
    const std::vector<Registrations::One> all = registrations.all();
    std::vector<double> took;
    for (const Registrations::One& one : all) took.push_back(seconds(one.end - one.begin));
    json.put("registrations", static_cast<double>(all.size()));
    if (!all.empty()) {
      const double registering = std::accumulate(took.begin(), took.end(), 0.0);
      json.put("registering_s", registering);
      json.put("between_registrations_s", seconds(all.back().end - all.front().begin) - registering);
      json.put("registration_median_s", median(took));
      json.put("registration_longest_s", *std::max_element(took.begin(), took.end()));
    }
    if (beside.empty()) return;
    const auto met = [&](const Copy& copy) {
      const Moment over =
          copy.at + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(copy.host));
      return static_cast<double>(std::count_if(all.begin(), all.end(), [&](const Registrations::One& one) {
        return one.begin <= over && one.end >= copy.at;
      }));
    };
    double most = 0;
    for (const Copy& copy : beside) most = std::max(most, met(copy));
    const Copy& longest = *std::max_element(beside.begin(), beside.end(),
                                            [](const Copy& one, const Copy& other) { return one.host < other.host; });
    json.put("copy_beside_longest_met", met(longest)).put("copy_beside_most_met", most);
  }

 private:
  struct Copy {
    Moment at;
    double host, gpu;  // seconds
  };
  void put_times(Json& json, const std::string& name, const std::vector<Copy>& copies) const {
    if (copies.empty()) return;
    const auto put = [&](const std::string& clock, auto seconds_of) {
      std::vector<double> times;
      for (const Copy& copy : copies) times.push_back(seconds_of(copy));
      std::sort(times.begin(), times.end());
      json.put(clock + "_median_s", median(times)).put(clock + "_longest_s", times.back());
      json.put(clock + "_p99_s", times[times.size() * 99 / 100]);
    };
    put(name, [](const Copy& copy) { return copy.host; });
    if (!own_.device().host_memory()) put(name + "_gpu", [](const Copy& copy) { return copy.gpu; });
  }

  Own own_;
  std::byte *one_, *other_;
  std::size_t bytes_;
  std::vector<Copy> copies_;
  std::uint64_t pinned_ = 0;
  Moment grew_{};
};

/// What the store had moved to the host, by the time since `begin`.
class Flushes {
 public:
  void look(ebb::Store* store, Moment begin) {
    if (!store || begin == Moment{}) return;
    const std::uint64_t bytes = flushed(store->stats());
    seen_.emplace_back(since(begin), bytes);
  }
  /// Bytes a second until `until`, or until everything had been moved if that was sooner.
  void put(Json& json, double until) const {
    double end = 0;
    std::uint64_t bytes = 0;
    std::vector<double> times, moved;
    for (const auto& [at, now] : seen_) {
      if (times.empty() || at >= times.back() + 0.05) {
        times.push_back(rounded(at));
        moved.push_back(static_cast<double>(now));
      }
      if (at > until && bytes > 0) continue;
      if (now > bytes) bytes = now, end = at;
    }
    // It moved something until the very end of the second, or it was done before.
    if (end > until - 0.1) end = until;
    if (bytes > 0) json.put("flush_bytes_per_s", static_cast<double>(bytes) / end).put("flush_s", end);
    json.put("raw_flush_at_s", times).put("raw_flush_bytes", moved);
  }

 private:
  std::vector<std::pair<double, std::uint64_t>> seen_;
};

}  // namespace bench
