// Caches whose memory comes late: who waits for it can be interrupted, and what goes wrong meanwhile is told.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "forward_device.hpp"
#include "support.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;

constexpr std::size_t kSize = 64 * kKiB;

/// A double of a GPU whose memory comes when told to, but for the first piece, or whose host memory is registered then. On
/// the threads of others than its maker copies throw, if asked for.
/// Thread safety: every method may be called from any thread.
class LateDevice final : public ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    if (at > 0) stand();
    return ForwardDevice::map(range, at, bytes);
  }
  Result<void> pin(std::byte* memory, std::size_t bytes) override {
    stand();
    return ForwardDevice::pin(memory, bytes);
  }
  Result<void> copy(platform::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    if (throws && std::this_thread::get_id() != maker_) throw std::runtime_error("no memory for one more copy");
    return ForwardDevice::copy(stream, to, from, bytes);
  }
  void come() {
    std::lock_guard lock(mutex_);
    here_ = true;
    changed_.notify_all();
  }
  std::atomic<bool> throws = false;

 private:
  void stand() {
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
  ASSERT_TRUE(store.reserve(3, std::vector<Source>{{0, nullptr, 2 * kSize}}, {.timeout = Seconds(60)})) << "its room was given back";
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

// On a thread of the cache's, which nobody waits for: it must not end the process.
TEST(MemoryLate, WhateverGoesWrongWhenItComesIsThrownByTheNextCall) {
  Late late;
  late.rig.setup().growth->patience = policy::kNever;  // what is not registered is not used
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
}  // namespace ebb::runtime
