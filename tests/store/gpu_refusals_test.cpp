// A device that refuses to say when work is done, after that work was enqueued: the memory is the work's until it has
// ended, whoever asks for it. On the double of a GPU, whose work waits until it is released.
#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <limits>

#include "support.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

constexpr std::size_t kCopy = 16 * kKiB;  // one copy

enum class Refused { record, event };

class AfterARefusal : public ::testing::TestWithParam<Refused> {
 protected:
  doubles::FakeDevice& device() { return rig.device(); }
  void refuse_to_follow() {
    if (GetParam() == Refused::record)
      device().refuse_nth_record(1);
    else
      device().refuse_nth_event(1);
  }
  /// `call` on a thread of its own while the device is held: it returns only when the device goes on, and then nothing
  /// is under way.
  template <class Call>
  auto stands_until_done(Call call) {
    auto called = std::async(std::launch::async, [&] {
      auto result = call();
      left = device().unfinished();
      return result;
    });
    device().await_unfinished(1);
    EXPECT_EQ(called.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "it must not return yet";
    device().release();
    auto result = called.get();
    EXPECT_EQ(left, 0u) << "work that is not followed is still in flight";
    return result;
  }
  Rig rig{Backend::gpu, {.host = 0, .disk = 0}};  // nothing in the background
  const StreamHandle on = device().create_stream().value();
  std::atomic<std::size_t> left = 0;
};
INSTANTIATE_TEST_SUITE_P(Of, AfterARefusal, ::testing::Values(Refused::record, Refused::event));

TEST_P(AfterARefusal, ACheckpointsRoomIsItsCopysUntilThatHasEnded) {
  Store& store = rig.store();
  const auto field = bytes_of(1, kCopy);
  device().hold();
  refuse_to_follow();
  auto written = stands_until_done([&] { return store.checkpoint(1, {{0, field.data(), kCopy}}, {.stream = on}); });
  EXPECT_TRUE(!written || written->error()) << "and it is reported";
  ASSERT_TRUE(store.checkpoint(1, {{0, field.data(), kCopy}}, {.stream = on})) << "it can be written again";
  ASSERT_TRUE(device().synchronize());
  expect_restored(store, 1, kCopy);
}

TEST_P(AfterARefusal, ARestoresTargetIsItsCopysUntilThatHasEnded) {
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, kCopy));
  ASSERT_TRUE(store.wait("device"));
  std::vector<std::byte> out(kCopy);
  device().hold();
  refuse_to_follow();
  const auto restored =
      stands_until_done([&] { return store.restore(1, {{0, out.data(), kCopy}}, {.keep = true, .stream = on}); });
  static_cast<void>(static_cast<bool>(restored));
  ASSERT_TRUE(store.restore(1, {{0, out.data(), kCopy}}, {.stream = on})) << "it is still there";
  ASSERT_TRUE(device().synchronize());
  EXPECT_EQ(out, bytes_of(1, kCopy));
}

TEST_P(AfterARefusal, AReservationsRoomIsItsStreamsUntilThatHasEnded) {
  Store& store = rig.store();
  const auto field = bytes_of(1, kCopy);
  auto room = store.reserve(1, std::vector<Source>{{0, nullptr, kCopy}});
  ASSERT_TRUE(room);
  device().hold();
  device().copy(on, room->data(), field.data(), kCopy).value();
  refuse_to_follow();
  const auto committed = stands_until_done([&] { return room->commit({.stream = on}); });
  EXPECT_EQ(code_of(committed), Errc::io_error);
  EXPECT_TRUE(store.versions().value().empty()) << "it was not written";
  ASSERT_TRUE(store.reserve(1, std::vector<Source>{{0, nullptr, 256 * kKiB}})) << "all of the cache is free";
}

TEST_P(AfterARefusal, AReservationThatIsHeldKeepsItsRoom) {
  Store& store = rig.store();
  {
    auto room = store.reserve(1, std::vector<Source>{{0, nullptr, kCopy}});
    ASSERT_TRUE(room);
    refuse_to_follow();
    EXPECT_EQ(code_of(room->commit({.stream = on, .hold = true})), Errc::io_error);
    EXPECT_TRUE(store.versions().value().empty()) << "it was not written";
    const auto next = store.reserve(2, std::vector<Source>{{0, nullptr, 256 * kKiB}});
    EXPECT_EQ(code_of(next), Errc::no_space) << "the application still has it";
  }
  ASSERT_TRUE(store.reserve(2, std::vector<Source>{{0, nullptr, 256 * kKiB}})) << "all of the cache is free";
}

TEST_P(AfterARefusal, ALoansMemoryIsItsStreamsUntilThatHasEnded) {
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, kCopy));
  ASSERT_TRUE(store.wait("device"));
  auto loan = store.borrow(1);
  ASSERT_TRUE(loan);
  std::vector<std::byte> seen(kCopy);
  device().hold();
  device().copy(on, seen.data(), loan->data(), kCopy).value();
  refuse_to_follow();
  const auto released = stands_until_done([&] { return loan->release(false, {.stream = on}); });
  EXPECT_EQ(code_of(released), Errc::io_error);
  EXPECT_EQ(seen, bytes_of(1, kCopy));
  ASSERT_TRUE(store.reserve(2, std::vector<Source>{{0, nullptr, 256 * kKiB}})) << "all of the cache is free";
}

/// Records no event from the n-th on. (After one refusal alone the copy is tried again on the same stream, and whoever
/// waits for that waits for both.)
class NoRecords final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  void refuse_from_nth(int n) { left_ = n - 1; }
  void refuse_none() { left_ = kNever; }
  Result<void> record(device::EventId event, device::StreamId stream) override {
    if (left_ != kNever && --left_ < 0) return Error{Errc::io_error, "the device refused a record"};
    return doubles::ForwardDevice::record(event, stream);
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();
  std::atomic<int> left_ = kNever;
};

/// Calls without stream=: their copies are on a stream of the store's own, behind a record on the legacy stream.
class AfterARefusalAtOnce : public AfterARefusal {
 protected:
  AfterARefusalAtOnce() : refusing(std::make_shared<NoRecords>(rig.seams().device)) { rig.seams().device = refusing; }
  const std::shared_ptr<NoRecords> refusing;
};
INSTANTIATE_TEST_SUITE_P(Of, AfterARefusalAtOnce, ::testing::Values(Refused::record));

TEST_P(AfterARefusalAtOnce, ARestoreReturnsWhenItsCopyHasEnded) {
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, kCopy));
  std::vector<std::byte> out(kCopy);
  device().hold();
  refusing->refuse_from_nth(2);
  EXPECT_FALSE(stands_until_done([&] { return store.restore(1, {{0, out.data(), kCopy}}); }));
  refusing->refuse_none();
  expect_restored(store, 1, kCopy);  // nothing was consumed
}

TEST_P(AfterARefusalAtOnce, ACheckpointReturnsWhenItsCopyHasEnded) {
  Store& store = rig.store();
  const auto field = bytes_of(1, kCopy);
  device().hold();
  refusing->refuse_from_nth(2);
  EXPECT_FALSE(stands_until_done([&] { return store.checkpoint(1, {{0, field.data(), kCopy}}); }));
  refusing->refuse_none();
  ASSERT_TRUE(store.checkpoint(1, {{0, field.data(), kCopy}}));
  expect_restored(store, 1, kCopy);
}

/// Reservations and loans that are dropped while the driver waits for nothing: a graph is being captured, say.
class DroppedUnwaited : public ::testing::Test {
 protected:
  DroppedUnwaited() {
    rig.setup().log = [this](std::string_view line) { lost += line.find("is lost until") != line.npos; };
  }
  template <class Lent>
  void drop_unwaited(Lent lent) {
    rig.device().refuse_nth_synchronize(1);
    static_cast<void>(Lent(std::move(lent)));
  }
  static constexpr std::size_t kHalf = 128 * kKiB;  // of the device cache
  std::atomic<int> lost = 0;                        // memory, as the log says
  Rig rig{Backend::gpu};
};

TEST_F(DroppedUnwaited, TheirMemoryIsNotUsedAgainAndTheStoreGoesOn) {
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, kHalf));
  auto loan = store.borrow(1);
  auto room = store.reserve(2, std::vector<Source>{{0, nullptr, kHalf}});
  ASSERT_TRUE(loan && room);
  drop_unwaited(std::move(*loan));
  drop_unwaited(std::move(*room));
  EXPECT_EQ(lost, 2);
  EXPECT_EQ(code_of(store.reserve(3, std::vector<Source>{{0, nullptr, 4096}})), Errc::no_space);
  EXPECT_EQ(code_of(write(store, 2, kCopy)), Errc::version_exists) << "nor is its name";
  for (Version v = 3; v < 40; ++v) ASSERT_TRUE(write(store, v, kCopy));
  for (Version v = 40; v-- > 3;) expect_restored(store, v, kCopy);
  expect_restored(store, 1, kHalf);
  EXPECT_TRUE(store.close());
  EXPECT_EQ(rig.device().allocated(), 0u);
}

TEST_F(DroppedUnwaited, CloseWaitsForTheirWork) {
  Store& store = rig.store();
  const StreamHandle on = rig.device().create_stream().value();
  ASSERT_TRUE(write(store, 1, kHalf));
  ASSERT_TRUE(store.wait("local"));
  auto loan = store.borrow(1);
  ASSERT_TRUE(loan);
  std::vector<std::byte> seen(kHalf);
  rig.device().hold();
  rig.device().copy(on, seen.data(), loan->data(), kHalf).value();
  drop_unwaited(std::move(*loan));
  EXPECT_EQ(lost, 1);
  auto closed = std::async(std::launch::async, [&] { return static_cast<bool>(store.close()); });
  ASSERT_EQ(closed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout) << "its memory is still read";
  rig.device().release();
  EXPECT_TRUE(closed.get());
  EXPECT_EQ(seen, bytes_of(1, kHalf));
}

}  // namespace
}  // namespace ebb::store
