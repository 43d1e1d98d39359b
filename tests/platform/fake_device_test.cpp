// That the double is as late as it says: each test is a wait left out, and how it shows.
#include <gtest/gtest.h>

#include "platform/testing/fake_device.hpp"
#include "tests/platform/test_files.hpp"

namespace ebb::platform::testing {
namespace {

class FakeDeviceTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 4096;
  void copy(StreamId on, test::Buffer& to, test::Buffer& from) {
    device_.copy(on, to.data(), from.data(), kBytes).value();
  }
  static bool holds(const test::Buffer& buffer, int value) {
    return std::ranges::all_of(buffer.first(kBytes), [&](std::byte b) { return b == std::byte(value); });
  }
  FakeDevice device_{{.seed = 3, .automatic = false}};
  StreamId a_ = device_.create_stream().value(), b_ = device_.create_stream().value();
  EventId event_ = device_.create_event().value();
  test::Buffer one_{kBytes, std::byte{1}}, two_{kBytes, std::byte{2}}, three_{kBytes, std::byte{3}};
};

TEST_F(FakeDeviceTest, a_target_used_before_its_copy_ended_is_poison) {
  copy(a_, two_, one_);
  device_.record(event_, a_).value();
  EXPECT_EQ(device_.unfinished(), 1u);
  EXPECT_EQ(device_.query(event_), EventState::pending);
  EXPECT_TRUE(is_poison(two_.data(), kBytes));
  EXPECT_TRUE(device_.step());
  EXPECT_EQ(device_.query(event_), EventState::done);
  EXPECT_TRUE(holds(two_, 1));
  EXPECT_FALSE(device_.step());
}

TEST_F(FakeDeviceTest, a_source_overwritten_before_its_copy_ended_is_what_arrives) {
  copy(a_, two_, one_);
  std::ranges::fill(one_.first(kBytes), std::byte{9});
  device_.run();
  EXPECT_TRUE(holds(two_, 9));
}

TEST_F(FakeDeviceTest, streams_end_in_any_order_unless_one_waits_for_the_other) {
  copy(a_, two_, one_);
  copy(b_, three_, two_);  // no stream_wait: it may run first, and then reads poison
  ASSERT_TRUE(device_.complete(b_));
  EXPECT_TRUE(is_poison(three_.data(), kBytes));
  device_.run();

  copy(a_, two_, one_);
  device_.record(event_, a_).value();
  device_.stream_wait(b_, event_).value();
  copy(b_, three_, two_);
  EXPECT_FALSE(device_.complete(b_));  // it waits
  ASSERT_TRUE(device_.complete(a_));
  ASSERT_TRUE(device_.complete(b_));
  EXPECT_TRUE(holds(three_, 1));
}

TEST_F(FakeDeviceTest, some_seeds_end_the_second_stream_first) {
  int second_first = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    FakeDevice device({.seed = seed, .automatic = false});
    const StreamId a = device.create_stream().value(), b = device.create_stream().value();
    device.copy(a, two_.data(), one_.data(), kBytes).value();
    device.copy(b, three_.data(), one_.data(), kBytes).value();
    device.step();
    second_first += is_poison(two_.data(), kBytes);
    device.run();
  }
  EXPECT_GT(second_first, 0);
  EXPECT_LT(second_first, 20);
}

TEST_F(FakeDeviceTest, a_target_that_an_earlier_copy_reads_is_poisoned_when_its_own_copy_may_start) {
  copy(a_, two_, one_);
  copy(a_, one_, three_);  // one stream: in order, so right
  EXPECT_TRUE(holds(one_, 1));
  ASSERT_TRUE(device_.step());
  EXPECT_TRUE(is_poison(one_.data(), kBytes));
  device_.run();
  EXPECT_TRUE(holds(two_, 1));
  EXPECT_TRUE(holds(one_, 3));

  copy(a_, two_, one_);
  copy(b_, one_, three_);  // two streams, unordered: the reader gets poison at least if the writer could start
  ASSERT_TRUE(device_.complete(a_));
  EXPECT_TRUE(is_poison(two_.data(), kBytes));
  device_.run();
}

TEST_F(FakeDeviceTest, fresh_and_discarded_memory_is_poison) {
  std::byte* memory = device_.allocate(kBytes).value();
  EXPECT_TRUE(is_poison(memory, kBytes));
  EXPECT_EQ(device_.allocated(), kBytes);
  device_.copy(kInlineStream, memory, one_.data(), kBytes).value();
  device_.discard(memory + 1024, 1024);
  EXPECT_EQ(memory[1023], std::byte{1});
  EXPECT_TRUE(is_poison(memory + 1024, 1024));
  EXPECT_EQ(memory[2048], std::byte{1});
  device_.free(memory, kBytes);
  EXPECT_EQ(device_.allocated(), 0u);
  EXPECT_TRUE(device_.violations().empty());
}

TEST_F(FakeDeviceTest, uses_at_once_that_meet_unfinished_work_are_told) {
  auto count = [&, last = std::size_t{0}]() mutable {
    const std::size_t all = device_.violations().size();
    return all - std::exchange(last, all);
  };
  copy(a_, two_, one_);
  copy(kInlineStream, three_, one_);  // reading a source is no harm
  EXPECT_EQ(count(), 0u);
  copy(kInlineStream, three_, two_);
  EXPECT_EQ(count(), 1u) << "the target was read";
  copy(kInlineStream, one_, three_);
  EXPECT_EQ(count(), 1u) << "the source was overwritten";
  device_.discard(two_.data() + 100, 1);
  EXPECT_EQ(count(), 1u) << "the target was discarded";
  device_.record(event_, a_).value();
  device_.run();
  copy(kInlineStream, three_, two_);
  EXPECT_EQ(count(), 0u);

  copy(a_, two_, one_);
  device_.record(event_, a_).value();
  device_.destroy_event(event_);
  EXPECT_EQ(count(), 1u) << "a pending event was destroyed";
}

TEST_F(FakeDeviceTest, a_failed_copy_leaves_poison_and_fails_one_event) {
  device_.fail_nth_copy(2);
  for (const EventState expected : {EventState::done, EventState::failed, EventState::done}) {
    copy(a_, two_, one_);
    device_.record(event_, a_).value();
    device_.run();
    EXPECT_EQ(device_.query(event_), expected);
    EXPECT_EQ(is_poison(two_.data(), kBytes), expected == EventState::failed);
    EXPECT_EQ(static_cast<bool>(device_.wait(event_)), expected == EventState::done);
  }
  EXPECT_EQ(device_.copies(), 3u);
}

TEST_F(FakeDeviceTest, a_refused_copy_never_starts) {
  device_.refuse_nth_copy(1);
  EXPECT_FALSE(device_.copy(a_, two_.data(), one_.data(), kBytes));
  EXPECT_EQ(device_.unfinished(), 0u);
  EXPECT_TRUE(holds(two_, 2));
}

TEST(FakeDeviceScheduler, completes_everything_by_itself_and_stands_while_held) {
  FakeDevice device({.seed = 5});
  const StreamId on = device.create_stream().value();
  const EventId event = device.create_event().value();
  test::Buffer from(4096, std::byte{1}), to(4096);
  device.hold();
  device.copy(on, to.data(), from.data(), 4096).value();
  device.record(event, on).value();
  device.await_unfinished(1);
  EXPECT_EQ(device.query(event), EventState::pending);
  device.release();
  ASSERT_TRUE(device.wait(event));
  EXPECT_EQ(to.data()[0], std::byte{1});
}

}  // namespace
}  // namespace ebb::platform::testing
