#pragma once
// The memory of one tier: of the device or of the host.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cache/pinned_ranges.hpp"
#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "os/clock.hpp"
#include "os/pages.hpp"
#include "os/pin_queue.hpp"
#include "planner/provisioner.hpp"

namespace ebb::cache {

struct MemoryOptions {
  /// ready() grew or limit() fell. Called from provisioning threads with no lock held, perhaps several at once, and
  /// never after stop() has returned. It must not call stop().
  std::function<void()> changed;
  /// Something failed, and provisioning continues as far as it can: the text, once for each kind of trouble. Called as
  /// `changed` is.
  std::function<void(const std::string&)> trouble;
  /// The time of its provisioning.
  std::shared_ptr<os::Clock> clock = std::make_shared<os::SteadyClock>();
  /// What a provisioner gave for an event, every one of them in order. Called with a lock of the memory's held, and
  /// perhaps the caller's: it must call nothing of either.
  std::function<void(const planner::Provisioner&, const planner::ProvisionEvent&, const planner::ProvisionCommands&)>
      record;
  /// Orders registrations with those of other processes; null: no order.
  std::unique_ptr<os::PinQueue> queue;
  /// Addresses of host memory that the caller provides, of the whole size; held as long as the memory. It is used only
  /// after it was touched. Null: anonymous pages.
  std::shared_ptr<std::byte> addresses = {};
  /// Size of a piece of mapped device memory, rounded to the device's granularity. Smaller pieces take longer in all
  /// (hipc22 sec. V-B).
  std::size_t map_piece = std::size_t{1} << 30;
  /// If not all addresses can be reserved (`ulimit -v`, strict overcommit): true refuses, false tries a half, a quarter
  /// and an eighth of them, which becomes the limit.
  bool whole = false;
  /// Makes pages present and keeps their contents; called from several threads.
  std::function<Result<void>(std::byte*, std::size_t)> touch = os::populate;
  /// Whether this many more bytes of ordinary memory, which is used before it is touched, are available. On an error
  /// the memory ends before them. Called from the threads that call want().
  std::function<Result<void>(std::size_t)> left = [](std::size_t) { return Result<void>(); };
};

struct MemoryReport {
  std::string strategy;       // "direct", "incremental", "mapped"
  std::uint64_t bytes = 0;    // size()
  std::uint64_t limit = 0;    // finally usable
  std::uint64_t ready = 0;    // usable now
  std::uint64_t touched = 0;  // made present: a prefix of host memory
  std::uint64_t pinned = 0;   // registered, here or by allocate_host()
  std::uint64_t mapped = 0;   // device memory behind the addresses
  std::uint64_t piece = 0;    // the most that the next registration takes
  std::uint32_t pieces = 0;   // registered so far
  bool huge_pages = false;    // the system gives huge pages on request
  std::string trouble;        // every trouble so far, "; " between; empty: none
};

/// One contiguous range of memory; its addresses never change and are valid until it is destroyed. The device must
/// outlive it.
///
/// Thread safety: every method may be called from any thread.
/// 1. ready() never grows beyond limit(), and falls only with it. A thread that has read both may use the bytes below
///    both, until the destructor.
/// 2. A forked child must not use it, not even destroy it.
class TierMemory {
 public:
  virtual ~TierMemory() = default;
  TierMemory(const TierMemory&) = delete;
  TierMemory& operator=(const TierMemory&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// The number of bytes, from the first, that may be used now.
  std::size_t ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  /// The number of bytes that ready() can reach on demand; size() unless memory ran out.
  std::size_t limit() const noexcept { return limit_.load(std::memory_order_acquire); }

  /// The bytes before `end` will be used. Only these are sure to become ready. Where the first write makes a page
  /// present, limit() falls instead if there is no memory for them.
  virtual void want(std::size_t) {}
  /// The program wrote a checkpoint of this many bytes.
  virtual void produced(std::size_t) {}
  /// So many bytes may have to be placed here at once: they are pinned ahead, in the background.
  virtual void expect(std::size_t) {}
  /// A transfer to or from these bytes begins (called before its for_each_part()); it lasts until copy_ended() with the
  /// same range.
  virtual void copy_begun(std::size_t, std::size_t) {}
  virtual void copy_ended(std::size_t, std::size_t) {}
  /// Calls `f(offset, length)` for the parts of a range, in ascending order, that a copy may move as one: none crosses
  /// a border of a registration. `f` must not wait for this memory. Blocks while memory in use is being registered.
  template <typename F>
  void for_each_part(std::size_t offset, std::size_t bytes, F&& f) const {
    ranges_.for_each_part(offset, bytes, std::forward<F>(f));
  }

  /// Ends the background work, after the current steps and calls of `changed` and `trouble` have finished. Nothing more
  /// becomes ready. Idempotent.
  virtual void stop() {}
  virtual MemoryReport report() const;

 protected:
  TierMemory(std::string strategy, std::size_t size) : strategy_(std::move(strategy)), size_(size) {}

  const std::string strategy_;
  const std::size_t size_;
  std::byte* data_ = nullptr;
  std::atomic<std::size_t> ready_{0}, limit_{0};
  PinnedRanges ranges_;
};

using MadeMemory = Result<std::unique_ptr<TierMemory>>;
// `bytes` are rounded up to 4096; 0 gives memory of no bytes. Error out_of_memory.

/// Memory that is all there when these return: from Device::allocate_host() and Device::allocate().
MadeMemory direct_host_memory(device::Device& device, std::size_t bytes);
MadeMemory direct_device_memory(device::Device& device, std::size_t bytes);
/// Ordinary memory whose pages come as they are written.
MadeMemory untouched_host_memory(std::size_t bytes);
/// The usual spec, with as many touching threads as do not hold up a program on this machine.
planner::ProvisionSpec usual_provision();
/// Addresses at once. Pages are touched and registered with the device in the background, as far as they are needed;
/// memory of a device that is ordinary memory is used before that. Of `spec`, capacity and used_when are set here.
MadeMemory incremental_host_memory(device::Device& device, std::size_t bytes, MemoryOptions options = {},
                                   planner::ProvisionSpec spec = usual_provision());
/// Addresses and the first piece at once, the other pieces in the background (hipc22 sec. IV-A).
MadeMemory mapped_device_memory(device::Device& device, std::size_t bytes, MemoryOptions options = {});

}  // namespace ebb::cache
