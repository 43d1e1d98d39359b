// The waits of kept stores, each with a test that turns red when it is left out: see wait_points_test.cpp.
#include <future>
#include <thread>

#include "gate_device.hpp"
#include "kept_rig.hpp"
#include "tests/doubles/manual_clock.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;
using namespace std::chrono_literals;

/// Version 1 is in its file, and the write that makes it durable waits as soon as a call asks for that.
struct Unmarked {
  KeptRig rig;
  std::shared_ptr<doubles::ManualClock> clock = std::make_shared<doubles::ManualClock>(1);
  Store& fill() {
    rig.rig().seams().clock = clock;  // which does not advance: no commit is due
    Store& store = rig.open();
    EXPECT_TRUE(write(store, 1, kSize));
    EXPECT_TRUE(store.wait("local"));
    rig.files().hold(FileCall::write);
    return store;
  }
};

TEST(WaitPoints, AWaitForStorageWaitsUntilItIsThere) {
  Unmarked unmarked;
  Store& store = unmarked.fill();
  auto call = std::async(std::launch::async, [&] { return code_of(store.wait("storage")); });
  unmarked.rig.files().await_held(FileCall::write, 1);
  EXPECT_EQ(call.wait_for(50ms), std::future_status::timeout);
  unmarked.rig.files().release(FileCall::write);
  EXPECT_EQ(call.get(), Errc::ok);
}

TEST(WaitPoints, AWaitForStorageAsksNowAndThenWhetherToGoOn) {
  Unmarked unmarked;
  Store& store = unmarked.fill();
  std::vector<std::chrono::steady_clock::time_point> asked;
  const auto result = store.wait("storage", {}, [&] {
    asked.push_back(std::chrono::steady_clock::now());
    return asked.size() >= 3;
  });
  unmarked.rig.files().release(FileCall::write);
  ASSERT_GE(asked.size(), 3u);
  EXPECT_GE(asked[2] - asked[0], 90ms);
  EXPECT_EQ(code_of(result), Errc::timed_out);
  EXPECT_TRUE(store.wait("storage"));
}

TEST(WaitPoints, AWaitForStorageEndsAtItsTimeLimit) {
  Unmarked unmarked;
  Store& store = unmarked.fill();
  auto call = std::async(std::launch::async, [&] { return code_of(store.wait("storage", Seconds(10))); });
  unmarked.rig.files().await_held(FileCall::write, 1);
  unmarked.clock->advance(11'000'000'000);
  unmarked.rig.rig().engine().poke();
  const bool at_once = call.wait_for(30s) == std::future_status::ready;  // a busy machine may take its time
  unmarked.rig.files().release(FileCall::write);
  EXPECT_EQ(call.get(), Errc::timed_out);
  EXPECT_TRUE(at_once) << "the limit was kept only when the disk answered";
  EXPECT_TRUE(store.wait("storage"));
}

TEST(WaitPoints, CloseWithATimeLimitWaitsWhileACallerCopies) {
  const auto device = std::make_shared<GateDevice>();
  Rig rig(Backend::threads);
  rig.seams().device = device;
  rig.setup().close_timeout = Seconds(60);
  Store& store = rig.store();
  device->shut();
  auto copying = std::async(std::launch::async, [&] { return code_of(write(store, 1, kSize)); });
  device->await_standing(1);
  auto closing = std::async(std::launch::async, [&] { return code_of(store.close()); });
  while (code_of(store.hint({1})) != Errc::closed) std::this_thread::yield();
  const bool waits = closing.wait_for(50ms) == std::future_status::timeout;
  device->open();
  EXPECT_TRUE(waits);
  EXPECT_EQ(copying.get(), Errc::closed);
  EXPECT_EQ(closing.get(), Errc::ok);
}

}  // namespace
}  // namespace ebb::store
