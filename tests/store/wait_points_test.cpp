// Every wait of the runtime, each with a test that turns red when the wait is left out (hanging until its time is over
// counts as red). tests/store/mutation_waits reads this table, leaves each wait out in turn and runs the test beside
// it.
//
//   wait                test
//   request_answered    WaitPoints.ARestoreWaitsUntilItsBytesAreThere
//   request_polled      WaitPoints.AWaitingCallAsksNowAndThenWhetherToGoOn
//   future_ended        WaitPoints.AFutureWaitsUntilItsRestoreHasEnded
//   worker_sleeps       WaitPoints.AFutureWaitsUntilItsRestoreHasEnded
//   pump_sleeps         WaitPoints.AnIdleStoreSleeps
//   pump_sleeps_until   WaitPoints.ATimeLimitIsKeptByTheStoresOwnClock
//   close_drains        WaitPoints.CloseWaitsWhileACallerCopies
//   second_close        WaitPoints.ASecondCloseWaitsUntilTheFirstIsDone
//   second_close_polled WaitPoints.ASecondCloseAsksNowAndThenWhetherToGoOn
//   pump_joined         WaitPoints.CloseWaitsWhileACallerCopies
//   worker_joined       WaitPoints.CloseWaitsWhileACallerCopies
//   memory_there        WaitPoints.AReservationWaitsUntilItsMemoryIsThere
//   memory_polled       WaitPoints.AReservationAsksNowAndThenWhetherToGoOn
//   memory_returned     WaitPoints.ALenderWaitsForWhatItRecalls
//   kept_awaited        WaitPoints.AWaitForStorageWaitsUntilItIsThere
//   kept_polled         WaitPoints.AWaitForStorageAsksNowAndThenWhetherToGoOn
//   close_in_time       WaitPoints.CloseWithATimeLimitWaitsWhileACallerCopies
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "cache/tier_memory.hpp"
#include "gate_device.hpp"
#include "sizes.hpp"
#include "support.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;
using namespace std::chrono_literals;

// A rig without memory tiers: what is written is on the disk alone.
struct OnDisk {
  Rig rig{Backend::threads, {.device = 0, .host = 0}};
  Store& fill() {
    Store& store = rig.store();
    EXPECT_TRUE(write(store, 0, kSize));
    EXPECT_TRUE(store.wait("local"));
    return store;
  }
};

// A call that has to wait has not returned within a while.
template <class T>
bool still_waits(std::future<T>& call) {
  return call.wait_for(50ms) == std::future_status::timeout;
}

TEST(WaitPoints, ARestoreWaitsUntilItsBytesAreThere) {
  OnDisk on_disk;
  Store& store = on_disk.fill();
  on_disk.rig.files().hold(FileCall::read);
  auto call = std::async(std::launch::async, [&] { expect_restored(store, 0, kSize); });
  on_disk.rig.files().await_held(FileCall::read, 1);
  EXPECT_TRUE(still_waits(call));
  on_disk.rig.files().release(FileCall::read);
  call.get();
}

TEST(WaitPoints, AWaitingCallAsksNowAndThenWhetherToGoOn) {
  OnDisk on_disk;
  Store& store = on_disk.fill();
  on_disk.rig.files().hold(FileCall::read);
  std::vector<std::chrono::steady_clock::time_point> asked;
  const auto interrupted = [&] {
    asked.push_back(std::chrono::steady_clock::now());
    if (asked.size() == 3) on_disk.rig.files().release(FileCall::read);  // what is under way must end all the same
    return asked.size() >= 3;
  };
  std::vector<std::byte> target(kSize);
  const auto result = store.restore(0, {{0, target.data(), kSize}}, {.interrupted = interrupted});
  ASSERT_GE(asked.size(), 3u);
  EXPECT_GE(asked[2] - asked[0], 90ms);
  if (!result) {
    EXPECT_EQ(code_of(result), Errc::timed_out);
    expect_restored(store, 0, kSize);  // nothing was consumed
  }
}

TEST(WaitPoints, AFutureWaitsUntilItsRestoreHasEnded) {
  OnDisk on_disk;
  Store& store = on_disk.fill();
  on_disk.rig.files().hold(FileCall::read);
  std::vector<std::byte> bytes(kSize);
  const Target target{0, bytes.data(), kSize};
  const Future future = store.restore_async(0, std::span(&target, 1)).value();
  EXPECT_FALSE(future.done());
  EXPECT_EQ(code_of(future.wait({}, Seconds(0))), Errc::timed_out);
  EXPECT_EQ(code_of(future.wait({}, Seconds(0.001))), Errc::timed_out);
  auto call = std::async(std::launch::async, [&] { return future.wait(); });
  EXPECT_TRUE(still_waits(call));
  on_disk.rig.files().release(FileCall::read);
  EXPECT_TRUE(call.get());
  EXPECT_TRUE(bytes == bytes_of(0, kSize));
}

TEST(WaitPoints, AnIdleStoreSleeps) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  std::uint64_t before = 0, earlier = 0;
  do {  // the thread starts, and naps for some 30 ms before it sleeps
    std::this_thread::sleep_for(50ms);
    earlier = std::exchange(before, rig.engine().pump_rounds());
  } while (before == 0 || before != earlier);
  for (Version v = 0; v < 100; ++v) ASSERT_TRUE(store.hint({v}));
  EXPECT_LE(rig.engine().pump_rounds() - before, 500u);  // woken by each, or napping; spinning is far more
}

TEST(WaitPoints, ATimeLimitIsKeptByTheStoresOwnClock) {
  OnDisk on_disk;
  const auto clock = std::make_shared<doubles::ManualClock>(1);
  on_disk.rig.seams().clock = clock;
  Store& store = on_disk.fill();
  Engine& engine = on_disk.rig.engine();
  on_disk.rig.files().hold(FileCall::read);
  auto call = std::async(std::launch::async, [&] {
    std::vector<std::byte> target(kSize);
    return code_of(store.restore(0, {{0, target.data(), kSize}}, {.timeout = Seconds(10)}));
  });
  on_disk.rig.files().await_held(FileCall::read, 1);
  clock->advance(9'000'000'000);
  engine.poke();
  EXPECT_TRUE(still_waits(call));
  EXPECT_LE(engine.pump_rounds(), 2000u) << "it looks at the clock all the time";
  clock->advance(2'000'000'000);
  engine.poke();
  const bool at_once = call.wait_for(30s) == std::future_status::ready;  // a busy machine may take its time
  on_disk.rig.files().release(FileCall::read);
  EXPECT_EQ(call.get(), Errc::timed_out);
  EXPECT_TRUE(at_once) << "the limit was kept only when the disk answered";
  expect_restored(store, 0, kSize);
}

/// A double of a GPU whose memory comes when told to, but for the first piece.
class LateMemory final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    if (at > 0) come_.get_future().wait();
    return inner_->map(range, at, bytes);
  }
  void come() { come_.set_value(); }

 private:
  std::promise<void> come_;
};

TEST(WaitPoints, AReservationWaitsUntilItsMemoryIsThere) {
  Rig rig(Backend::gpu, {.device = 2 * kSize});
  rig.setup().map_piece = kSize;
  const auto device = std::make_shared<LateMemory>(rig.seams().device);
  rig.seams().device = device;
  Store& store = rig.store();
  const std::vector<Source> regions = {{0, nullptr, kSize}};
  auto first = store.reserve(1, regions);
  ASSERT_TRUE(first);
  auto second = std::async(std::launch::async, [&] { return store.reserve(2, regions); });
  EXPECT_TRUE(still_waits(second));
  device->come();
  auto reservation = second.get();
  ASSERT_TRUE(reservation);
  reservation->abandon();
  first->abandon();
}

TEST(WaitPoints, AReservationAsksNowAndThenWhetherToGoOn) {
  Rig rig(Backend::gpu, {.device = 2 * kSize});
  rig.setup().map_piece = kSize;
  const auto device = std::make_shared<LateMemory>(rig.seams().device);
  rig.seams().device = device;
  Store& store = rig.store();
  const std::vector<Source> regions = {{0, nullptr, kSize}};
  auto first = store.reserve(1, regions);
  ASSERT_TRUE(first);
  std::vector<std::chrono::steady_clock::time_point> asked;
  const auto refused = store.reserve(2, regions, {.interrupted = [&] {
                                       asked.push_back(std::chrono::steady_clock::now());
                                       return asked.size() >= 3;
                                     }});
  device->come();
  EXPECT_EQ(code_of(refused), Errc::timed_out);
  ASSERT_GE(asked.size(), 3u);
  EXPECT_GE(asked[2] - asked[0], 90ms);
}

/// A caller's copy that is held at the gate, and a close that has begun behind it. Open the gate before its end.
struct CloseBehindACopy {
  CloseBehindACopy(GateDevice& device, Store& store) {
    device.shut();
    copying = std::async(std::launch::async, [&store] { return code_of(write(store, 1, kSize)); });
    device.await_standing(1);
    closing = std::async(std::launch::async, [&store] { return code_of(store.close()); });
    while (code_of(store.hint({1})) != Errc::closed) std::this_thread::yield();
  }
  std::future<Errc> copying, closing;
};

// Nothing can take the only copy there, until it is restored.
TEST(WaitPoints, ALenderWaitsForWhatItRecalls) {
  Rig rig(Backend::threads, {.device = 0, .host = kSize, .disk = 0});
  Store& store = rig.store();
  Engine& engine = rig.engine();
  auto memory = cache::direct_host_memory(*rig.seams().device, kSize).value();
  ASSERT_EQ(engine.leases().lend(0, std::move(memory)).value(), 1u);
  for (Version v = 0; v < 2; ++v) ASSERT_TRUE(write(store, v, kSize));
  ASSERT_TRUE(engine.leases().recall(0, 1, 0));
  auto returned = std::async(std::launch::async, [&] { return engine.leases().await_returned(0, 1, Seconds{60}); });
  auto ever = std::async(std::launch::async, [&] { return engine.leases().await_returned(0, 1, Seconds{1e300}); });
  EXPECT_TRUE(still_waits(returned));
  EXPECT_TRUE(still_waits(ever));
  expect_restored(store, 1, kSize);
  EXPECT_TRUE(returned.get());
  EXPECT_TRUE(ever.get());
}

TEST(WaitPoints, ALenderWaitsNoLongerThanTheStoreRuns) {
  Rig rig(Backend::threads, {.device = 0, .host = kSize, .disk = 0});
  Engine& engine = rig.engine();
  ASSERT_TRUE(write(rig.store(), 0, kSize));
  ASSERT_TRUE(engine.leases().recall(0, 0, 0));
  auto returned = std::async(std::launch::async, [&] { return engine.leases().await_returned(0, 0, Seconds{20}); });
  EXPECT_TRUE(still_waits(returned));
  const planner::event::Finished never_ordered{1'000'000};
  EXPECT_THROW(static_cast<void>(engine.histories().hint(0, never_ordered)), std::logic_error);
  EXPECT_EQ(returned.wait_for(10s), std::future_status::ready);
  EXPECT_FALSE(returned.get());
}

TEST(WaitPoints, CloseWaitsWhileACallerCopies) {
  const auto device = std::make_shared<GateDevice>();
  Rig rig(Backend::threads);
  rig.seams().device = device;
  rig.setup().device_arena = DeviceArena::direct;  // its memory comes from the device, and goes back there
  Store& store = rig.store();
  CloseBehindACopy standing(*device, store);
  EXPECT_TRUE(still_waits(standing.closing));
  EXPECT_FALSE(device->freed_under_a_copy());
  device->open();
  EXPECT_EQ(standing.copying.get(), Errc::closed);
  EXPECT_EQ(standing.closing.get(), Errc::ok);
  EXPECT_TRUE(device->freed());
}

TEST(WaitPoints, ASecondCloseWaitsUntilTheFirstIsDone) {
  const auto device = std::make_shared<GateDevice>();
  Rig rig(Backend::threads);
  rig.seams().device = device;
  rig.setup().device_arena = DeviceArena::direct;  // its memory comes from the device, and goes back there
  Store& store = rig.store();
  CloseBehindACopy standing(*device, store);
  auto second = std::async(std::launch::async, [&] { return code_of(store.close()); });
  EXPECT_TRUE(still_waits(second));
  device->open();
  EXPECT_EQ(second.get(), Errc::ok);
  EXPECT_TRUE(device->freed());
  EXPECT_EQ(standing.closing.get(), Errc::ok);
  EXPECT_EQ(standing.copying.get(), Errc::closed);
}

TEST(WaitPoints, ASecondCloseAsksNowAndThenWhetherToGoOn) {
  const auto device = std::make_shared<GateDevice>();
  Rig rig(Backend::threads);
  rig.seams().device = device;
  Store& store = rig.store();
  CloseBehindACopy standing(*device, store);
  std::vector<std::chrono::steady_clock::time_point> asked;
  auto second = std::async(std::launch::async, [&] {
    return code_of(store.close([&] {
      asked.push_back(std::chrono::steady_clock::now());
      return asked.size() >= 3;
    }));
  });
  const bool ended = second.wait_for(30s) == std::future_status::ready;  // a busy machine may take its time
  device->open();
  EXPECT_TRUE(ended) << "it was not asked";
  EXPECT_EQ(second.get(), Errc::timed_out);
  ASSERT_GE(asked.size(), 3u);
  EXPECT_GE(asked[2] - asked[0], 90ms);
  EXPECT_EQ(standing.closing.get(), Errc::ok);
  EXPECT_EQ(standing.copying.get(), Errc::closed);
}

}  // namespace
}  // namespace ebb::store
