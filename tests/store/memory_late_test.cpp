// Caches whose memory comes late: calls that wait for it can be interrupted, and trouble meanwhile is reported.
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "sizes.hpp"
#include "support.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// A double of a GPU whose memory comes when told to, but for the first piece, or whose host memory is registered then,
/// but for so many pieces as were allowed. On the threads of others than its maker copies throw, if asked for. Thread
/// safety: every method may be called from any thread.
class LateDevice final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    if (at > 0) wait();
    return doubles::ForwardDevice::map(range, at, bytes);
  }
  Result<void> pin(std::byte* memory, std::size_t bytes) override {
    if (--allowed < 0) wait();
    return doubles::ForwardDevice::pin(memory, bytes);
  }
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    if (throws && std::this_thread::get_id() != maker_) throw std::runtime_error("no memory for one more copy");
    return doubles::ForwardDevice::copy(stream, to, from, bytes);
  }
  void come() {
    std::lock_guard lock(mutex_);
    here_ = true;
    changed_.notify_all();
  }
  std::atomic<bool> throws = false;
  std::atomic<int> allowed = 0;

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return here_; });
  }
  const std::thread::id maker_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool here_ = false;
};

struct Late {
  Rig rig{Backend::gpu, {.device = 2 * kSize}};
  std::shared_ptr<LateDevice> device = std::make_shared<LateDevice>(rig.seams().device);
  Late() {
    rig.setup().map_piece = kSize;
    rig.seams().device = device;
  }
  ~Late() { device->come(); }
};

TEST(MemoryLate, ACheckpointThatWaitsForItCanBeInterrupted) {
  Late late;
  Store& store = late.rig.store();
  const std::vector<Source> room = {{0, nullptr, kSize}};
  Reservation first = store.reserve(1, room).value();  // all that there is
  int asked = 0;
  const auto refused = write(store, 2, kSize, {.interrupted = [&] { return ++asked == 2; }});
  EXPECT_EQ(code_of(refused), Errc::timed_out);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(code_of(store.info(2)), Errc::unknown_version) << "nothing of it is left";
  late.device->come();
  ASSERT_TRUE(write(store, 2, kSize));
  expect_restored(store, 2, kSize);
  first.abandon();
  ASSERT_TRUE(store.reserve(3, std::vector<Source>{{0, nullptr, 2 * kSize}}, {.timeout = Seconds(60)}))
      << "its room was given back";
}

TEST(MemoryLate, NothingIsEvictedBeforeTheCacheIsMappedAndFull) {
  Late late;
  late.device->allowed = 1000;  // it is the device's memory that is late
  Store& store = late.rig.store();
  const auto evictions = [&] { return store.stats().tiers.at(0).evictions; };
  ASSERT_TRUE(write(store, 1, kSize));  // in all that is mapped
  store.wait("local", Seconds(60)).value();
  std::atomic<int> asked = 0;
  auto second = std::async(std::launch::async, [&] {
    return static_cast<bool>(write(store, 2, kSize, {.interrupted = [&] { return ++asked, false; }}));
  });
  while (asked < 2) std::this_thread::yield();
  EXPECT_EQ(evictions(), 0u) << "it waits, though version 1 could leave";
  late.device->come();
  EXPECT_TRUE(second.get());
  EXPECT_EQ(evictions(), 0u);
  store.wait("local", Seconds(60)).value();
  ASSERT_TRUE(write(store, 3, kSize));
  EXPECT_EQ(evictions(), 1u);
  for (const Version v : {1, 2, 3}) expect_restored(store, v, kSize);
}

TEST(MemoryLate, AReservationThatWaitsForItCanBeInterrupted) {
  Late late;
  Store& store = late.rig.store();
  const std::vector<Source> room = {{0, nullptr, kSize}};
  Reservation first = store.reserve(1, room).value();
  const auto refused = store.reserve(2, room, {.interrupted = [] { return true; }});
  EXPECT_EQ(code_of(refused), Errc::timed_out);
  EXPECT_NE(refused.error().message.find("version 2"), std::string::npos) << refused.error().message;
  late.device->come();
  EXPECT_TRUE(store.reserve(2, room));
}

// --- the staging ring, through which checkpoints pass where there is no host cache

struct LateRing {
  static constexpr std::size_t kChunk = 16 * kKiB;
  Rig rig{Backend::gpu, {.device = 2 * kSize, .host = 0, .chunk = kChunk}};
  std::shared_ptr<LateDevice> device = std::make_shared<LateDevice>(rig.seams().device);
  explicit LateRing(int slots = 0) {
    rig.setup().map_piece = 2 * kSize;  // the device cache is there at once
    rig.seams().device = device;
    device->allowed = slots;
  }
  ~LateRing() { device->come(); }
};

TEST(MemoryLate, OpeningDoesNotRegisterTheRingAndWhoNeedsNoSlotDoesNotWait) {
  LateRing late;
  Store& store = late.rig.store();
  EXPECT_EQ(late.rig.device().pinned(), 0u);
  const Future future = write(store, 1, kSize).value();
  expect_restored(store, 1, kSize);
  ASSERT_TRUE(write(store, 2, kSize));
  EXPECT_EQ(code_of(store.wait("local", Seconds(0))), Errc::timed_out);
  late.device->come();
  store.wait("local").value();
  while (late.rig.device().pinned() < 8 * LateRing::kChunk) std::this_thread::yield();  // one after the other
  EXPECT_EQ(late.rig.device().pinned(), 8 * LateRing::kChunk);
  expect_restored(store, 2, kSize);
}

TEST(MemoryLate, WhoNeedsASlotOfTheRingWaitsForThatOneAlone) {
  LateRing late(1);
  late.rig.setup().machine.manual_prefetch = true;
  Store& store = late.rig.store();
  ASSERT_TRUE(write(store, 1, LateRing::kChunk));
  store.wait("local", Seconds(60)).value();  // through the first slot of that direction
  EXPECT_EQ(late.rig.device().pinned(), LateRing::kChunk);
}

TEST(MemoryLate, AStoreWhoseRingNeverCameIsClosed) {
  LateRing late;
  Store& store = late.rig.store();
  ASSERT_TRUE(write(store, 1, kSize));
  auto closing = std::async(std::launch::async, [&] { return code_of(store.close()); });
  late.device->come();  // a registration that has begun is waited for
  EXPECT_EQ(closing.get(), Errc::ok);
}

// On a thread of the cache's own: it must not end the process.
TEST(MemoryLate, WhateverGoesWrongWhenItComesIsThrownByTheNextCall) {
  Late late;
  late.rig.setup().provision->pin_deadline = planner::kNever;  // what is not registered is not used
  Store& store = late.rig.store();
  ASSERT_TRUE(write(store, 1, kSize));  // to the device; to the host it cannot go yet
  late.device->throws = true;
  late.device->come();
  const auto ends = [&] {
    try {
      while (store.hint({7})) std::this_thread::yield();
    } catch (const std::logic_error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(ends(), "no memory for one more copy");
  EXPECT_TRUE(store.close());
}

}  // namespace
}  // namespace ebb::store
