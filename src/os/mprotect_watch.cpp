#include "os/mprotect_watch.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sched.h>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "os/fault_handler.hpp"
#include "os/files.hpp"
#include "os/sys_result.hpp"
#include "os/watch_wait.hpp"

namespace ebb::os {
namespace {

using faults::PageState;

std::uintptr_t address_of(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

// The pages of a watched range that are in `range`, if they all are.
faults::RangeUse find_whole(PageRange range) {
  faults::RangeUse found = faults::find(address_of(range.begin));
  if (found && address_of(range.end()) > found->end.load()) return faults::RangeUse();
  return found;
}

WatchResult why_unprotected(PageRange range, int error) noexcept {
  unsigned char present = 0;
  for (std::byte* page = range.begin; error == ENOMEM && page < range.end(); page += kBlock) {
    if (::mincore(page, kBlock, &present) == 0 || errno != ENOMEM) continue;
    return {Errc::invalid_argument, "are watched, but no longer mapped", range};
  }
  const char* const what =
      error == ENOMEM ? "could not be protected, perhaps for vm.max_map_count" : "could not be protected";
  return {reason_of(error), what, range, error};
}

// Lets writers of a range go on, if it could be unprotected.
int open_pages(faults::Range& watched, std::uintptr_t begin, std::size_t bytes) {
  const int error = ::mprotect(reinterpret_cast<void*>(begin), bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
  if (error) return error;
  faults::Page* const first = &watched.page_at(begin);
  for (std::size_t i = 0; i < bytes / kBlock; ++i) {
    if (first[i].load() == PageState::open) continue;
    if (first[i].exchange(PageState::open) == PageState::told) faults::wake_at(first[i]);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<WriteWatch>> MprotectWatch::open() {
  if (auto there = faults::install(); !there) return there.error();
  OwnDescriptor bell([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  int ends[2] = {-1, -1};
  OwnDescriptor told([&] { return ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 ? ends[0] : -1; });
  OwnDescriptor telling([&] { return ends[1]; });
  if (!bell || !told || !telling) return system_error("no descriptors for a write watch", errno);
  return std::unique_ptr<WriteWatch>(
      std::make_unique<MprotectWatch>(std::move(bell), std::move(told), std::move(telling)));
}

MprotectWatch::MprotectWatch(OwnDescriptor bell, OwnDescriptor told, OwnDescriptor telling)
    : process_(::getpid()), bell_(std::move(bell)), told_(std::move(told)), telling_(std::move(telling)) {}

MprotectWatch::~MprotectWatch() {
  if (process_ != ::getpid()) return;
  for (std::size_t i = 0; i < faults::kRanges; ++i) {
    const faults::Range& range = faults::place(i);
    if (range.owner.load() != this) continue;
    const std::uintptr_t begin = range.begin.load();
    forget({reinterpret_cast<std::byte*>(begin), range.end.load() - begin});
  }
}

Result<void> MprotectWatch::watch(PageRange range) {
  if (auto good = check_watchable(range); !good) return good;
  auto pages = std::make_unique<faults::Page[]>(range.bytes / kBlock);
  for (std::size_t i = 0; i < faults::kRanges; ++i) {
    const faults::Range& other = faults::place(i);
    if (address_of(range.begin) < other.end.load() && other.begin.load() < address_of(range.end())) {
      throw std::logic_error(describe(range) + " are watched already");
    }
  }
  faults::Range* const watched = faults::claim(this);
  if (!watched) return Error{Errc::no_space, "mprotect watches at most 4096 ranges"};
  watched->pages.store(pages.release());
  watched->telling.store(telling_.fd());
  watched->process.store(process_);
  watched->begin.store(address_of(range.begin));
  watched->end.store(address_of(range.end()));
  return {};
}

void MprotectWatch::forget(PageRange range) {
  faults::Range* watched = nullptr;
  for (std::size_t i = 0; i < faults::kRanges && !watched; ++i) {
    faults::Range& place = faults::place(i);
    if (place.owner.load() == this && place.begin.load() == address_of(range.begin)) watched = &place;
  }
  if (!watched) throw std::logic_error(describe(range) + " are not watched");
  const std::size_t count = range.bytes / kBlock;
  // A writer must find the range until its page is open, or its signal would be passed on.
  if (open_pages(*watched, address_of(range.begin), range.bytes) != 0) {
    for (std::size_t i = 0; i < count; ++i) {  // part of it is gone
      static_cast<void>(open_pages(*watched, address_of(range.begin) + i * kBlock, kBlock));
    }
  }
  watched->end.store(0);
  while (watched->users.load() > 0) ::sched_yield();
  delete[] watched->pages.exchange(nullptr);
  watched->begin.store(0);
  watched->owner.store(nullptr);
}

WatchResult MprotectWatch::arm(PageRange range) {
  if (auto whole = check_pages(range); !whole) return whole;
  if (auto there = faults::install(); !there) return there;
  const faults::RangeUse watched = find_whole(range);
  if (!watched) return {Errc::invalid_argument, "are not watched", range};
  faults::Page* const first = &watched->page_at(address_of(range.begin));
  for (std::size_t i = 0; i < range.bytes / kBlock; ++i) {
    std::uint32_t open = PageState::open;
    first[i].compare_exchange_strong(open, PageState::armed);
  }
  if (::mprotect(range.begin, range.bytes, PROT_READ) == 0) return {};
  return why_unprotected(range, errno);
}

WatchResult MprotectWatch::disarm(PageRange range) {
  if (auto whole = check_pages(range); !whole) return whole;
  const faults::RangeUse watched = find_whole(range);
  if (!watched) return {Errc::invalid_argument, "are not watched", range};
  const int error = open_pages(*watched.operator->(), address_of(range.begin), range.bytes);
  return error ? why_unprotected(range, error) : WatchResult();
}

Result<WatchEvent> MprotectWatch::next(std::chrono::milliseconds limit) {
  const WaitLimit until(limit);
  for (;;) {
    std::uintptr_t page = 0;
    if (::read(told_.fd(), &page, sizeof page) == static_cast<ssize_t>(sizeof page)) {
      return WatchEvent{WatchEvent::Kind::written, {reinterpret_cast<std::byte*>(page), kBlock}};
    }
    if (rung_.exchange(false)) return WatchEvent{WatchEvent::Kind::rung};
    auto waited = until.wait(told_.fd(), bell_.fd());
    if (!waited) return waited.error();
    if (!*waited) return WatchEvent{};
  }
}

void MprotectWatch::ring() noexcept {
  rung_.store(true);
  ring_bell(bell_.fd());
}

Result<void> MprotectWatch::take_written(PageRange, std::vector<PageRange>&) {
  return Error{Errc::unsupported, "mprotect does not note which pages were written"};
}

}  // namespace ebb::os
