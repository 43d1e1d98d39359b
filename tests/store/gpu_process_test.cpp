// A process that forks, or ends, with work on a GPU under way: on the double of one (tests/python/test_gpu_process.py
// does it on a real one).
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <unistd.h>
#include <utility>

#include "child.hpp"
#include "sizes.hpp"
#include "support.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// Counts what is asked of it in any process but the one that made it: a driver's state does not outlive a fork, and a
/// lock that some thread held at that moment is held for ever.
class OneProcessDevice final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  ~OneProcessDevice() override { here(); }
  /// Outlives it.
  std::shared_ptr<const std::atomic<bool>> used_elsewhere() const { return used_elsewhere_; }

  void free(std::byte* memory, std::size_t bytes) noexcept override {
    if (here()) doubles::ForwardDevice::free(memory, bytes);
  }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override {
    if (here()) doubles::ForwardDevice::free_host(memory, bytes);
  }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override {
    if (here()) doubles::ForwardDevice::unreserve(range, bytes);
  }
  void unpin(std::byte* memory, std::size_t bytes) noexcept override {
    if (here()) doubles::ForwardDevice::unpin(memory, bytes);
  }
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    return here() ? doubles::ForwardDevice::copy(stream, to, from, bytes) : refused();
  }
  bool capturing(device::StreamId stream) noexcept override {
    return here() && doubles::ForwardDevice::capturing(stream);
  }
  Result<void> record(device::EventId event, device::StreamId stream) override {
    return here() ? doubles::ForwardDevice::record(event, stream) : refused();
  }
  Result<void> synchronize() override { return here() ? doubles::ForwardDevice::synchronize() : refused(); }
  void interrupt() noexcept override {
    if (here()) doubles::ForwardDevice::interrupt();
  }
  void discard(void* memory, std::size_t bytes) noexcept override {
    if (here()) doubles::ForwardDevice::discard(memory, bytes);
  }

 private:
  bool here() {
    if (::getpid() == process_) return true;
    *used_elsewhere_ = true;
    return false;
  }
  static Result<void> refused() { return Error{Errc::io_error, "used in a forked child"}; }
  const pid_t process_ = ::getpid();
  const std::shared_ptr<std::atomic<bool>> used_elsewhere_ = std::make_shared<std::atomic<bool>>(false);
};

template <class T>
bool refused_by_name(const Result<T>& result) {
  return !result && result.error().code == Errc::unsupported &&
         result.error().message.find("forked") != std::string::npos;
}

TEST(GpuFork, AChildIsRefusedByNameWithWorkUnderWayAndTheParentGoesOn) {
  Rig rig(Backend::gpu);
  const auto device = std::make_shared<OneProcessDevice>(rig.seams().device);
  rig.seams().device = device;
  Store& store = rig.store();
  const StreamHandle on = rig.device().create_stream().value();
  std::vector<std::byte> fields[4] = {{}, bytes_of(1, kSize), bytes_of(2, kSize), bytes_of(3, kSize)};
  std::vector<std::byte> out(kSize);
  ASSERT_TRUE(write(store, 10, kSize));
  ASSERT_TRUE(write(store, 11, kSize));
  ASSERT_TRUE(store.wait("local"));
  std::optional<Reservation> room(store.reserve(5, std::vector<Source>{{0, nullptr, kSize}}).value());
  std::optional<Loan> loan(store.borrow(11).value());
  rig.device().hold();
  std::vector<Future> futures;
  for (Version v = 1; v < 3; ++v) {
    const auto& field = fields[static_cast<std::size_t>(v)];
    futures.push_back(store.checkpoint(v, {{0, field.data(), kSize}}, {.stream = on}).value());
  }
  ASSERT_TRUE(store.restore(10, {{0, out.data(), kSize}}, {.stream = on}));
  rig.device().copy(on, room->data(), fields[3].data(), kSize).value();
  ASSERT_GE(rig.device().unfinished(), 4u);
  const int wrong = in_a_child([&] {
    int at = 0;
    const auto fine = [&](bool said) { return ++at, said; };
    std::vector<std::byte> target(kSize);
    const Target one{0, target.data(), kSize};
    if (!fine(refused_by_name(store.checkpoint(7, {{0, target.data(), kSize}}, {.stream = on})))) return at;
    if (!fine(refused_by_name(store.restore(1, {one}, {.stream = on})))) return at;
    if (!fine(refused_by_name(store.restore_async(1, std::span(&one, 1))))) return at;
    if (!fine(refused_by_name(store.reserve(8, std::vector<Source>{{0, nullptr, kSize}})))) return at;
    if (!fine(refused_by_name(store.borrow(1)))) return at;
    if (!fine(refused_by_name(room->commit({.stream = on})))) return at;
    if (!fine(refused_by_name(loan->release(false, {.stream = on})))) return at;
    if (!fine(refused_by_name(store.wait("device")))) return at;
    if (!fine(refused_by_name(futures[0].wait("local", Seconds(1))))) return at;
    if (!fine(refused_by_name(store.close()))) return at;
    room.reset();
    loan.reset();
    futures.clear();
    rig.end();
    if (!fine(!*device->used_elsewhere())) return at;
    return 0;
  });
  EXPECT_EQ(wrong, 0) << "the check that failed, or 128 and a signal";
  rig.device().release();
  ASSERT_TRUE(room->commit({.stream = on}));
  ASSERT_TRUE(loan->release(false, {.stream = on}));
  ASSERT_TRUE(rig.device().synchronize());
  EXPECT_EQ(out, bytes_of(10, kSize));
  expect_restored(store, 1, kSize);
  expect_restored(store, 2, kSize);
  store.restore(5, {{0, out.data(), kSize}}).value();
  EXPECT_EQ(out, fields[3]);
}

// --- memory that was lent out, and outlives its store: let go of in a child it must stay as it is ---

enum class Kept { reservation, mapping, loan, future };

class GpuForkAfterTheStore : public ::testing::TestWithParam<Kept> {};
std::string name_of_kept(const ::testing::TestParamInfo<Kept>& kept) {
  const char* const names[] = {"AReservation", "AMapping", "ALoan", "AFuture"};
  return names[static_cast<std::size_t>(kept.param)];
}
INSTANTIATE_TEST_SUITE_P(Keeps, GpuForkAfterTheStore,
                         ::testing::Values(Kept::reservation, Kept::mapping, Kept::loan, Kept::future), name_of_kept);

TEST_P(GpuForkAfterTheStore, AChildThatLetsGoDoesNotTouchTheGpuAndTheParentFreesIt) {
  Rig rig(Backend::gpu);
  auto device = std::make_shared<OneProcessDevice>(rig.seams().device);
  const auto used_elsewhere = device->used_elsewhere();
  rig.seams().device = device;
  std::optional<Reservation> room;
  std::shared_ptr<const void> mapping;
  std::optional<Loan> loan;
  std::optional<Future> future;
  ASSERT_TRUE(write(rig.store(), 1, kSize));
  if (GetParam() == Kept::loan) loan = rig.store().borrow(1).value();
  if (GetParam() == Kept::future) future = write(rig.store(), 2, kSize).value();
  if (GetParam() == Kept::reservation || GetParam() == Kept::mapping)
    room = rig.store().reserve(5, std::vector<Source>{{0, nullptr, kSize}}).value();
  if (GetParam() == Kept::mapping) {
    mapping = room->mapping();
    room.reset();
  }
  rig.end();
  rig.seams().device.reset();
  const std::weak_ptr<OneProcessDevice> last = std::exchange(device, nullptr);
  const auto let_go = [&] { room.reset(), mapping.reset(), loan.reset(), future.reset(); };
  ASSERT_FALSE(last.expired());
  if (GetParam() != Kept::future) {
    ASSERT_GT(rig.device().allocated(), 0u);
  }
  EXPECT_EQ(in_a_child([&] {
              let_go();
              return *used_elsewhere ? 1 : 0;
            }),
            0);
  let_go();
  EXPECT_TRUE(last.expired());
  EXPECT_EQ(rig.device().allocated(), 0u);
}

// --- the end of a process: each in one of its own, whose status must be what it said ---

enum class Work { checkpoint, restore, reserved, lent };

/// A store with work that its GPU has not done; with `held` it will never do it. Kept until the process ends.
void work_and_leave_it(Work work, bool held) {
  ::alarm(kTooLong);
  static Rig* rig = nullptr;
  static std::vector<std::byte> field = bytes_of(1, kSize), out(kSize);
  static std::optional<Reservation> room;
  static std::optional<Loan> loan;
  rig = new Rig(Backend::gpu);
  rig->setup().device_arena = DeviceArena::direct;  // a thread that has ended and is never joined would be a leak
  Store& store = rig->store();
  const StreamHandle on = rig->device().create_stream().value();
  ASSERT_TRUE(write(store, 9, kSize));
  ASSERT_TRUE(store.wait("local"));
  if (held) rig->device().hold();
  if (work == Work::checkpoint) {
    for (Version v = 1; v < 4; ++v) ASSERT_TRUE(store.checkpoint(v, {{0, field.data(), kSize}}, {.stream = on}));
  } else if (work == Work::restore) {
    ASSERT_TRUE(store.restore(9, {{0, out.data(), kSize}}, {.stream = on}));
  } else if (work == Work::reserved) {
    room = store.reserve(2, std::vector<Source>{{0, nullptr, kSize}}).value();
    rig->device().copy(on, room->data(), field.data(), kSize).value();
    ASSERT_TRUE(room->commit({.stream = on, .hold = true}));
  } else {
    loan = store.borrow(9).value();
    rig->device().copy(on, out.data(), loan->data(), kSize).value();
    ASSERT_TRUE(loan->release(false, {.stream = on, .hold = true}));
  }
  if (held) {
    ASSERT_GE(rig->device().unfinished(), 1u);
  }
}

class GpuProcessEnds : public ::testing::TestWithParam<Work> {
 protected:
  void SetUp() override { ::testing::GTEST_FLAG(death_test_style) = "threadsafe"; }  // a process of its own
};
std::string name_of(const ::testing::TestParamInfo<Work>& work) {
  const char* const names[] = {"Checkpoints", "ARestore", "AReservation", "ALoan"};
  return names[static_cast<std::size_t>(work.param)];
}
INSTANTIATE_TEST_SUITE_P(With, GpuProcessEnds,
                         ::testing::Values(Work::checkpoint, Work::restore, Work::reserved, Work::lent), name_of);

TEST_P(GpuProcessEnds, AsAfterMainWithAStoreThatIsNotClosed) {
  EXPECT_EXIT((work_and_leave_it(GetParam(), true), std::exit(7)), ::testing::ExitedWithCode(7), "");
}

TEST_P(GpuProcessEnds, AtOnce) {
  EXPECT_EXIT((work_and_leave_it(GetParam(), true), std::_Exit(8)), ::testing::ExitedWithCode(8), "");
}

TEST_P(GpuProcessEnds, BySignal) {
  EXPECT_EXIT((work_and_leave_it(GetParam(), true), ::raise(SIGKILL)), ::testing::KilledBySignal(SIGKILL), "");
}

/// Destroyed with the process's last objects, after main has returned.
struct UntilTheEnd {
  std::optional<Rig> rig;
  std::vector<std::byte> field = bytes_of(1, kSize), out = std::vector<std::byte>(kSize);
  ~UntilTheEnd() {
    if (!rig) return;
    rig->end();
    if (rig->device().unfinished() > 0 || !rig->device().violations().empty()) std::_Exit(1);
  }
};

TEST(GpuProcessEndsItself, AStoreThatIsDestroyedAfterMainWaitsForItsWork) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        ::alarm(kTooLong);
        static UntilTheEnd last;
        last.rig.emplace(Backend::gpu);
        Store& store = last.rig->store();
        const StreamHandle on = last.rig->device().create_stream().value();
        store.checkpoint(1, {{0, last.field.data(), kSize}}, {.stream = on}).value();
        store.checkpoint(2, {{0, last.field.data(), kSize}}, {.stream = on}).value();
        store.restore(1, {{0, last.out.data(), kSize}}, {.stream = on}).value();
        std::exit(9);
      },
      ::testing::ExitedWithCode(9), "");
}

}  // namespace
}  // namespace ebb::store
