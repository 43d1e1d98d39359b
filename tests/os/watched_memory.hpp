#pragma once
// What the tests of write watches share: memory of several kinds, and a fault thread that answers.
#include <atomic>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "os/files.hpp"
#include "os/pages.hpp"
#include "os/write_watch.hpp"

namespace ebb::os::testing {

enum class MemoryKind { small_pages, huge_pages, shared, memory_file };

// Pages that are unmapped at the end, unless the test did so.
class TestMemory {
 public:
  explicit TestMemory(std::size_t pages, MemoryKind kind = MemoryKind::small_pages) : bytes_(pages * kBlock) {
    if (kind == MemoryKind::huge_pages) {
      begin_ = map_pages(bytes_).value();
      return;
    }
    int flags = kind == MemoryKind::small_pages ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_ANONYMOUS;
    int fd = -1;
    if (kind == MemoryKind::memory_file) {
      fd = ::memfd_create("ebb-test", MFD_CLOEXEC);
      if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes_)) != 0) throw std::runtime_error("no memory file");
      flags = MAP_SHARED;
    }
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0) ::close(fd);
    if (mapped == MAP_FAILED) throw std::runtime_error("no memory");
    begin_ = static_cast<std::byte*>(mapped);
    ::madvise(begin_, bytes_, MADV_NOHUGEPAGE);
  }
  TestMemory(const TestMemory&) = delete;
  ~TestMemory() {
    if (begin_) ::munmap(begin_, bytes_);
  }
  void touch() { std::memset(begin_, 1, bytes_); }
  std::byte* at(std::size_t page) const { return begin_ + page * kBlock; }
  PageRange pages(std::size_t first, std::size_t count) const { return {at(first), count * kBlock}; }
  PageRange all() const { return {begin_, bytes_}; }
  std::size_t page_of(const std::byte* at) const { return static_cast<std::size_t>(at - begin_) / kBlock; }
  std::set<std::size_t> pages_in(const std::vector<PageRange>& ranges) const {
    std::set<std::size_t> all;
    for (const PageRange& range : ranges) {
      for (std::byte* page = range.begin; page < range.end(); page += kBlock) {
        if (!all.insert(page_of(page)).second) throw std::logic_error("a page was given twice");
      }
    }
    return all;
  }
  void leave() { begin_ = nullptr; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

// Writes as a program does: the compiler must not leave it out. The thread sanitizer would see the write when it
// begins, though its thread sleeps until the page has been copied.
[[gnu::no_sanitize_thread, gnu::noinline]] inline void store(std::byte* at, int value) {
  *static_cast<volatile std::byte*>(at) = static_cast<std::byte>(value);
}

// Calls next() until it is destroyed, and disarms what is written. It allocates nothing, so that a writer may hold
// malloc's lock.
class FaultThread {
 public:
  explicit FaultThread(WriteWatch& watch) : watch_(watch), events_(kMost), thread_([this] { run(); }) {}
  ~FaultThread() {
    ending_.store(true);
    watch_.ring();
    thread_.join();
  }
  // All that happened before, once the thread has answered it.
  std::vector<WatchEvent> events() {
    const std::size_t before = answered_.load();
    watch_.ring();
    while (answered_.load() == before) std::this_thread::yield();
    const std::size_t count = count_.load();
    if (count > kMost) throw std::runtime_error("more events than the test has room for");
    return {events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::set<std::size_t> written(const TestMemory& memory) {
    std::set<std::size_t> pages;
    for (const WatchEvent& event : events()) {
      if (event.kind == WatchEvent::Kind::written) pages.insert(memory.page_of(event.range.begin));
    }
    return pages;
  }
  // While no writer runs.
  void clear() { count_.store(0); }

 private:
  static constexpr std::size_t kMost = 1 << 16;
  void run() {
    while (!ending_.load()) {
      const WatchEvent event = watch_.next(std::chrono::seconds(60)).value();
      if (event.kind == WatchEvent::Kind::rung) {
        answered_.fetch_add(1);
      } else if (event.kind != WatchEvent::Kind::nothing) {
        const std::size_t at = count_.load();
        if (at < kMost) events_[at] = event;
        count_.store(at + 1);
        if (event.kind == WatchEvent::Kind::written) watch_.disarm(event.range).value();
      }
    }
  }
  WriteWatch& watch_;
  std::vector<WatchEvent> events_;
  std::atomic<std::size_t> count_{0}, answered_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

// What a forked child returns: 0, or which of its steps failed.
inline int in_child(const std::function<int()>& steps) {
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(steps());
  int status = -1;
  if (::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace ebb::os::testing
