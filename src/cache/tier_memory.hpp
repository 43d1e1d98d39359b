#pragma once
// The memory of one tier: of the device or of the host, all at once or little by little.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "os/pages.hpp"
#include "planner/provisioner.hpp"

namespace ebb::memory {

enum class HostStrategy : std::uint8_t {
  direct,       // Device::allocate_host() before create() returns
  incremental,  // addresses at once; touched and pinned in the background, as far as it will be needed
                // (planner/provisioner.hpp)
};
enum class DeviceStrategy : std::uint8_t {
  direct,  // Device::allocate() before create() returns
  mapped,  // addresses and the first piece at once, the other pieces in the background (hipc22 sec. IV-A)
};
std::string_view name_of(HostStrategy strategy);
std::string_view name_of(DeviceStrategy strategy);
std::optional<HostStrategy> host_strategy(std::string_view name);  // none: no such strategy
std::optional<DeviceStrategy> device_strategy(std::string_view name);

/// Whose turn it is to register memory, among the processes of a node: one registration at a time, for together they
/// are many times slower (hipc22 sec. IV-A). Used by one thread at a time.
class PinTurn {
 public:
  virtual ~PinTurn() = default;
  /// Waits for the turn. False: `stop` came first.
  virtual bool take(std::stop_token stop) = 0;
  /// Why nobody is waited for, as the last take() found; empty: somebody would be.
  virtual std::string trouble() const { return {}; }
  virtual void give_back() noexcept = 0;
};

struct MemoryOptions {
  /// ready() grew or limit() fell. Called from the arena's threads with no lock held, several times at once perhaps,
  /// and never after stop() has returned. It must not call stop().
  std::function<void()> changed;
  /// Something went wrong and the arena goes on with what it has: the text, once for each kind of trouble. As
  /// `changed`.
  std::function<void(const std::string&)> trouble;
  /// Nothing: no other process is waited for.
  std::unique_ptr<PinTurn> turn;
  /// Of a mapped device arena, rounded to what the device maps by. Smaller ones take longer in all (hipc22 sec. V-B).
  std::size_t map_piece = std::size_t{1} << 30;
  /// Where not all addresses of growing memory can be had (`ulimit -v`, strict overcommit) it is refused; otherwise a
  /// half, a quarter or an eighth of it will do, and is the limit.
  bool whole = false;
  /// Makes pages present, keeping what they hold; from several threads.
  std::function<Result<void>(std::byte*, std::size_t)> touch = platform::populate;
  /// Whether there is memory for so many bytes more that are used before they are touched (ordinary memory, whose pages
  /// come as they are written). Refused, the arena ends before them. From the threads that call want().
  std::function<Result<void>(std::size_t)> left = [](std::size_t) { return Result<void>(); };
};

struct MemoryReport {
  std::string strategy;           // "direct", "incremental", "mapped"; of a ProvisionSpec: the name it came with
  std::uint64_t bytes = 0;        // size()
  std::uint64_t limit = 0;        // what is usable at last
  std::uint64_t ready = 0;        // usable now
  std::uint64_t touched = 0;      // pages that were made present, from the first byte on (host memory)
  std::uint64_t pinned = 0;       // registered, by ourselves or by allocate_host()
  std::uint64_t mapped = 0;       // device memory behind the addresses
  std::uint64_t piece = 0;        // that the next registration takes at most
  std::uint32_t pieces = 0;       // registered so far
  bool huge_pages = false;        // the system gives them to memory that asks
  bool sequential = false;        // touching pauses beside copies now (incremental)
  policy::GrowthFigures figures;  // what that follows from
  std::string trouble;            // every trouble so far, "; " between; empty: none
};

/// One contiguous range of memory; its addresses never change and are valid until it is destroyed. The device must
/// outlive it.
///
/// Thread safety: every method may be called from any thread.
/// 1. `mutex_` guards the growth, the queues and the reports; no page is touched, pinned or mapped, no turn waited for
///    and no callback called with it held.
/// 2. `borders_mutex_` guards the borders alone. It is taken last but for `copies_mutex_`, shared while for_each_part()
///    runs and alone while a border is added. Memory that may already be in use is registered (Device::pin()) under it:
///    every copy that begins meanwhile stands for so long. `copies_mutex_` guards what copies are under way.
/// 3. ready_ and limit_ change with mutex_ held and are read without. What a thread reads as ready is usable by it:
///    the pages, and their registration with its borders, came before; or it is used unregistered, and registered later
///    while no copy of it is under way (Pinning::whole: or has been for 0.1 s).
/// 4. ready_ never grows beyond limit_, and falls only with it. What lies below both is never unmapped or unpinned
///    before the destructor.
/// 5. The threads end with stop(); nothing is freed before they have. Memory stays as it was then. What is thrown on
///    them by the device or `touch` is a failure of that range; by `trouble`, nothing; by anything else, the end of
///    growing.
/// 6. Nothing of it may be used in a forked child, where its threads do not exist: not even destroyed.
class TierMemory {
 public:
  /// `bytes` is rounded up to 4096; 0 gives an arena without memory. Error out_of_memory.
  static Result<std::unique_ptr<TierMemory>> host(platform::Device& device, std::size_t bytes, HostStrategy strategy,
                                                  MemoryOptions options = {});
  static Result<std::unique_ptr<TierMemory>> on_device(platform::Device& device, std::size_t bytes,
                                                       DeviceStrategy strategy, MemoryOptions options = {});
  /// Host memory that grows as the caller says; capacity, and on ordinary memory pinning and faults_in, are set here.
  static Result<std::unique_ptr<TierMemory>> growing(platform::Device& device, std::size_t bytes, std::string name,
                                                     policy::ProvisionSpec spec, MemoryOptions options = {});
  ~TierMemory();
  TierMemory(const TierMemory&) = delete;
  TierMemory& operator=(const TierMemory&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  /// Bytes from the first one that may be used now.
  std::size_t ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  /// Bytes that ready() will reach, when it is wanted; size() unless memory ran out.
  std::size_t limit() const noexcept { return limit_.load(std::memory_order_acquire); }

  /// The bytes before `end` will be used. Only what is wanted becomes ready for certain. Where pages come as they are
  /// written, limit() falls instead if there is no memory for them.
  void want(std::size_t end);
  /// The program wrote a checkpoint of so many bytes.
  void produced(std::size_t bytes);
  /// A transfer from or to these bytes begins (said before its for_each_part()), and is under way until copy_ended() of
  /// the same, with how many it moved and how long it took; 0: it failed.
  void copy_begun(std::size_t offset, std::size_t bytes);
  void copy_ended(std::size_t offset, std::size_t bytes, std::size_t moved, std::chrono::nanoseconds took);

  /// Calls `f(offset, length)` for the parts of a range, in ascending order, that a copy may move as one: none crosses
  /// a border of what is registered. The borders stand still meanwhile; `f` must not wait for this arena. Stands while
  /// memory in use is being registered.
  template <typename F>
  void for_each_part(std::size_t offset, std::size_t bytes, F&& f) const {
    std::shared_lock lock(borders_mutex_);
    for (const std::size_t end = offset + bytes; offset < end;) {
      const std::size_t next = std::min(end, border_after(offset));
      f(offset, next - offset);
      offset = next;
    }
  }

  /// Ends the background work; what is under way is finished, calls of `changed` and `trouble` too. Nothing becomes
  /// ready any more. Idempotent.
  void stop();

  MemoryReport report() const;

 private:
  enum class Source : std::uint8_t { none, device, device_range, host, pages };  // of the memory
  // What is to be said when the lock is gone.
  struct News {
    bool changed = false;
    std::vector<std::string> troubles;
  };
  TierMemory(platform::Device& device, std::size_t bytes, std::string name, MemoryOptions options);
  static Result<std::unique_ptr<TierMemory>> make(platform::Device& device, std::size_t bytes, std::string name,
                                                  MemoryOptions options);
  Result<void> all_at_once(Result<std::byte*> memory, Source source);
  Result<void> start_mapping();
  Result<void> start_growing(policy::ProvisionSpec spec);
  Result<void> start_thread(void (TierMemory::*work)());
  void run(void (TierMemory::*work)()) noexcept;
  void end_here(const char* why) noexcept;
  void run_mapping();
  void run_touching();
  void run_pinning();
  enum class Pinned : std::uint8_t { yes, busy };
  Result<Pinned> pin(policy::ByteRange range);
  Result<Pinned> pin_whole(policy::ByteRange range);
  Result<Pinned> pin_in_use(policy::ByteRange range);
  void add_borders_locked(policy::ByteRange range);
  bool copies_use(policy::ByteRange range) const;
  void tell(policy::ProvisionEvent event, const Result<void>& left = {});  // from a caller's thread
  std::size_t untouched(std::size_t end) const;
  void feed_locked(policy::ProvisionEvent event, News& news);
  void settle_locked(std::size_t ready, std::size_t limit, News& news);
  void trouble_locked(std::string text, News& news);
  void say(std::unique_lock<std::mutex>& lock, News& news);
  void wait_locked(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, News& news);
  std::size_t border_after(std::size_t offset) const;  // with borders_mutex_; SIZE_MAX: none
  std::size_t map_piece() const;
  std::string had_text(std::size_t bytes) const;
  policy::Time now() const;

  platform::Device& device_;
  const std::size_t size_;
  const std::string name_;
  const MemoryOptions options_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  std::byte* data_ = nullptr;
  std::size_t addresses_ = 0;  // behind data_, of Source::pages
  Source source_ = Source::none;
  std::atomic<std::size_t> ready_{0}, limit_{0}, wanted_{0};
  std::atomic<bool> finished_{true};  // nothing grows any more

  mutable std::shared_mutex borders_mutex_;
  std::vector<std::size_t> borders_;  // ascending
  mutable std::mutex copies_mutex_;
  std::vector<policy::ByteRange> copies_;  // under way, where anything is registered
  bool registers_ = false;                 // whether that is so: from the first moment on

  mutable std::mutex mutex_;
  std::condition_variable touching_, pinning_;
  std::optional<policy::Provisioner> provisioner_;
  std::deque<policy::ByteRange> touches_;
  bool ask_ = false, give_back_ = false;  // the turn
  struct Said {
    bool touch = false, pin = false, late = false, slow = false, alone = false;
  } said_;
  bool ended_ = false;  // by something that was thrown
  std::optional<policy::ByteRange> pin_;
  policy::Time wakeup_ = policy::kNever;
  std::string touch_error_, pin_error_;
  News unsaid_;  // found out by a caller's thread
  std::vector<policy::ByteRange> pinned_;
  std::size_t mapped_ = 0;
  std::string troubles_;

  std::mutex stop_mutex_;  // held while threads are joined
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

}  // namespace ebb::memory
