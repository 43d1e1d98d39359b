#include "os/fault_handler.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <linux/futex.h>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/files.hpp"
#include "os/memory_guard.hpp"
#include "os/sys_result.hpp"

namespace ebb::os::faults {
namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, Linux 5.14

// What a signal handler looks at cannot belong to an object.
constinit std::array<Range, kRanges> table{};
constinit std::atomic<std::size_t> used{0};  // places that were ever claimed
constinit std::mutex installing{};
constinit bool installed = false;
constinit bool can_ask = false;  // this kernel knows kPopulateWrite
constinit pid_t home = 0;        // whose ranges are in the table
struct sigaction before{};       // the handler that ours replaced

// Whether the program may write there. Changes nothing but that the page is present.
bool writable(std::uintptr_t address) noexcept {
  return ::syscall(SYS_madvise, address / kBlock * kBlock, kBlock, kPopulateWrite) == 0;
}

bool lift(std::uintptr_t begin, std::uintptr_t end) noexcept {
  return ::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

// A parent's ranges mean nothing to its child.
void empty_in_child() noexcept {
  if (home == ::getpid()) return;
  home = ::getpid();
  for (Range& range : table) {
    if (const std::uintptr_t end = range.end.exchange(0)) lift(range.begin.load(), end);
    range.owner.store(nullptr);
    range.users.store(0);
  }
}

// Tells of the write and sleeps until the page is open. False: the fault is not ours.
bool answered(std::uintptr_t address) noexcept {
  const RangeUse range = find(address);
  if (!range) return can_ask && used.load() > 0 && writable(address);  // it may have been forgotten since the fault
  if (range->process.load() != ::getpid()) {
    return lift(range->begin.load(), range->end.load()) ||
           lift(address / kBlock * kBlock, address / kBlock * kBlock + kBlock);  // the child has unmapped some of it
  }
  Page& state = range->page_at(address);
  const std::uintptr_t page = address / kBlock * kBlock;
  for (;;) {
    std::uint32_t seen = state.load();
    if (seen == PageState::open) {
      if (!can_ask || writable(address)) return true;
      if (state.load() == PageState::open) return false;  // the program protects it itself
      continue;
    }
    if (seen == PageState::armed) {
      if (!state.compare_exchange_strong(seen, PageState::told)) continue;
      if (::write(range->telling.load(), &page, sizeof page) != static_cast<ssize_t>(sizeof page)) {  // full
        seen = PageState::told;
        state.compare_exchange_strong(seen, PageState::armed);
        wake_at(state);
        ::sched_yield();
        continue;
      }
    }
    sleep_at(state);
    if (state.load() == PageState::open) return true;
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  if (!answer(*info)) pass_on(before, number, info, context);
}

}  // namespace

bool answer(const siginfo_t& info) noexcept {
  const int error = errno;
  const bool ours = info.si_code == SEGV_ACCERR && answered(reinterpret_cast<std::uintptr_t>(info.si_addr));
  errno = error;
  return ours;
}

void pass_on(const struct sigaction& before, int number, siginfo_t* info, void* context) noexcept {
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(number);
  const bool sent = info->si_code <= 0;
  if (sent && before.sa_handler == SIG_IGN) return;
  // The instruction is tried again, and ends the process.
  struct sigaction usual{};
  usual.sa_handler = SIG_DFL;
  ::sigaction(number, &usual, nullptr);
  if (sent) ::raise(number);
}

Page& Range::page_at(std::uintptr_t address) const noexcept { return pages.load()[(address - begin.load()) / kBlock]; }

RangeUse find(std::uintptr_t address) noexcept {
  const auto inside = [address](const Range& range) { return address >= range.begin && address < range.end; };
  for (std::size_t i = 0; i < used; ++i) {
    if (!inside(table[i])) continue;
    table[i].users.fetch_add(1);
    RangeUse use(&table[i]);
    if (inside(table[i])) return use;
  }
  return RangeUse();
}

Range* claim(const void* owner) noexcept {
  for (std::size_t i = 0; i < kRanges; ++i) {
    const void* none = nullptr;
    if (!table[i].owner.compare_exchange_strong(none, owner)) continue;
    for (std::size_t seen = used; seen <= i && !used.compare_exchange_weak(seen, i + 1);) {
    }
    return &table[i];
  }
  return nullptr;
}

Range& place(std::size_t n) noexcept { return table[n]; }

void sleep_at(Page& page) noexcept {
  ::syscall(SYS_futex, &page, FUTEX_WAIT_PRIVATE, PageState::told, nullptr, nullptr, 0);
}

void wake_at(Page& page) noexcept { ::syscall(SYS_futex, &page, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

WatchResult install() noexcept {
  std::lock_guard lock(installing);
  empty_in_child();
  struct sigaction now{};
  if (::sigaction(SIGSEGV, nullptr, &now) != 0)
    return {reason_of(errno), "the handler of SIGSEGV cannot be read", {}, errno};
  const bool is_ours = (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault;
  if (is_ours || (installed && is_guard(now))) return {};
  if (installed) {
    return {Errc::unsupported, "another handler of SIGSEGV has replaced the one that notices writes"};
  }
  void* const page = ::mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  can_ask = page != MAP_FAILED && writable(reinterpret_cast<std::uintptr_t>(page));
  if (page != MAP_FAILED) ::munmap(page, kBlock);
  before = now;
  struct sigaction ours{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  if (::sigaction(SIGSEGV, &ours, nullptr) != 0) return {reason_of(errno), "SIGSEGV cannot be handled", {}, errno};
  installed = true;
  return {};
}

}  // namespace ebb::os::faults
