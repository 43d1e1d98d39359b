// What the system's write watches meet beyond their contract: memory that goes away, children, other users, locks that
// writers hold, and other handlers of SIGSEGV.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <malloc.h>

#include "os/write_watch.hpp"
#include "tests/os/another_user.hpp"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kOwnMalloc = false;
#else
constexpr bool kOwnMalloc = true;
#endif

namespace ebb::os::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using Kind = WatchEvent::Kind;
constexpr std::chrono::milliseconds kLong{60000}, kNow{0};

class SystemWriteWatch : public ::testing::TestWithParam<WatchForm> {
 protected:
  void SetUp() override {
    auto opened = SystemWriteWatches().open(GetParam());
    if (!opened) GTEST_SKIP() << opened.error().message;
    watch_ = std::move(*opened);
  }
  void watch_all(const TestMemory& memory) {
    watch_->watch(memory.all()).value();
    watch_->arm(memory.all()).value();
  }
  // All that next() tells while another thread does this, which ends when it is told.
  std::vector<WatchEvent> told_while(const std::function<void()>& action) {
    std::vector<WatchEvent> told;
    std::thread other([&] {
      action();
      watch_->ring();
    });
    for (WatchEvent event = watch_->next(kLong).value(); event.kind != Kind::rung;
         event = watch_->next(kLong).value()) {
      told.push_back(event);
    }
    other.join();
    return told;
  }
  // Until the watch is gone: nobody would take note of it.
  TestMemory& make(std::size_t pages, MemoryKind kind = MemoryKind::small_pages) {
    return *memory_.emplace_back(std::make_unique<TestMemory>(pages, kind));
  }
  std::vector<std::unique_ptr<TestMemory>> memory_;
  std::unique_ptr<WriteWatch> watch_;
};
class Userfaultfd : public SystemWriteWatch {};
class Synchronous : public SystemWriteWatch {};

TEST_P(SystemWriteWatch, memory_of_other_kinds_is_refused_by_name) {
  const auto refusal = [&](std::byte* at, std::size_t bytes = kBlock) { return watch_->watch({at, bytes}).error(); };
  const int self = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  for (const int flags : {MAP_PRIVATE, MAP_SHARED}) {
    void* const file = ::mmap(nullptr, kBlock, PROT_READ, flags, self, 0);
    ASSERT_NE(file, MAP_FAILED);
    EXPECT_EQ(refusal(static_cast<std::byte*>(file)).code, Errc::unsupported);
    EXPECT_NE(refusal(static_cast<std::byte*>(file)).message.find("it is a file"), std::string::npos);
    ::munmap(file, kBlock);
  }
  ::close(self);
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));  // a sanitizer moves variables
  std::byte* const stack = reinterpret_cast<std::byte*>(here / kBlock * kBlock);
  EXPECT_EQ(refusal(stack).code, Errc::unsupported);
  TestMemory& memory = make(4);
  ::mprotect(memory.at(3), kBlock, PROT_READ);
  EXPECT_EQ(refusal(memory.at(2), 2 * kBlock).code, Errc::invalid_argument);
  ::munmap(memory.at(1), kBlock);
  EXPECT_EQ(refusal(memory.at(1)).code, Errc::invalid_argument);
  EXPECT_NE(refusal(memory.at(0), 2 * kBlock).message.find("not all mapped"), std::string::npos);
  watch_->watch(memory.pages(0, 1)).value();
}

TEST_P(SystemWriteWatch, a_childs_writes_are_its_own) {
  TestMemory& memory = make(4);
  memory.touch();
  watch_all(memory);
  EXPECT_EQ(in_child([&] {
              store(memory.at(1), 7);
              store(memory.at(2), 7);
              if (memory.at(1)[0] != std::byte{7}) return 1;
              if (watch_->arm(memory.all())) return 2;  // nothing of the parent's is touched
              watch_.reset();
              auto own = SystemWriteWatches().open(GetParam());
              if (!own || !(*own)->watch(memory.all()) || !(*own)->arm(memory.pages(3, 1))) return 3;
              store(memory.at(0), 7);
              return 0;
            }),
            0);
  EXPECT_EQ(memory.at(1)[0], std::byte{1});
  EXPECT_EQ(watch_->next(kNow).value(), WatchEvent{});
  if (GetParam() == WatchForm::userfaultfd_async) {
    std::vector<PageRange> written;
    watch_->take_written(memory.all(), written).value();
    EXPECT_EQ(written, std::vector<PageRange>{});
    store(memory.at(2), 9);
    watch_->take_written(memory.all(), written).value();
    EXPECT_EQ(written, std::vector<PageRange>{memory.pages(2, 1)});
  } else {
    FaultThread faults(*watch_);
    store(memory.at(2), 9);
    EXPECT_EQ(faults.written(memory), std::set<std::size_t>{2});
  }
}

TEST_P(Synchronous, a_writer_may_hold_the_lock_of_malloc) {
  if (!kOwnMalloc) GTEST_SKIP() << "a sanitizer's malloc";
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  constexpr std::size_t kBytes = 4 << 20;
  auto* const block = static_cast<std::byte*>(std::malloc(kBytes));
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(block) + kBlock - 1) / kBlock * kBlock;
  const PageRange inside{reinterpret_cast<std::byte*>(first), kBytes - 2 * kBlock};
  watch_->watch(inside).value();
  {
    FaultThread faults(*watch_);
    watch_->arm(inside).value();
    std::free(block);
    // malloc keeps its books in the memory that it gives out, with its lock held.
    void* volatile parts[] = {std::malloc(kBytes / 8), std::malloc(kBytes / 8)};
    std::size_t armed = 0;
    for (const WatchEvent& event : faults.events()) armed += event.kind == Kind::written;
    EXPECT_GE(armed, 1u);
    for (void* const part : parts) std::free(part);
  }
  watch_->forget(inside);
}

TEST_P(Userfaultfd, memory_that_goes_away_is_told_by_name) {
  for (const MemoryKind kind : {MemoryKind::small_pages, MemoryKind::huge_pages}) {
    TestMemory& memory = make(1024, kind);
    memory.touch();
    watch_all(memory);
    EXPECT_THAT(told_while([&] { ::madvise(memory.at(0), 2 * kBlock, MADV_DONTNEED); }),
                ElementsAre(WatchEvent{Kind::removed, memory.pages(0, 2)}));
    EXPECT_THAT(told_while([&] { ::munmap(memory.at(2), 4 * kBlock); }),
                ElementsAre(WatchEvent{Kind::unmapped, memory.pages(2, 4)}));
    void* moved = nullptr;
    const auto move = [&] {
      moved = ::mremap(memory.at(512), 4 * kBlock, 4 * kBlock, MREMAP_MAYMOVE | MREMAP_FIXED, memory.at(2));
    };
    EXPECT_THAT(told_while(move), Contains(WatchEvent{Kind::remapped, memory.pages(512, 4)}));
    EXPECT_EQ(moved, memory.at(2));
    store(memory.at(2), 5);  // it is watched no more: nobody answers
    EXPECT_EQ(watch_->arm(memory.pages(2, 4)).error().code, Errc::invalid_argument);
    watch_->arm(memory.pages(0, 2)).value();
    watch_->forget(memory.all());
  }
}

TEST_P(Userfaultfd, the_contents_of_shared_memory_that_are_removed_are_told) {
  TestMemory& memory = make(4, MemoryKind::memory_file);
  memory.touch();
  watch_all(memory);
  EXPECT_THAT(told_while([&] { ::madvise(memory.at(1), kBlock, MADV_REMOVE); }),
              ElementsAre(WatchEvent{Kind::removed, memory.pages(1, 1)}));
  EXPECT_EQ(memory.at(1)[0], std::byte{0});
}

TEST_P(Synchronous, a_writer_goes_on_in_memory_that_replaced_its_own) {
  if (GetParam() == WatchForm::mprotect) GTEST_SKIP() << "memory must be forgotten before";
  TestMemory& memory = make(4);
  watch_all(memory);
  std::thread writer([&] { store(memory.at(1), 5); });
  EXPECT_EQ(watch_->next(kLong).value().kind, Kind::written);
  EXPECT_THAT(told_while([&] {
                ::mmap(memory.at(1), kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
              }),
              ElementsAre(WatchEvent{Kind::unmapped, memory.pages(1, 1)}));
  EXPECT_EQ(watch_->disarm(memory.pages(1, 1)).error().code, Errc::invalid_argument);
  writer.join();
  EXPECT_EQ(memory.at(1)[0], std::byte{5});
}

TEST_P(Userfaultfd, memory_is_armed_while_other_memory_is_unmapped) {
  TestMemory& stays = make(4);
  TestMemory& goes = make(64);
  stays.touch();
  watch_all(stays);
  watch_all(goes);
  // The fault thread does not listen: it waits for the cut, which arms.
  std::vector<std::thread> others;
  for (std::size_t i = 0; i < 16; ++i) {
    others.emplace_back([&, i] { ::munmap(goes.at(i * 4), 4 * kBlock); });
  }
  for (int i = 0; i < 300; ++i) {
    watch_->disarm(stays.all()).value();
    watch_->arm(stays.all()).value();
  }
  std::set<std::byte*> told;
  while (told.size() < others.size()) {
    const WatchEvent event = watch_->next(kLong).value();
    ASSERT_EQ(event.kind, Kind::unmapped);
    told.insert(event.range.begin);
  }
  for (std::thread& other : others) other.join();
  goes.leave();
}

TEST_P(Userfaultfd, a_ring_is_told_after_what_went_away_before) {
  TestMemory& stays = make(1);
  watch_all(stays);
  for (int i = 0; i < 20; ++i) {
    TestMemory& memory = make(1);
    watch_->watch(memory.all()).value();
    std::atomic<bool> gone{false};
    std::thread other([&] {
      ::munmap(memory.at(0), kBlock);
      gone.store(true);
    });
    // Whoever disarms takes note of it, so that the other thread goes on before next() was called.
    while (!gone.load()) watch_->disarm(stays.all()).value();
    other.join();
    watch_->ring();
    EXPECT_EQ(watch_->next(kLong).value(), (WatchEvent{Kind::unmapped, memory.all()}));
    EXPECT_EQ(watch_->next(kLong).value(), WatchEvent{Kind::rung});
    memory.leave();
  }
}

TEST(WriteWatchUsers, another_user_is_limited_to_faults_of_user_mode) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  if (!SystemWriteWatches().open(WatchForm::userfaultfd_sync)) GTEST_SKIP() << "no userfaultfd";
  constexpr int kNotLimited = 77;
  const int status = as_nobody([] {
    TestMemory memory(2);
    auto watch = SystemWriteWatches().open(WatchForm::userfaultfd_sync).value();
    if (!watch->user_faults_only()) return kNotLimited;
    const auto ability = SystemWriteWatches().abilities()[1];
    if (!ability.usable || !ability.user_faults_only) return 1;
    if (ability.note.find("vm.unprivileged_userfaultfd is 0") == ability.note.npos) return 2;
    watch->watch(memory.all()).value();
    watch->arm(memory.all()).value();
    if (read_into(memory.at(0)) != EFAULT) return 3;
    FaultThread faults(*watch);
    store(memory.at(0), 1);
    if (faults.written(memory) != std::set<std::size_t>{0}) return 4;
    return read_into(memory.at(0)) == 0 ? 0 : 5;  // it is open
  });
  if (status == kNotLimited) GTEST_SKIP() << "vm.unprivileged_userfaultfd is not 0";
  EXPECT_EQ(status, 0);
}

TEST(WriteWatchUsers, another_users_asynchronous_form_notes_all) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  if (!SystemWriteWatches().open(WatchForm::userfaultfd_async)) GTEST_SKIP() << "no userfaultfd";
  EXPECT_EQ(as_nobody([] {
              TestMemory memory(4);
              auto watch = SystemWriteWatches().open(WatchForm::userfaultfd_async).value();
              if (watch->user_faults_only() || !SystemWriteWatches().abilities()[0].usable) return 1;
              watch->watch(memory.all()).value();
              watch->arm(memory.all()).value();
              if (read_into(memory.at(2)) != 0) return 2;
              std::vector<PageRange> written;
              watch->take_written(memory.all(), written).value();
              return written == std::vector{memory.pages(2, 1)} ? 0 : 3;
            }),
            0);
}

TEST_P(Synchronous, a_read_into_armed_memory_is_told_or_refused) {
  TestMemory& memory = make(1);
  watch_all(memory);
  if (watch_->user_faults_only()) {
    EXPECT_EQ(read_into(memory.at(0)), EFAULT);
    return;
  }
  FaultThread faults(*watch_);
  EXPECT_EQ(read_into(memory.at(0)), 0);
  EXPECT_EQ(faults.written(memory), std::set<std::size_t>{0});
}

TEST(WriteWatchAbilities, a_refusal_is_named) {
  for (const int error : {EPERM, ENOSYS}) {
    EXPECT_EQ(in_child([error] {
                if (::geteuid() == 0 && !become_nobody()) return 1;  // who may not open the device
                if (!refuse_userfaultfd(error)) return 2;
                const auto all = SystemWriteWatches().abilities();
                const std::string name = error == EPERM ? "EPERM" : "ENOSYS";
                for (const int i : {0, 1}) {
                  if (all[i].usable || all[i].note.find(name) == std::string::npos) return 4 + i;
                }
                return all[2].usable && all[2].form == WatchForm::mprotect ? 0 : 6;
              }),
              0);
  }
}

void exit_with_7(int, siginfo_t*, void*) { std::_Exit(7); }

void handle_segv(void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = handler;
  ::sigaction(SIGSEGV, &action, nullptr);
}

TEST(MprotectWatchSignals, are_passed_on_to_the_handler_before) {
  const auto write_elsewhere = [](bool handled) {
    return in_child([handled] {
      if (handled) {
        handle_segv(exit_with_7);
      } else {
        ::signal(SIGSEGV, SIG_DFL);  // not a sanitizer's
      }
      TestMemory memory(2);
      auto watch = SystemWriteWatches().open(WatchForm::mprotect).value();
      watch->watch(memory.pages(0, 1)).value();
      ::mprotect(memory.at(1), kBlock, PROT_READ);
      store(memory.at(1), 1);
      return 1;
    });
  };
  EXPECT_EQ(write_elsewhere(true), 7);
  EXPECT_EQ(write_elsewhere(false), 1000 + SIGSEGV);
}

TEST(MprotectWatchSignals, a_handler_that_replaced_ours_is_named) {
  EXPECT_EQ(in_child([] {
              TestMemory memory(1);
              auto watch = SystemWriteWatches().open(WatchForm::mprotect).value();
              watch->watch(memory.all()).value();
              handle_segv(exit_with_7);
              const auto armed = watch->arm(memory.all());
              return !armed && armed.error().code == Errc::unsupported ? 0 : 1;
            }),
            0);
}

TEST(MprotectWatch, memory_that_is_gone_is_named_when_it_is_armed) {
  TestMemory memory(4);
  auto watch = SystemWriteWatches().open(WatchForm::mprotect).value();
  watch->watch(memory.all()).value();
  ::munmap(memory.at(3), kBlock);
  const auto armed = watch->arm(memory.all());
  ASSERT_FALSE(armed);
  EXPECT_EQ(armed.error().code, Errc::invalid_argument);
  EXPECT_NE(armed.error().message.find("no longer mapped"), std::string::npos);
  watch->forget(memory.all());
  store(memory.at(0), 1);
}

std::string name_of_test(const ::testing::TestParamInfo<WatchForm>& info) {
  constexpr std::array kNames{"userfaultfd_async", "userfaultfd_sync", "mprotect"};
  return kNames[static_cast<std::size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(, SystemWriteWatch, ::testing::ValuesIn(kWatchForms), name_of_test);
INSTANTIATE_TEST_SUITE_P(, Userfaultfd, ::testing::Values(WatchForm::userfaultfd_async, WatchForm::userfaultfd_sync),
                         name_of_test);
INSTANTIATE_TEST_SUITE_P(, Synchronous, ::testing::Values(WatchForm::userfaultfd_sync, WatchForm::mprotect),
                         name_of_test);

}  // namespace
}  // namespace ebb::os::testing
