// That the double is as late as it says: each test is a wait left out, and how it shows.
#include "tests/doubles/fake_device.hpp"

#include <gtest/gtest.h>

#include "os/pages.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::device::testing {
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
  doubles::FakeDevice device_{{.seed = 3, .automatic = false}};
  StreamId a_ = device_.create_stream().value(), b_ = device_.create_stream().value();
  EventId event_ = device_.create_event().value();
  test::Buffer one_{kBytes, std::byte{1}}, two_{kBytes, std::byte{2}}, three_{kBytes, std::byte{3}};
};

TEST_F(FakeDeviceTest, a_target_used_before_its_copy_ended_is_poison) {
  copy(a_, two_, one_);
  device_.record(event_, a_).value();
  EXPECT_EQ(device_.unfinished(), 1u);
  EXPECT_EQ(device_.query(event_), EventState::pending);
  EXPECT_TRUE(doubles::is_poison(two_.data(), kBytes));
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
  EXPECT_TRUE(doubles::is_poison(three_.data(), kBytes));
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
    doubles::FakeDevice device({.seed = seed, .automatic = false});
    const StreamId a = device.create_stream().value(), b = device.create_stream().value();
    device.copy(a, two_.data(), one_.data(), kBytes).value();
    device.copy(b, three_.data(), one_.data(), kBytes).value();
    device.step();
    second_first += doubles::is_poison(two_.data(), kBytes);
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
  EXPECT_TRUE(doubles::is_poison(one_.data(), kBytes));
  device_.run();
  EXPECT_TRUE(holds(two_, 1));
  EXPECT_TRUE(holds(one_, 3));

  copy(a_, two_, one_);
  copy(b_, one_, three_);  // two streams, unordered: the reader gets poison at least if the writer could start
  ASSERT_TRUE(device_.complete(a_));
  EXPECT_TRUE(doubles::is_poison(two_.data(), kBytes));
  device_.run();
}

TEST_F(FakeDeviceTest, fresh_and_discarded_memory_is_poison) {
  std::byte* memory = device_.allocate(kBytes).value();
  EXPECT_TRUE(doubles::is_poison(memory, kBytes));
  EXPECT_EQ(device_.allocated(), kBytes);
  device_.copy(kInlineStream, memory, one_.data(), kBytes).value();
  device_.discard(memory + 1024, 1024);
  EXPECT_EQ(memory[1023], std::byte{1});
  EXPECT_TRUE(doubles::is_poison(memory + 1024, 1024));
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
    EXPECT_EQ(doubles::is_poison(two_.data(), kBytes), expected == EventState::failed);
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

TEST_F(FakeDeviceTest, what_waits_for_a_failed_event_has_failed) {
  const EventId second = device_.create_event().value();
  copy(b_, three_, one_);  // the wait is queued after it when the event is recorded again
  device_.fail_nth_copy(1);
  copy(a_, two_, one_);
  device_.record(event_, a_).value();
  device_.stream_wait(b_, event_).value();
  device_.record(second, b_).value();
  ASSERT_TRUE(device_.complete(a_));
  EXPECT_EQ(device_.query(event_), EventState::failed);
  device_.record(event_, a_).value();
  EXPECT_EQ(device_.query(event_), EventState::done) << "recorded again, after the failed copy";
  device_.run();
  EXPECT_EQ(device_.query(second), EventState::failed);
  EXPECT_FALSE(device_.wait(second));
  device_.record(second, b_).value();
  EXPECT_EQ(device_.query(second), EventState::done);

  device_.stream_wait(b_, event_).value();
  device_.record(second, b_).value();
  EXPECT_EQ(device_.query(second), EventState::done) << "it waited for a record that did not fail";
}

TEST_F(FakeDeviceTest, every_kind_of_call_can_be_refused_once) {
  const auto refused = [](const auto& result) { return !result && result.error().code == Errc::io_error; };
  device_.refuse_nth_record(2);
  EXPECT_TRUE(device_.record(event_, a_));
  copy(a_, two_, one_);
  EXPECT_TRUE(refused(device_.record(event_, a_)));
  EXPECT_EQ(device_.query(event_), EventState::done) << "it still refers to its earlier record";
  EXPECT_TRUE(device_.record(event_, a_));
  EXPECT_EQ(device_.query(event_), EventState::pending);

  device_.refuse_nth_event(1);
  EXPECT_TRUE(refused(device_.create_event()));
  EXPECT_TRUE(device_.create_event());

  device_.refuse_nth_synchronize(1);
  EXPECT_TRUE(refused(device_.synchronize())) << "and without waiting: nothing would complete";
  device_.run();
  EXPECT_TRUE(device_.synchronize());
}

class FakeGpuTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kPage = 4096;
  FakeGpuTest() {
    os::populate(host_, 8 * kPage).value();
    there_ = device_.allocate(8 * kPage).value();
  }
  ~FakeGpuTest() override { os::unmap_pages(host_, 8 * kPage); }
  // Whether a copy is refused, and as it should be.
  bool refused(void* to, const void* from, std::size_t bytes, const std::string& why) {
    const std::size_t before = device_.unfinished();
    const Result<void> copied = device_.copy(on_, to, from, bytes);
    const bool as_it_should = !copied && copied.error().code == Errc::io_error &&
                              copied.error().message.find("invalid argument") != std::string::npos &&
                              copied.error().message.find(why) != std::string::npos && device_.unfinished() == before;
    device_.run();
    return as_it_should;
  }
  bool copied(void* to, const void* from, std::size_t bytes) {
    const bool done = static_cast<bool>(device_.copy(on_, to, from, bytes));
    device_.run();
    return done;
  }

  doubles::FakeDevice device_{{.seed = 3, .discrete = true, .automatic = false}};
  StreamId on_ = device_.create_stream().value();
  std::byte* host_ = os::map_pages(8 * kPage).value();
  std::byte* there_ = nullptr;
};

TEST_F(FakeGpuTest, copies_that_cross_pinned_borders_are_refused) {
  device_.pin(host_ + 2 * kPage, 2 * kPage).value();
  device_.pin(host_ + 4 * kPage, kPage).value();
  EXPECT_EQ(device_.pinned(), 3 * kPage);
  const std::byte kept = there_[0] = std::byte{7};
  EXPECT_TRUE(refused(there_, host_, 2 * kPage + 1, "source, it comes into a pinned piece"));
  EXPECT_TRUE(refused(there_, host_ + 3 * kPage, 2 * kPage, "source, it leaves the pinned piece"));
  EXPECT_TRUE(refused(there_, host_ + 4 * kPage, kPage + 1, "source, it leaves the pinned piece"));
  EXPECT_TRUE(refused(host_ + 3 * kPage, there_, kPage + 1, "target, it leaves the pinned piece"));
  EXPECT_EQ(there_[0], kept) << "nothing of a refused copy happens";
  EXPECT_TRUE(copied(there_, host_, 2 * kPage));
  EXPECT_TRUE(copied(there_, host_ + 2 * kPage, 2 * kPage));
  EXPECT_TRUE(copied(host_ + 4 * kPage, there_, kPage));
  EXPECT_TRUE(copied(there_, host_ + 5 * kPage, 3 * kPage));
  device_.unpin(host_ + 2 * kPage, 2 * kPage);
  EXPECT_TRUE(copied(there_, host_, 4 * kPage));
  EXPECT_TRUE(refused(there_, host_, 4 * kPage + 1, "comes into"));
  device_.unpin(host_ + 4 * kPage, kPage);
  EXPECT_TRUE(copied(there_, host_, 8 * kPage));
  EXPECT_EQ(device_.pinned(), 0u);
  EXPECT_TRUE(device_.violations().empty());
}

TEST_F(FakeGpuTest, what_allocate_host_gives_is_one_pinned_piece) {
  std::byte* pinned = device_.allocate_host(3 * kPage).value();
  EXPECT_EQ(device_.pinned(), 3 * kPage);
  EXPECT_TRUE(copied(there_, pinned, 3 * kPage));
  EXPECT_TRUE(refused(there_, pinned + kPage, 3 * kPage, "leaves the pinned piece"));
  device_.free_host(pinned, 3 * kPage);
  EXPECT_EQ(device_.pinned(), 0u);
  EXPECT_TRUE(device_.violations().empty());
}

TEST_F(FakeGpuTest, copies_on_reserved_memory_that_is_not_mapped_are_refused) {
  std::byte* range = device_.reserve(4 * kPage).value();
  EXPECT_EQ(device_.reserved(), 4 * kPage);
  EXPECT_EQ(device_.allocated(), 8 * kPage);
  EXPECT_TRUE(refused(range, host_, 1, "only the first 0 are mapped"));
  device_.map(range, 0, 2 * kPage).value();
  EXPECT_EQ(device_.allocated(), 10 * kPage);
  EXPECT_TRUE(doubles::is_poison(range, 2 * kPage));
  EXPECT_TRUE(copied(range, host_, 2 * kPage));
  EXPECT_TRUE(refused(range, host_, 2 * kPage + 1, "target, of a reserved range of 16384 bytes only the first 8192"));
  EXPECT_TRUE(refused(host_, range + 3 * kPage, 1, "source, of a reserved range"));
  device_.discard(range, 3 * kPage);
  EXPECT_EQ(device_.violations().size(), 1u);
  EXPECT_FALSE(doubles::is_poison(range, 2 * kPage));
  device_.unreserve(range, 4 * kPage);
  EXPECT_EQ(device_.reserved(), 0u);
  EXPECT_EQ(device_.allocated(), 8 * kPage);
}

TEST_F(FakeGpuTest, pieces_that_do_not_follow_one_another_throw) {
  std::byte* range = device_.reserve(4 * kPage + 1).value();
  const auto map = [&](std::size_t at, std::size_t bytes) { static_cast<void>(device_.map(range, at, bytes)); };
  EXPECT_THROW(map(kPage, kPage), std::logic_error) << "a gap";
  EXPECT_THROW(map(0, 100), std::logic_error) << "no granule";
  EXPECT_THROW(map(0, 0), std::logic_error);
  EXPECT_THROW(map(0, 5 * kPage), std::logic_error) << "beyond the range";
  EXPECT_THROW(static_cast<void>(device_.map(host_, 0, kPage)), std::logic_error) << "no range";
  map(0, kPage);
  EXPECT_THROW(map(0, kPage), std::logic_error) << "mapped already";
  map(kPage, 3 * kPage + 1);
  EXPECT_TRUE(copied(range, host_, 4 * kPage + 1));
  device_.unreserve(range, 4 * kPage + 1);
}

TEST_F(FakeGpuTest, maps_and_pins_fail_on_command_and_beyond_a_limit) {
  const auto no_memory = [](const Result<void>& made) { return !made && made.error().code == Errc::out_of_memory; };
  std::byte* range = device_.reserve(4 * kPage).value();
  device_.fail_nth_map(2);
  EXPECT_TRUE(device_.map(range, 0, kPage));
  EXPECT_TRUE(no_memory(device_.map(range, kPage, kPage)));
  EXPECT_TRUE(refused(range, host_, 2 * kPage, "only the first 4096")) << "nothing of that piece is mapped";
  EXPECT_TRUE(device_.map(range, kPage, kPage));
  device_.limit_mapped(3 * kPage);
  EXPECT_TRUE(no_memory(device_.map(range, 2 * kPage, 2 * kPage)));
  EXPECT_TRUE(device_.map(range, 2 * kPage, kPage));
  EXPECT_TRUE(no_memory(device_.map(range, 3 * kPage, kPage)));
  device_.limit_mapped(0);
  EXPECT_TRUE(no_memory(device_.map(range, 3 * kPage, kPage)));
  device_.unreserve(range, 4 * kPage);

  device_.fail_nth_pin(2);
  EXPECT_TRUE(device_.pin(host_, kPage));
  EXPECT_TRUE(no_memory(device_.pin(host_ + kPage, kPage)));
  EXPECT_TRUE(copied(there_, host_ + kPage, 2 * kPage)) << "it is not pinned";
  EXPECT_TRUE(device_.pin(host_ + kPage, kPage));
  device_.limit_pinned(3 * kPage);
  EXPECT_TRUE(no_memory(device_.pin(host_ + 2 * kPage, 2 * kPage)));
  EXPECT_TRUE(device_.pin(host_ + 2 * kPage, kPage));
  EXPECT_TRUE(no_memory(device_.pin(host_ + 3 * kPage, kPage)));
  for (const std::size_t page : {0, 1, 2}) device_.unpin(host_ + page * kPage, kPage);
  EXPECT_TRUE(device_.violations().empty());
}

TEST_F(FakeGpuTest, wrong_pins_are_told) {
  auto count = [&, last = std::size_t{0}]() mutable {
    const std::size_t all = device_.violations().size();
    return all - std::exchange(last, all);
  };
  std::byte* absent = os::map_pages(4 * kPage).value();
  os::populate(absent, kPage).value();
  EXPECT_TRUE(device_.pin(absent, kPage));
  EXPECT_EQ(count(), 0u);
  EXPECT_TRUE(device_.pin(absent + kPage, 2 * kPage));
  EXPECT_EQ(count(), 1u) << "pages that are not present";
  EXPECT_FALSE(device_.pin(absent + 2 * kPage, 2 * kPage));
  EXPECT_EQ(count(), 1u) << "pinned already";
  EXPECT_FALSE(device_.pin(host_ + 1, kPage));
  EXPECT_EQ(count(), 1u) << "no whole page";
  device_.unpin(absent, 2 * kPage);
  EXPECT_EQ(count(), 1u) << "no such piece";
  device_.unpin(absent, kPage);
  device_.unpin(absent + kPage, 2 * kPage);
  EXPECT_EQ(count(), 0u);
  os::unmap_pages(absent, 4 * kPage);

  device_.copy(on_, there_, host_, kPage).value();
  EXPECT_TRUE(device_.pin(host_, kPage));
  EXPECT_EQ(count(), 1u) << "a copy from there is in flight";
  device_.unpin(host_, kPage);
  EXPECT_EQ(count(), 1u);
  device_.run();
}

TEST(FakeHostTest, ordinary_memory_has_no_borders_but_reserved_memory_is_not_there) {
  doubles::FakeDevice device({.seed = 3});
  std::byte* host = os::map_pages(2 * 4096).value();
  os::populate(host, 2 * 4096).value();
  device.pin(host, 4096).value();
  std::byte* range = device.reserve(2 * 4096).value();
  device.map(range, 0, 4096).value();
  EXPECT_TRUE(device.copy(kInlineStream, host + 1, range, 4096));
  EXPECT_FALSE(device.copy(kInlineStream, range + 1, host, 4096));
  device.unreserve(range, 2 * 4096);
  device.unpin(host, 4096);
  os::unmap_pages(host, 2 * 4096);
  EXPECT_TRUE(device.violations().empty());
}

TEST(FakeDeviceScheduler, completes_everything_by_itself_and_stands_while_held) {
  doubles::FakeDevice device({.seed = 5});
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
}  // namespace ebb::device::testing
