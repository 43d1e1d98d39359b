#pragma once
// The program that benches/init measures: its own copies beside the store's work, and what it sees of that work.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benches/common.hpp"
#include "ebbtide/store.hpp"
#include "platform/device.hpp"
#include "runtime/device_choice.hpp"

namespace bench {

namespace platform = ebb::platform;
using Moment = Clock::time_point;

inline double since(Moment begin) { return seconds(Clock::now() - begin); }
inline double rounded(double seconds) { return std::round(seconds * 1e9) / 1e9; }

/// The program's side: a stream of its own on the store's GPU, and memory there.
class Own {
 public:
  explicit Own(const std::string& device) : device_(ebb::runtime::open_device(device).value()) {
    if (!device_->host_memory()) device_ = std::make_shared<RuntimeAllocations>(device_);
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
  platform::Device& device() { return *device_; }
  std::byte* on_device(std::size_t bytes) { return kept(device_memory_, device_->allocate(bytes), bytes); }
  std::byte* on_host(std::size_t bytes) { return kept(host_memory_, device_->allocate_host(bytes), bytes); }
  void enqueue(void* to, const void* from, std::size_t bytes) { device_->copy(stream_, to, from, bytes).value(); }
  /// Looks again and again: what is measured is the device, not how soon a thread is woken.
  void finish() {
    device_->record(event_, stream_).value();
    if (device_->host_memory()) return device_->wait(event_).value();
    platform::EventState state;
    while ((state = device_->query(event_)) == platform::EventState::pending) {
    }
    if (state == platform::EventState::failed) throw std::runtime_error("a copy of the program failed");
  }
  double timed(void* to, const void* from, std::size_t bytes) {
    const Moment begin = Clock::now();
    enqueue(to, from, bytes);
    finish();
    return since(begin);
  }

 private:
  using Memory = std::vector<std::pair<std::byte*, std::size_t>>;
  static std::byte* kept(Memory& memory, ebb::Result<std::byte*> made, std::size_t bytes) {
    std::byte* const pointer = std::move(made).value();
    memory.emplace_back(pointer, bytes);
    return pointer;
  }
  std::shared_ptr<platform::Device> device_;
  platform::StreamId stream_ = 0;
  platform::EventId event_ = 0;
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
    for (int i = 0; i < 8; ++i) own_.timed(other_, one_, bytes_);
  }
  void copy(ebb::Store* store) {
    const Moment begin = Clock::now();
    const double took = own_.timed(other_, one_, bytes_);
    copies_.emplace_back(begin, took);
    if (!store) return;
    if (const std::uint64_t now = pinned(store->stats()); now != pinned_) {
      pinned_ = now;
      grew_ = Clock::now();
    }
  }
  /// Of those from `begin` until the memory grew no more (until `opened`, at least).
  void put(Json& json, Moment begin, Moment opened) const {
    const Moment end = std::max(grew_, opened);
    std::vector<double> within, outside;
    for (const auto& [at, took] : copies_) {
      const bool in = at <= end && seconds(at - begin) + took >= 0;
      (in ? within : outside).push_back(took);
    }
    std::sort(within.begin(), within.end());
    json.put("copies_beside", static_cast<double>(within.size())).put("growing_s", seconds(end - begin));
    if (!within.empty()) {
      json.put("copy_beside_median_s", median(within)).put("copy_beside_longest_s", within.back());
      json.put("copy_beside_p99_s", within[within.size() * 99 / 100]);
    }
    if (!outside.empty()) {
      json.put("copy_apart_median_s", median(outside));
      json.put("copy_apart_longest_s", *std::max_element(outside.begin(), outside.end()));
    }
  }

 private:
  Own own_;
  std::byte *one_, *other_;
  std::size_t bytes_;
  std::vector<std::pair<Moment, double>> copies_;
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
