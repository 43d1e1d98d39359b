#include "os/uffd_watch.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "os/files.hpp"
#include "os/sys_result.hpp"
#include "os/watch_wait.hpp"

namespace ebb::os {
namespace {

std::uint64_t number(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

PageRange between(std::uint64_t begin, std::uint64_t end) {
  return {reinterpret_cast<std::byte*>(begin), static_cast<std::size_t>(end - begin)};
}

WatchResult not_watched(PageRange range, int error) noexcept {
  return {Errc::invalid_argument, "are not watched, or no longer mapped", range, error};
}

// A scan that arms what was written.
uffd::ScanArgument scan_of(PageRange range) {
  uffd::ScanArgument scan{};
  scan.size = sizeof scan;
  scan.flags = uffd::kScanWpMatching | uffd::kScanCheckAsync;
  scan.start = number(range.begin);
  scan.end = number(range.end());
  // Kernels before 6.18 miss pages with other masks than these.
  scan.category_mask = scan.return_mask = uffd::kPageIsWritten;
  return scan;
}

WatchResult scan_failed(PageRange range, int error) noexcept {
  if (error == EPERM) return not_watched(range, error);
  return {reason_of(error), "could not be scanned", range, error};
}

}  // namespace

Result<std::unique_ptr<WriteWatch>> UffdWatch::open(WatchForm form) {
  const bool async = form == WatchForm::userfaultfd_async;
  auto opened = uffd::open(uffd::kNeeded | (async ? uffd::kWpAsync : 0));
  if (!opened) return opened.error();
  OwnDescriptor bell([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!bell) return system_error("no event descriptor for a write watch", errno);
  OwnDescriptor pagemap;
  if (async) {
    pagemap = OwnDescriptor([] { return ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); });
    if (!pagemap) return system_error("opening /proc/self/pagemap failed", errno);
  }
  return std::unique_ptr<WriteWatch>(
      std::make_unique<UffdWatch>(form, std::move(*opened), std::move(bell), std::move(pagemap)));
}

UffdWatch::UffdWatch(WatchForm form, uffd::Opened opened, OwnDescriptor bell, OwnDescriptor pagemap)
    : form_(form),
      user_faults_only_(opened.user_faults_only && form == WatchForm::userfaultfd_sync),
      faults_(std::move(opened.descriptor)),
      bell_(std::move(bell)),
      pagemap_(std::move(pagemap)) {}

Result<void> UffdWatch::watch_all(std::span<const PageRange> ranges) {
  constexpr std::size_t kGap = 64 << 10;
  const auto joined = joined_watchable(ranges, kGap);
  if (!joined) return joined.error();
  for (const PageRange& range : *joined) {
    uffdio_register made{{number(range.begin), range.bytes}, UFFDIO_REGISTER_MODE_WP, 0};
    if (::ioctl(faults_.fd(), UFFDIO_REGISTER, &made) == 0) continue;
    const int error = errno;
    for (const PageRange& one : ranges)
      if (one.begin < range.begin) forget(one);
    if (error == EBUSY) return Error{Errc::in_use, describe(range) + " are watched by another userfaultfd"};
    return system_error("watching " + describe(range) + " failed", error);
  }
  return {};
}

void UffdWatch::forget(PageRange range) { unregister(number(range.begin), range.bytes); }

// Errors mean that the memory is gone already.
void UffdWatch::unregister(std::uint64_t begin, std::uint64_t bytes) noexcept {
  uffdio_range range{begin, bytes};
  static_cast<void>(::ioctl(faults_.fd(), UFFDIO_UNREGISTER, &range));
  wake(begin, bytes);  // which the kernel does not do for write protection
}

void UffdWatch::wake(std::uint64_t begin, std::uint64_t bytes) noexcept {
  uffdio_range range{begin, bytes};
  static_cast<void>(::ioctl(faults_.fd(), UFFDIO_WAKE, &range));
}

WatchResult UffdWatch::protect(PageRange range, bool on) {
  if (auto whole = check_pages(range); !whole) return whole;
  uffdio_writeprotect wanted{{number(range.begin), range.bytes}, on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
  while (::ioctl(faults_.fd(), UFFDIO_WRITEPROTECT, &wanted) != 0) {
    if (errno == ENOENT || errno == EINVAL) {
      const int error = errno;
      if (!on) wake(number(range.begin), range.bytes);  // what is there now is not armed
      return not_watched(range, error);
    }
    if (errno != EAGAIN && errno != EINTR) return {reason_of(errno), "could not be protected", range, errno};
    if (errno == EAGAIN) {
      read_messages();
      ::sched_yield();  // the thread that unmaps goes on when it runs
    }
  }
  return {};
}

// The scan arms in less than half the time of UFFDIO_WRITEPROTECT; the kernel has it for the asynchronous form alone.
WatchResult UffdWatch::arm(PageRange range) {
  if (form_ != WatchForm::userfaultfd_async) return protect(range, true);
  if (auto whole = check_pages(range); !whole) return whole;
  uffd::ScanArgument scan = scan_of(range);
  while (scan.start < scan.end) {
    if (::ioctl(pagemap_.fd(), uffd::kPagemapScan, &scan) >= 0) {
      scan.start = scan.walk_end;
    } else if (errno != EINTR) {
      return scan_failed(range, errno);
    }
  }
  return {};
}

void UffdWatch::read_messages() {
  bool some = false;
  {
    std::lock_guard lock(mutex_);
    uffd_msg message{};
    while (::read(faults_.fd(), &message, sizeof message) == static_cast<ssize_t>(sizeof message)) {
      some = true;
      if (count_ < kInbox) {
        inbox_[(first_ + count_++) % kInbox] = message;
        continue;
      }
      if (message.event != UFFD_EVENT_PAGEFAULT) {
        lost_ = true;
        continue;
      }
      wake(message.arg.pagefault.address & ~std::uint64_t{kBlock - 1}, kBlock);
      break;  // or it would be read again and again
    }
  }
  if (some) wake_next();
}

bool UffdWatch::take_message(uffd_msg& into) {
  std::lock_guard lock(mutex_);
  if (count_ > 0) {
    into = inbox_[first_];
    first_ = (first_ + 1) % kInbox;
    --count_;
    return true;
  }
  return ::read(faults_.fd(), &into, sizeof into) == static_cast<ssize_t>(sizeof into);
}

std::optional<WatchEvent> UffdWatch::event_of(const uffd_msg& message) {
  using Kind = WatchEvent::Kind;
  switch (message.event) {
    case UFFD_EVENT_PAGEFAULT: {
      const std::uint64_t page = message.arg.pagefault.address & ~std::uint64_t{kBlock - 1};
      return WatchEvent{Kind::written, between(page, page + kBlock)};
    }
    case UFFD_EVENT_REMOVE: return WatchEvent{Kind::removed, between(message.arg.remove.start, message.arg.remove.end)};
    case UFFD_EVENT_UNMAP: {
      const PageRange gone = between(message.arg.remove.start, message.arg.remove.end);
      wake(number(gone.begin), gone.bytes);
      return WatchEvent{Kind::unmapped, gone};
    }
    case UFFD_EVENT_REMAP: {
      // The kernel moved the protection as well.
      const auto [from, to, bytes] = message.arg.remap;
      unregister(to, bytes);
      unregister(from, bytes);
      return WatchEvent{Kind::remapped, between(from, from + bytes)};
    }
    default: return {};
  }
}

Result<WatchEvent> UffdWatch::next(std::chrono::milliseconds limit) {
  const WaitLimit until(limit);
  for (;;) {
    // Before the messages: what was to be told when it rang is told first.
    const bool rung = rung_.exchange(false);
    uffd_msg message;
    if (take_message(message)) {
      if (rung) rung_.store(true);
      if (auto event = event_of(message)) return *event;
      continue;
    }
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(lost_, false)) {
        return Error{Errc::io_error, "too much watched memory was unmapped at once to be told one by one"};
      }
    }
    if (rung) return WatchEvent{WatchEvent::Kind::rung};
    auto waited = until.wait(faults_.fd(), bell_.fd());
    if (!waited) return waited.error();
    if (!*waited) return WatchEvent{};
  }
}

void UffdWatch::wake_next() noexcept { ring_bell(bell_.fd()); }

void UffdWatch::ring() noexcept {
  rung_.store(true);
  wake_next();
}

Result<void> UffdWatch::take_written(PageRange range, std::vector<PageRange>& out) {
  if (form_ != WatchForm::userfaultfd_async) {
    return Error{Errc::unsupported, "synchronous userfaultfd does not note which pages were written"};
  }
  if (auto whole = check_pages(range); !whole) return whole;
  std::array<uffd::PageRegion, 256> found;
  uffd::ScanArgument scan = scan_of(range);
  scan.vec = reinterpret_cast<std::uintptr_t>(found.data());
  scan.vec_len = found.size();
  while (scan.start < scan.end) {
    // What is found is armed again, so there must be room for it.
    if (out.capacity() - out.size() < found.size()) out.reserve(2 * out.size() + found.size());
    const int runs = ::ioctl(pagemap_.fd(), uffd::kPagemapScan, &scan);
    if (runs < 0 && errno == EINTR) continue;
    if (runs < 0) return scan_failed(range, errno).error();
    for (int i = 0; i < runs; ++i) {
      const PageRange run = between(found[i].start, found[i].end);
      if (!out.empty() && out.back().end() == run.begin) {
        out.back().bytes += run.bytes;
      } else {
        out.push_back(run);
      }
    }
    scan.start = scan.walk_end;
  }
  return {};
}

}  // namespace ebb::os
