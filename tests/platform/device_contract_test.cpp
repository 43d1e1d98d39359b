// What every Device keeps to.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>

#include "platform/testing/fake_device.hpp"
#include "tests/platform/test_files.hpp"

namespace ebb::platform {
namespace {

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Device>()> make;
};

class DeviceContract : public ::testing::TestWithParam<Kind> {
 protected:
  StreamId stream() { return device_->create_stream().value(); }
  EventId event() { return device_->create_event().value(); }
  void copy(StreamId on, void* to, const void* from, std::size_t bytes) {
    device_->copy(on, to, from, bytes).value();
  }
  std::unique_ptr<Device> device_ = GetParam().make();
};

TEST_P(DeviceContract, allocates_aligned_memory_and_refuses_by_name) {
  std::byte* memory = device_->allocate(3 << 20).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kBlock, 0u);
  memory[0] = memory[(3 << 20) - 1] = std::byte{1};
  device_->free(memory, 3 << 20);
  const Result<std::byte*> refused = device_->allocate(std::size_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

TEST_P(DeviceContract, a_copy_is_there_when_its_event_is_done) {
  const StreamId on = stream();
  const EventId event = this->event();
  EXPECT_EQ(device_->query(event), EventState::done);  // never recorded
  test::Buffer from(1 << 20), to(1 << 20);
  from.scramble(1);
  copy(on, to.data(), from.data(), from.size());
  device_->record(event, on).value();
  ASSERT_TRUE(device_->wait(event));
  EXPECT_EQ(device_->query(event), EventState::done);
  EXPECT_TRUE(std::ranges::equal(from.first(from.size()), to.first(to.size())));
  device_->destroy_event(event);
  device_->destroy_stream(on);
}

TEST_P(DeviceContract, a_stream_works_in_order) {
  const StreamId on = stream();
  const EventId event = this->event();
  // Each copy's source is the target of the one before it.
  test::Buffer chain(64 * 4096);
  chain.scramble(2);
  const std::vector<std::byte> first(chain.data(), chain.data() + 4096);
  for (int i = 1; i < 64; ++i) copy(on, chain.data() + i * 4096, chain.data() + (i - 1) * 4096, 4096);
  device_->record(event, on).value();
  ASSERT_TRUE(device_->wait(event));
  EXPECT_TRUE(std::equal(first.begin(), first.end(), chain.data() + 63 * 4096));
}

TEST_P(DeviceContract, streams_are_ordered_by_stream_wait) {
  const StreamId a = stream(), b = stream();
  const EventId there = event(), back = event();
  test::Buffer from(4096), middle(4096), to(4096);
  for (int round = 0; round < 50; ++round) {
    from.scramble(static_cast<std::uint64_t>(round));
    copy(a, middle.data(), from.data(), 4096);
    device_->record(there, a).value();
    device_->stream_wait(b, there).value();
    copy(b, to.data(), middle.data(), 4096);
    device_->record(back, b).value();
    ASSERT_TRUE(device_->wait(back));
    ASSERT_TRUE(std::ranges::equal(from.first(4096), to.first(4096))) << round;
  }
}

TEST_P(DeviceContract, the_inline_stream_copies_at_once) {
  const EventId event = this->event();
  test::Buffer from(4096), to(4096);
  from.scramble(3);
  copy(kInlineStream, to.data(), from.data(), 4096);
  EXPECT_TRUE(std::ranges::equal(from.first(4096), to.first(4096)));
  device_->record(event, kInlineStream).value();
  EXPECT_EQ(device_->query(event), EventState::done);

  // Waiting on it is the host waiting.
  const StreamId on = stream();
  from.scramble(4);
  copy(on, to.data(), from.data(), 4096);
  device_->record(event, on).value();
  device_->stream_wait(kInlineStream, event).value();
  EXPECT_TRUE(std::ranges::equal(from.first(4096), to.first(4096)));
}

TEST_P(DeviceContract, empty_copies_are_copies) {
  const StreamId on = stream();
  const EventId event = this->event();
  copy(on, nullptr, nullptr, 0);
  copy(kInlineStream, nullptr, nullptr, 0);
  device_->record(event, on).value();
  EXPECT_TRUE(device_->wait(event));
}

TEST_P(DeviceContract, wait_any_returns_for_the_first_and_when_interrupted) {
  const StreamId on = stream();
  const EventId event = this->event();
  test::Buffer from(4096), to(4096);
  copy(on, to.data(), from.data(), 4096);
  device_->record(event, on).value();
  while (device_->query(event) == EventState::pending) device_->wait_any({&event, 1}, std::chrono::hours(1));
  device_->interrupt();
  device_->wait_any({}, std::chrono::hours(1));  // the interrupt before it ends it
  std::thread other([&] { device_->interrupt(); });
  device_->wait_any({}, std::chrono::hours(1));
  other.join();
}

TEST_P(DeviceContract, destroying_a_stream_ends_its_work_first) {
  test::Buffer from(1 << 20), to(1 << 20);
  from.scramble(5);
  const StreamId on = stream();
  for (int i = 0; i < 8; ++i) copy(on, to.data() + i * 4096, from.data() + i * 4096, 4096);
  device_->destroy_stream(on);
  EXPECT_TRUE(std::ranges::equal(from.first(8 * 4096), to.first(8 * 4096)));
}

TEST_P(DeviceContract, several_threads_use_it_at_once) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const StreamId on = stream();
      const EventId event = this->event();
      test::Buffer from(16384), to(16384);
      for (std::uint64_t round = 0; round < 40; ++round) {
        from.scramble(t * 1000 + round);
        copy(on, to.data(), from.data(), from.size());
        device_->record(event, on).value();
        device_->wait(event).value();
        right += std::ranges::equal(from.first(from.size()), to.first(to.size()));
      }
      device_->destroy_event(event);
      device_->destroy_stream(on);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

TEST_P(DeviceContract, work_for_what_does_not_exist_throws) {
  EXPECT_ANY_THROW(static_cast<void>(device_->copy(99, nullptr, nullptr, 0)));
  EXPECT_ANY_THROW(static_cast<void>(device_->record(99, kInlineStream)));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceContract,
                         ::testing::Values(Kind{"host", [] { return make_host_device(); }},
                                           Kind{"fake",
                                                [] {
                                                  return std::make_unique<testing::FakeDevice>(
                                                      testing::FakeDevice::Options{.seed = 11});
                                                }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb::platform
