#pragma once
// Which pages of this process's memory are written. Real: SystemWriteWatches. Double:
// tests/doubles/fake_write_watch.hpp.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/watch_result.hpp"

namespace ebb::os {

/// How writes are noticed.
enum class WatchForm : std::uint8_t {
  userfaultfd_async,  // the kernel notes them, and take_written() reads its notes: no writer waits
  userfaultfd_sync,   // the writer sleeps, and next() tells
  mprotect,           // the same, by a handler of SIGSEGV
};
inline constexpr std::array kWatchForms{WatchForm::userfaultfd_async, WatchForm::userfaultfd_sync, WatchForm::mprotect};
/// "userfaultfd asynchronous", "userfaultfd synchronous", "mprotect".
std::string_view name_of(WatchForm form) noexcept;

/// What next() tells. Of memory that is gone, `range` may be more than what was watched of it.
struct WatchEvent {
  enum class Kind : std::uint8_t {
    nothing,   // the time is over
    written,   // a thread writes to the page `range`, and sleeps until it is disarmed
    removed,   // the contents of `range` are about to be discarded (MADV_DONTNEED and the like); it is disarmed
    unmapped,  // `range` is no longer memory
    remapped,  // `range` was moved, and is not watched at its new place
    rung,      // ring() was called
  } kind = Kind::nothing;
  PageRange range{};
  bool operator==(const WatchEvent&) const = default;
};

/// Notices writes to memory by the threads of this process, and by the kernel on their behalf. Not seen: writes of
/// other processes to shared memory, and writes through pages that are pinned when they are armed (memory registered
/// with a device, fixed buffers, direct reads and RDMA in flight). Destroying a watch forgets all ranges, so writers go
/// on.
///
/// Thread safety: one thread, the fault thread, calls next() and waits for nothing that a writer may hold; the other
/// methods may be called from any thread, but arm(), disarm(), take_written() and forget() of a page by one at a time.
/// 1. Between next()'s return and the end of disarm() nothing here allocates, touches watched memory or takes a lock
///    that a thread holds while it touches watched memory or allocates. The same is true of arm().
/// 2. A page that is armed and written is told at least once. It may be told twice (two writers), or late: after
///    another thread has disarmed it. Disarming it again is harmless.
/// 3. userfaultfd: a thread that removes, unmaps or moves watched memory sleeps until next() has taken note. The fault
///    thread must not do so.
/// 4. Before `rung`, next() tells all that was to be told when ring() was called. So whoever rings and awaits the fault
///    thread's answer knows of all memory that was gone before.
/// 5. A forked child inherits no protection: its writes are its own. It must not call these methods.
class WriteWatch {
 public:
  virtual ~WriteWatch() = default;
  virtual WatchForm form() const noexcept = 0;
  /// A system call that writes to armed memory, such as read(), fails with EFAULT.
  virtual bool user_faults_only() const noexcept = 0;

  /// Allows arm() within this range. It overlaps no other range of the watch. Errors: invalid_argument (not whole
  /// pages, not mapped, not writable), unsupported (a file, a stack, code), in_use (another user of userfaultfd has
  /// it), out_of_memory.
  virtual Result<void> watch(PageRange range) = 0;
  /// The same for many, ascending: all of them, or none.
  virtual Result<void> watch_all(std::span<const PageRange> ranges);
  /// Writers go on. `range` was given to watch(), and is no longer. It may be gone meanwhile.
  virtual void forget(PageRange range) = 0;

  /// From now on the first write to each of these pages is noticed. Error invalid_argument: they are not watched, or no
  /// longer mapped. After an error some may be armed.
  virtual WatchResult arm(PageRange range) = 0;
  /// Lets writers go on. Errors: as arm(); out_of_memory: mprotect would need more mappings than the kernel allows
  /// (vm.max_map_count). Disarming a whole watched range needs none.
  virtual WatchResult disarm(PageRange range) = 0;

  /// What comes next; `written` is told in the synchronous forms only. mprotect tells nothing of memory that is
  /// removed, unmapped or moved, which must therefore be forgotten before. Errors: io_error; too much was unmapped at
  /// once to be told one by one.
  virtual Result<WatchEvent> next(std::chrono::milliseconds limit) = 0;
  /// next() returns soon, or its next call does.
  virtual void ring() noexcept = 0;

  /// Appends which of these pages were written, or removed, since they were armed, in order and without repetition, and
  /// arms exactly those again: a write goes to this call or to the next one. After an error, or std::bad_alloc, `out`
  /// has those that were armed again. Errors: unsupported (a synchronous form), invalid_argument as arm().
  virtual Result<void> take_written(PageRange range, std::vector<PageRange>& out) = 0;
};

/// What this process may use of a form.
struct WatchAbility {
  WatchForm form{};
  bool usable = false;
  bool user_faults_only = false;  // as WriteWatch says it
  std::string note{};             // why it is not usable, or limited
};

/// Thread safety: every method may be called from any thread.
class WriteWatches {
 public:
  virtual ~WriteWatches() = default;
  /// Tries all forms, in the order of kWatchForms.
  virtual std::vector<WatchAbility> abilities() = 0;
  /// Errors: unsupported, not_permitted, out_of_memory, io_error.
  virtual Result<std::unique_ptr<WriteWatch>> open(WatchForm form) = 0;
};

class SystemWriteWatches final : public WriteWatches {
 public:
  std::vector<WatchAbility> abilities() override;
  Result<std::unique_ptr<WriteWatch>> open(WatchForm form) override;
};

/// Whether range can be watched, as WriteWatch::watch() says it.
Result<void> check_watchable(PageRange range);
/// Ascending ranges that can be watched, joined where at most `gap` bytes that can be watched too lie between. Errors:
/// as WriteWatch::watch().
Result<std::vector<PageRange>> joined_watchable(std::span<const PageRange> ranges, std::size_t gap);
/// Error invalid_argument: these are not whole pages.
WatchResult check_pages(PageRange range) noexcept;

}  // namespace ebb::os
