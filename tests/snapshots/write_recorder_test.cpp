// What a recorder sees of a program's writes, and that writers go on when its watch fails.
#include "snapshots/write_recorder.hpp"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "tests/doubles/fake_write_watch.hpp"
#include "tests/os/watched_memory.hpp"

namespace ebb::snapshots {
namespace {

using doubles::FakeWriteWatches;
using os::WatchForm;
using os::testing::TestMemory;

void write(const TestMemory& memory, std::size_t page) {
  std::atomic_ref(*memory.at(page)).store(std::byte{7}, std::memory_order_relaxed);  // by several threads at once
}

std::vector<std::uint32_t> pages(const std::vector<WriteRecorder::Write>& writes) {
  std::vector<std::uint32_t> out;
  for (const auto& write : writes) out.push_back(write.page);
  return out;
}

TEST(WriteRecorder, has_the_first_writes_of_both_intervals_in_order) {
  os::SystemWriteWatches watches;
  const TestMemory memory(64);
  auto recorder = WriteRecorder::start(watches, memory.all()).value();
  for (const std::size_t page : {9, 3, 9, 60}) write(memory, page);
  recorder->cut().value();
  for (const std::size_t page : {60, 1, 60}) write(memory, page);
  const auto writes = recorder->stop().value();
  EXPECT_EQ(pages(writes), (std::vector<std::uint32_t>{9, 3, 60, 60, 1}));
  EXPECT_LE(writes[2].nanoseconds, 0);
  EXPECT_GE(writes[3].nanoseconds, 0);
  EXPECT_TRUE(std::ranges::is_sorted(writes, {}, &WriteRecorder::Write::nanoseconds));
  write(memory, 5);  // nobody watches
}

TEST(WriteRecorder, sees_each_page_once_whoever_writes) {
  os::SystemWriteWatches watches;
  const TestMemory memory(256);
  auto recorder = WriteRecorder::start(watches, memory.all()).value();
  recorder->cut().value();
  std::vector<std::jthread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&memory] {
      for (std::size_t page = 0; page < 256; ++page) write(memory, page);
    });
  }
  writers.clear();
  auto found = pages(recorder->stop().value());
  std::ranges::sort(found);
  EXPECT_EQ(found.size(), 256);
  EXPECT_EQ(std::ranges::adjacent_find(found), found.end());
}

TEST(WriteRecorder, lets_writers_go_on_when_a_page_cannot_be_disarmed) {
  FakeWriteWatches watches;
  const TestMemory memory(4);
  auto recorder = WriteRecorder::start(watches, memory.all()).value();
  recorder->cut().value();
  watches.faults().fail_nth(doubles::WatchCall::disarm, 1, ENOMEM);
  watches.write_and_wait(memory.at(2));
  EXPECT_FALSE(watches.is_armed(memory.at(0)));
  EXPECT_EQ(recorder->stop().error().code, Errc::out_of_memory);
}

TEST(WriteRecorder, names_what_it_cannot_do) {
  FakeWriteWatches watches;
  const TestMemory memory(4);
  EXPECT_EQ(WriteRecorder::start(watches, memory.all()).value()->stop().error().code, Errc::invalid_argument);
  auto recorder = WriteRecorder::start(watches, memory.all()).value();
  recorder->cut().value();
  EXPECT_EQ(recorder->cut().error().code, Errc::invalid_argument);
  watches.forbid(WatchForm::userfaultfd_sync, EPERM);
  EXPECT_TRUE(WriteRecorder::start(watches, TestMemory(1).all()));
  watches.forbid(WatchForm::mprotect, EPERM);
  EXPECT_FALSE(WriteRecorder::start(watches, memory.all()));
}

}  // namespace
}  // namespace ebb::snapshots
