// Memory that was needed sooner than its registration came, and is registered while it is in use.
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "cache/tier_memory.hpp"
#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/hooked_device.hpp"
#include "tests/doubles/manual_clock.hpp"

namespace ebb::cache {
namespace {

using doubles::FakeDevice;

using doubles::HookedDevice;

// Memory that was used before its ticket was called: all of `bytes`, while the queue is shut.
struct Late {
  explicit Late(device::Device& device, std::size_t bytes = 64 << 10) {
    queue.set_open(false);
    MemoryOptions options = watch.options();
    options.queue = std::make_unique<ManualQueue>(queue);
    planner::ProvisionSpec spec;  // pieces of one page, so that a little memory has many
    spec.piece = spec.largest_piece = 4096;
    spec.lead = 0;
    spec.pin_deadline = 1000;
    memory = incremental_host_memory(device, bytes, std::move(options), spec).value();
    memory->want(bytes);
    watch.until_ready(*memory, bytes);
  }
  int parts(std::size_t at, std::size_t bytes) const {
    int count = 0;
    memory->for_each_part(at, bytes, [&](std::size_t, std::size_t) { ++count; });
    return count;
  }
  Watch watch;
  ManualQueue::Shared queue;
  std::unique_ptr<TierMemory> memory;
};

TEST(ProvisionedLate, is_used_unpinned_after_the_deadline_by_the_clock_that_it_is_given) {
  FakeDevice device(discrete());
  const auto clock = std::make_shared<doubles::ManualClock>(7);
  Watch watch;
  ManualQueue::Shared queue;
  queue.set_open(false);
  MemoryOptions options = watch.options();
  options.clock = clock;
  options.queue = std::make_unique<ManualQueue>(queue);
  planner::ProvisionSpec spec;
  spec.piece = spec.largest_piece = 4096;
  spec.pin_deadline = 1'000'000;
  const auto memory = incremental_host_memory(device, 64 << 10, std::move(options), spec).value();
  memory->want(64 << 10);
  while (memory->report().touched < 64 << 10) std::this_thread::yield();
  queue.until_waiting();
  clock->advance(999'999);
  memory->produced(1);
  EXPECT_EQ(memory->ready(), 0u);
  clock->advance(1);
  memory->produced(1);
  EXPECT_EQ(memory->ready(), 64u << 10);
}

// A copy that began before the border was there may cross it; one that begins now is split at it.
TEST(ProvisionedLate, is_registered_where_no_copy_is_under_way) {
  FakeDevice device(discrete());
  Late late(device);
  late.memory->copy_begun(8 << 10, 20 << 10);
  EXPECT_EQ(late.parts(8 << 10, 20 << 10), 1);
  EXPECT_EQ(device.pinned(), 0u);
  late.queue.set_open(true);
  while (device.pinned() < 44 << 10) std::this_thread::yield();
  late.queue.until_taken(20);  // requested again and again
  EXPECT_EQ(device.pinned(), 44u << 10) << "what the copy uses was registered under it";
  late.memory->copy_begun(0, 64 << 10);
  EXPECT_EQ(late.parts(0, 64 << 10), 12) << "11 pages, and what the copy uses";
  late.memory->copy_ended(0, 64 << 10);
  late.memory->copy_ended(8 << 10, 20 << 10);
  while (device.pinned() < 64 << 10) std::this_thread::yield();
  late.memory->stop();
  EXPECT_EQ(late.parts(0, 64 << 10), 16);
  EXPECT_TRUE(device.violations().empty());
}

// As the store's threads do it: announced, split, submitted. The device reports a registration that overlaps with it.
TEST(ProvisionedLate, a_copy_that_begins_meanwhile_stands_until_the_registration_is_over) {
  const auto fake = std::make_shared<FakeDevice>(discrete());
  HookedDevice device(fake);
  Late late(device);
  std::byte* const source = device.allocate(8192).value();
  const device::StreamId stream = device.create_stream().value();
  std::atomic<bool> begun = false;
  std::atomic<int> parts = 0;
  std::thread copying;
  device.before_pin = [&](std::byte* memory, std::size_t) {
    if (memory != late.memory->data() + 4096) return;  // once
    copying = std::thread([&] {
      late.memory->copy_begun(0, 8192);
      begun = true;
      late.memory->for_each_part(0, 8192, [&](std::size_t at, std::size_t bytes) {
        EXPECT_TRUE(device.copy(stream, late.memory->data() + at, source + at, bytes));
        ++parts;
      });
    });
    while (!begun) std::this_thread::yield();
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (parts == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(parts, 0);
  };
  late.queue.set_open(true);
  while (parts < 2) std::this_thread::yield();
  copying.join();
  EXPECT_TRUE(device.synchronize());
  late.memory->copy_ended(0, 8192);
  while (fake->pinned() < 64 << 10) std::this_thread::yield();
  late.memory->stop();
  EXPECT_EQ(parts, 2);
  EXPECT_THAT(fake->violations(), testing::IsEmpty());
}

TEST(ProvisionedLate, that_cannot_be_registered_stays_as_it_is) {
  FakeDevice device(discrete());
  device.limit_pinned(2 * 4096);
  Late late(device);
  late.queue.set_open(true);
  late.watch.until(
      [&] { return late.memory->report().trouble.find("no more can be registered") != std::string::npos; });
  EXPECT_EQ(late.memory->ready(), 64u << 10);
  EXPECT_EQ(late.parts(0, 64 << 10), 3);
  std::byte* const source = device.allocate(64 << 10).value();
  const device::StreamId stream = device.create_stream().value();
  late.memory->copy_begun(0, 64 << 10);
  late.memory->for_each_part(0, 64 << 10, [&](std::size_t at, std::size_t bytes) {
    EXPECT_TRUE(device.copy(stream, late.memory->data() + at, source + at, bytes));
  });
  EXPECT_TRUE(device.synchronize());
  late.memory->copy_ended(0, 64 << 10);
  EXPECT_TRUE(device.violations().empty());
}

TEST(ProvisionedLate, stops_while_it_waits_in_the_queue) {
  FakeDevice device(discrete());
  Late late(device);
  late.queue.until_waiting();
  late.memory->stop();
  EXPECT_EQ(device.pinned(), 0u);
  EXPECT_EQ(late.memory->ready(), 64u << 10);
}

}  // namespace
}  // namespace ebb::cache
