// The contract of WriteWatch, for every form that this machine has and for their double.
#include "os/write_watch.hpp"

#include <barrier>
#include <cerrno>
#include <mutex>
#include <optional>
#include <random>

#include "tests/doubles/fake_write_watch.hpp"
#include "tests/long_form.hpp"
#include "tests/os/watched_memory.hpp"

namespace ebb::os::testing {
namespace {

using Kind = WatchEvent::Kind;
constexpr std::chrono::milliseconds kLong{60000}, kNow{0};

struct Subject {
  WatchForm form;
  bool doubled;
};

class WriteWatchContract : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    WriteWatches* watches = &real_;
    if (GetParam().doubled) watches = &fake_.emplace();
    auto opened = watches->open(GetParam().form);
    if (!opened) GTEST_SKIP() << opened.error().message;
    watch_ = std::move(*opened);
    EXPECT_EQ(watch_->form(), GetParam().form);
  }
  void write(std::byte* at, int value) {
    if (fake_) fake_->write_and_wait(at);
    store(at, value);
  }
  void watch_all(const TestMemory& memory) {
    watch_->watch(memory.all()).value();
    watch_->arm(memory.all()).value();
  }
  bool async() const { return watch_->form() == WatchForm::userfaultfd_async; }
  std::vector<PageRange> taken(PageRange range) {
    std::vector<PageRange> out;
    watch_->take_written(range, out).value();
    return out;
  }
  // Threads write random pages between cuts; what is reported at each cut is what was written since the one before.
  void write_at_random(std::uint32_t seed, MemoryKind kind, bool touched);

  SystemWriteWatches real_;
  std::optional<doubles::FakeWriteWatches> fake_;
  // Until the watch is gone: nobody would take note of it.
  TestMemory& make(std::size_t pages, MemoryKind kind = MemoryKind::small_pages) {
    return *memory_.emplace_back(std::make_unique<TestMemory>(pages, kind));
  }
  std::vector<std::unique_ptr<TestMemory>> memory_;
  std::unique_ptr<WriteWatch> watch_;
};

void WriteWatchContract::write_at_random(std::uint32_t seed, MemoryKind kind, bool touched) {
  constexpr std::size_t kPages = 1100, kThreads = 4;
  const int cuts = long_form() ? 200 : 12;
  TestMemory& memory = make(kPages, kind);
  if (touched) memory.touch();
  std::optional<FaultThread> faults;
  if (!async()) faults.emplace(*watch_);
  const PageRange watched = memory.pages(3, kPages - 5);  // not whole huge pages
  watch_->watch(watched).value();
  watch_->arm(watched).value();
  std::array<std::vector<std::size_t>, kThreads> written;
  std::barrier step(kThreads + 1);
  std::vector<std::thread> writers;
  for (std::size_t t = 0; t < kThreads; ++t) {
    writers.emplace_back([&, t] {
      std::mt19937 random(seed * 31 + static_cast<std::uint32_t>(t));
      for (int cut = 0; cut < cuts; ++cut) {
        step.arrive_and_wait();
        written[t].clear();
        const std::size_t count = random() % 3 ? random() % 40 : random() % 400;
        for (std::size_t i = 0; i < count; ++i) written[t].push_back(random() % kPages);
        for (const std::size_t page : written[t]) write(memory.at(page) + random() % kBlock, cut);
        step.arrive_and_wait();
      }
    });
  }
  for (int cut = 0; cut < cuts; ++cut) {
    step.arrive_and_wait();
    step.arrive_and_wait();
    std::set<std::size_t> expected;
    for (const auto& pages : written) {
      for (const std::size_t page : pages) {
        if (page >= 3 && page < kPages - 2) expected.insert(page);
      }
    }
    if (async()) {
      EXPECT_EQ(memory.pages_in(taken(watched)), expected) << "cut " << cut << ", seed " << seed;
    } else {
      EXPECT_EQ(faults->written(memory), expected) << "cut " << cut << ", seed " << seed;
      faults->clear();
      watch_->arm(watched).value();
    }
  }
  for (std::thread& writer : writers) writer.join();
  watch_->forget(watched);
}

TEST_P(WriteWatchContract, what_is_reported_is_what_was_written) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) write_at_random(seed, MemoryKind::small_pages, seed == 2);
}
TEST_P(WriteWatchContract, in_huge_pages) {
  write_at_random(4, MemoryKind::huge_pages, true);
  write_at_random(5, MemoryKind::huge_pages, false);
}
TEST_P(WriteWatchContract, in_shared_memory) {
  write_at_random(6, MemoryKind::shared, true);
  write_at_random(7, MemoryKind::memory_file, false);
}

TEST_P(WriteWatchContract, only_armed_pages_are_reported) {
  TestMemory& memory = make(8);
  std::optional<FaultThread> faults;
  if (!async()) faults.emplace(*watch_);
  const auto reported = [&](PageRange range) {
    return async() ? memory.pages_in(taken(range)) : faults->written(memory);
  };
  watch_->watch(memory.all()).value();
  watch_->arm(memory.pages(2, 3)).value();
  EXPECT_EQ(memory.at(2)[0], std::byte{0});  // a read is no write, and brings a page that is armed
  write(memory.at(2), 1);
  write(memory.at(6), 1);
  EXPECT_EQ(reported(memory.pages(2, 3)), std::set<std::size_t>{2});
  watch_->disarm(memory.pages(2, 3)).value();
  if (faults) faults->clear();
  write(memory.at(3), 1);
  if (faults) {
    EXPECT_EQ(faults->events(), std::vector<WatchEvent>{});
  }
  watch_->forget(memory.all());
  EXPECT_EQ(watch_->arm(memory.pages(0, 1)).error().code, Errc::invalid_argument);
  write(memory.at(4), 1);
}

TEST_P(WriteWatchContract, what_cannot_be_watched_is_refused) {
  TestMemory& memory = make(4);
  for (const PageRange wrong : {PageRange{memory.at(0) + 1, kBlock}, PageRange{memory.at(0), kBlock - 1},
                                PageRange{memory.at(0), 0}, PageRange{memory.at(0), SIZE_MAX - kBlock + 1}}) {
    EXPECT_EQ(watch_->watch(wrong).error().code, Errc::invalid_argument);
  }
  watch_->watch(memory.pages(0, 2)).value();
  EXPECT_EQ(watch_->arm({memory.at(0), 1}).error().code, Errc::invalid_argument);
  EXPECT_EQ(watch_->arm(memory.pages(2, 1)).error().code, Errc::invalid_argument);
  EXPECT_EQ(watch_->disarm(memory.pages(2, 1)).error().code, Errc::invalid_argument);
  std::vector<PageRange> out;
  const Errc taken = watch_->take_written(memory.pages(2, 1), out).error().code;
  EXPECT_EQ(taken, async() ? Errc::invalid_argument : Errc::unsupported);
}

TEST_P(WriteWatchContract, next_returns_when_its_time_is_over_and_when_it_is_rung) {
  EXPECT_EQ(watch_->next(kNow).value(), WatchEvent{});
  EXPECT_EQ(watch_->next(std::chrono::milliseconds(2)).value(), WatchEvent{});
  watch_->ring();
  watch_->ring();
  EXPECT_EQ(watch_->next(kNow).value(), WatchEvent{Kind::rung});
  EXPECT_EQ(watch_->next(kNow).value(), WatchEvent{});
  std::thread other([&] { watch_->ring(); });
  EXPECT_EQ(watch_->next(kLong).value(), WatchEvent{Kind::rung});
  other.join();
}

TEST_P(WriteWatchContract, a_writer_sleeps_until_its_page_is_disarmed) {
  if (async()) GTEST_SKIP() << "no writer sleeps";
  TestMemory& memory = make(4);
  memory.touch();
  watch_all(memory);
  // Memory goes on to be disarmed, forgotten, and left by the watch.
  for (int way = 0; way < 3; ++way) {
    std::atomic<bool> written{false};
    std::mutex held;
    std::thread writer([&] {
      std::lock_guard lock(held);  // which the fault thread does not need
      write(memory.at(1) + 5, 2 + way);
      written.store(true);
    });
    EXPECT_EQ(watch_->next(kLong).value(), (WatchEvent{Kind::written, memory.pages(1, 1)}));
    std::byte copy[kBlock];
    std::memcpy(copy, memory.at(1), kBlock);
    EXPECT_EQ(copy[5], static_cast<std::byte>(1 + way));
    watch_->disarm(memory.pages(2, 2)).value();  // others
    EXPECT_EQ(watch_->next(std::chrono::milliseconds(5)).value(), WatchEvent{});
    EXPECT_FALSE(written.load());
    if (way == 0) {
      watch_->disarm(memory.pages(0, 2)).value();
      watch_->disarm(memory.pages(0, 2)).value();
    } else if (way == 1) {
      watch_->forget(memory.all());
    } else {
      watch_.reset();
    }
    writer.join();
    EXPECT_EQ(memory.at(1)[5], static_cast<std::byte>(2 + way));
    if (way == 1) watch_->watch(memory.all()).value();
    if (way < 2) watch_->arm(memory.all()).value();
  }
}

TEST_P(WriteWatchContract, many_writers_of_one_page_all_go_on) {
  if (async()) GTEST_SKIP() << "no writer sleeps";
  TestMemory& memory = make(1);
  watch_->watch(memory.all()).value();
  FaultThread faults(*watch_);
  for (int round = 0; round < 50; ++round) {
    watch_->arm(memory.all()).value();
    std::vector<std::thread> writers;
    for (int t = 0; t < 6; ++t) writers.emplace_back([&, t] { write(memory.at(0) + t, round); });
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(faults.written(memory), std::set<std::size_t>{0});
    faults.clear();
  }
}

TEST_P(WriteWatchContract, taking_loses_no_write_that_comes_meanwhile) {
  if (!async()) GTEST_SKIP() << "synchronous";
  constexpr std::size_t kPages = 64;
  TestMemory& memory = make(kPages);
  watch_all(memory);
  std::array<std::atomic<int>, kPages> begun{};
  std::atomic<bool> ending{false};
  std::vector<std::thread> writers;
  for (std::uint32_t t = 0; t < 2; ++t) {
    writers.emplace_back([&, t] {
      std::mt19937 random(t);
      while (!ending.load()) {
        const std::size_t page = random() % (kPages / 2) * 2 + t;
        begun[page].store(begun[page].load() + 1);
        write(memory.at(page), begun[page].load());
      }
    });
  }
  std::array<int, kPages> known{};  // how often a page was written when it was last taken, at least
  for (int i = 0; i < 2000; ++i) {
    for (const std::size_t page : memory.pages_in(taken(memory.all()))) known[page] = begun[page].load();
  }
  ending.store(true);
  for (std::thread& writer : writers) writer.join();
  const auto last = memory.pages_in(taken(memory.all()));
  for (std::size_t page = 0; page < kPages; ++page) {
    if (!last.contains(page)) {
      EXPECT_LE(begun[page].load(), known[page]) << page;
    }
  }
  EXPECT_EQ(taken(memory.all()), std::vector<PageRange>{});
}

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const WatchForm form : kWatchForms) {
    for (const bool doubled : {false, true}) all.push_back({form, doubled});
  }
  return all;
}
std::string name_of_test(const ::testing::TestParamInfo<Subject>& info) {
  constexpr std::array kNames{"userfaultfd_async", "userfaultfd_sync", "mprotect"};
  return std::string(info.param.doubled ? "double_of_" : "") + kNames[static_cast<std::size_t>(info.param.form)];
}
INSTANTIATE_TEST_SUITE_P(, WriteWatchContract, ::testing::ValuesIn(subjects()), name_of_test);

class FakeWriteWatchTest : public ::testing::Test {
 protected:
  using Fault = doubles::FakeWriteWatches::Fault;
  WatchEvent told(std::size_t page) { return {Kind::written, memory_.pages(page, 1)}; }
  doubles::FakeWriteWatches fake_;
  TestMemory memory_{4};
  std::unique_ptr<WriteWatch> watch_ = fake_.open(WatchForm::userfaultfd_sync).value();
};

TEST_F(FakeWriteWatchTest, faults_come_late_twice_or_never) {
  watch_->watch(memory_.all()).value();
  watch_->arm(memory_.all()).value();
  EXPECT_FALSE(fake_.write(memory_.at(0), Fault::late));
  EXPECT_FALSE(fake_.write(memory_.at(1), Fault::doubled));
  EXPECT_FALSE(fake_.write(memory_.at(2), Fault::lost));
  EXPECT_EQ(watch_->next(kNow).value(), told(1));
  EXPECT_EQ(watch_->next(kNow).value(), told(1));
  EXPECT_EQ(watch_->next(kNow).value(), WatchEvent{});
  watch_->disarm(memory_.pages(0, 2)).value();
  EXPECT_EQ(fake_.sleeping(memory_.at(0)), 0u);
  EXPECT_EQ(fake_.sleeping(memory_.at(2)), 1u);
  fake_.tell_late();
  EXPECT_EQ(watch_->next(kNow).value(), told(0));
  watch_.reset();
  EXPECT_EQ(fake_.sleeping(memory_.at(2)), 0u);
}

TEST_F(FakeWriteWatchTest, calls_and_forms_are_refused_on_command) {
  fake_.forbid(WatchForm::userfaultfd_async, ENOSYS);
  fake_.forbid(WatchForm::userfaultfd_sync, EPERM);
  const auto abilities = fake_.abilities();
  EXPECT_FALSE(abilities[0].usable || abilities[1].usable);
  EXPECT_TRUE(abilities[2].usable && abilities[2].user_faults_only);
  EXPECT_EQ(fake_.open(WatchForm::userfaultfd_async).error().code, Errc::unsupported);
  EXPECT_EQ(fake_.open(WatchForm::userfaultfd_sync).error().code, Errc::not_permitted);
  fake_.faults().fail_nth(doubles::WatchCall::arm, 1, ENOMEM);
  watch_->watch(memory_.all()).value();
  EXPECT_EQ(watch_->arm(memory_.all()).error().code, Errc::out_of_memory);
  EXPECT_TRUE(fake_.write(memory_.at(0)));
}

TEST_F(FakeWriteWatchTest, memory_goes_away_on_command) {
  watch_->watch(memory_.all()).value();
  watch_->arm(memory_.all()).value();
  fake_.remove(memory_.pages(0, 1));
  fake_.unmap(memory_.pages(1, 1));
  fake_.remap(memory_.pages(2, 1));
  EXPECT_EQ(watch_->next(kNow).value(), (WatchEvent{Kind::removed, memory_.pages(0, 1)}));
  EXPECT_EQ(watch_->next(kNow).value(), (WatchEvent{Kind::unmapped, memory_.pages(1, 1)}));
  EXPECT_EQ(watch_->next(kNow).value(), (WatchEvent{Kind::remapped, memory_.pages(2, 1)}));
  watch_->arm(memory_.pages(0, 1)).value();
  EXPECT_FALSE(watch_->arm(memory_.pages(1, 1)));
}

}  // namespace
}  // namespace ebb::os::testing
