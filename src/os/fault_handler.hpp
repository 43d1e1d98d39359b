#pragma once
// The process's handler of SIGSEGV, and the table of watched ranges that it looks at: what MprotectWatch is made of.
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <sys/types.h>

#include "os/watch_result.hpp"

namespace ebb::os::faults {

/// A page's. The word of a futex: its writers sleep while it is `told`.
enum PageState : std::uint32_t {
  open,
  armed,
  told,  // armed, and a writer has been told of
};
using Page = std::atomic<std::uint32_t>;

/// A place in the table.
struct Range {
  std::atomic<const void*> owner{nullptr};       // null: free
  std::atomic<std::uintptr_t> begin{0}, end{0};  // end 0: not to be found. It is set last and reset first.
  std::atomic<Page*> pages{nullptr};
  std::atomic<int> telling{-1};
  std::atomic<pid_t> process{0};
  std::atomic<std::uint32_t> users{0};
  Page& page_at(std::uintptr_t address) const noexcept;
};
inline constexpr std::size_t kRanges = 4096;

/// A range that is in use, or none. Move-only.
class RangeUse {
 public:
  explicit RangeUse(Range* range = nullptr) noexcept : range_(range) {}
  RangeUse(RangeUse&& other) noexcept : range_(other.range_) { other.range_ = nullptr; }
  RangeUse& operator=(RangeUse&&) = delete;
  ~RangeUse() {
    if (range_) range_->users.fetch_sub(1);
  }
  explicit operator bool() const noexcept { return range_ != nullptr; }
  Range* operator->() const noexcept { return range_; }

 private:
  Range* range_;
};

/// The range that this address is in; async-signal-safe.
RangeUse find(std::uintptr_t address) noexcept;
/// A free place, now the owner's; null: there is none.
Range* claim(const void* owner) noexcept;
/// The n-th place, below kRanges.
Range& place(std::size_t n) noexcept;

/// Sleeps while the page is `told`, or less long; async-signal-safe.
void sleep_at(Page& page) noexcept;
void wake_at(Page& page) noexcept;

/// For a handler of SIGSEGV: tells of the write and sleeps until the page is open. False: the fault is not ours.
bool answer(const siginfo_t& info) noexcept;
/// For a handler: does what the one that it replaced would do.
void pass_on(const struct sigaction& before, int number, siginfo_t* info, void* context) noexcept;

/// Installs the handler unless it was. Error unsupported: it was, and another has replaced it since.
WatchResult install() noexcept;

}  // namespace ebb::os::faults
