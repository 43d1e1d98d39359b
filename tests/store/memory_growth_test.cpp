// What a store tells its caches' memory, so that no more of it comes than is needed, in turn, and not beside copies.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "os/pin_queue.hpp"
#include "sizes.hpp"
#include "store/tiers.hpp"
#include "support.hpp"
#include "tests/doubles/hooked_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

struct Growing {
  Rig rig{Backend::gpu, {.device = 2 * kSize, .host = 64 * kSize, .disk = 0}};
  ArenaStats host() { return rig.store().stats().tiers.at(1).arena; }
};

TEST(MemoryGrowth, AHistoryTakesLittleMoreOfTheHostCacheThanItsBytes) {
  Growing growing;
  Store& store = growing.rig.store();
  for (Version v = 0; v < 4; ++v) ASSERT_TRUE(write(store, v, kSize));
  store.wait("host", Seconds(60)).value();
  for (Version v = 0; v < 4; ++v) expect_restored(store, v, kSize);
  const ArenaStats host = growing.host();
  EXPECT_GE(host.touched, 4 * kSize);
  EXPECT_LE(host.touched, 5 * kSize);
  EXPECT_LE(host.pinned, host.touched);
  EXPECT_EQ(host.limit, 64 * kSize);
}

// The pin queue of this user's processes, in a directory of the test's own.
class MemoryGrowthInQueue : public testing::Test {
 protected:
  MemoryGrowthInQueue() {
    std::string name = testing::TempDir() + "/ebbtide-queue-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    if (const char* before = std::getenv("XDG_RUNTIME_DIR")) before_ = before;
    ::setenv("XDG_RUNTIME_DIR", name.c_str(), 1);
  }
  ~MemoryGrowthInQueue() override {
    before_.empty() ? ::unsetenv("XDG_RUNTIME_DIR") : ::setenv("XDG_RUNTIME_DIR", before_.c_str(), 1);
    std::filesystem::remove_all(directory_);
  }

 private:
  std::filesystem::path directory_;
  std::string before_;
};

TEST_F(MemoryGrowthInQueue, WhoeverIsFirstInTheQueueIsWaitedForAndNotForEver) {
  os::NodePinQueue first;
  ASSERT_TRUE(first.wait({}));
  Growing growing;
  growing.rig.setup().provision->pin_deadline = 1'000'000;
  Store& store = growing.rig.store();
  ASSERT_TRUE(write(store, 1, kSize));
  store.wait("host", Seconds(60)).value();
  EXPECT_EQ(growing.rig.device().pinned(), 0u) << "another process is called";
  EXPECT_NE(growing.host().trouble.find("other processes that register"), std::string::npos) << growing.host().trouble;
  first.leave();
  while (growing.rig.device().pinned() == 0) {
    ASSERT_TRUE(write(store, 2, kSize));
    store.wait("host", Seconds(60)).value();
    store.drop(2).value();
  }
  expect_restored(store, 1, kSize);
}

// A slot that was used before its ticket was called is registered later, and what passes it must not meet that.
TEST_F(MemoryGrowthInQueue, WhatPassesTheStagingRingWaitsWhileItsSlotIsRegistered) {
  os::NodePinQueue first;
  ASSERT_TRUE(first.wait({}));
  Rig rig(Backend::gpu, {.device = 4 * kSize, .host = 0, .disk = 16 * kSize});
  options::EngineSetup setup = rig.setup();
  setup.provision->pin_deadline = 1000;
  options::Seams seams = rig.seams();
  const auto device = std::make_shared<doubles::HookedDevice>(seams.device);
  seams.device = device;
  planner::Command command;
  command.from = {{planner::Endpoint::ring, planner::kHost}, 0};
  command.length = 4096;
  std::atomic<Tiers*> used = nullptr;
  std::atomic<bool> begun = false, passed = false;
  std::thread copying;
  device->before_pin = [&](std::byte* memory, std::size_t) {
    Tiers* const tiers = used;
    if (tiers == nullptr || memory != tiers->at(command.from)) return;  // once
    copying = std::thread([&, tiers] {
      tiers->begin_copy(command);
      begun = true;
      tiers->for_each_part(command.from, command.to, command.length,
                           [&](std::uint64_t, std::uint64_t) { passed = true; });
    });
    while (!begun) std::this_thread::yield();
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (!passed && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_FALSE(passed);
  };
  const auto tiers = Tiers::create(seams, setup, [] {}).value();
  tiers->want(command.from, command.length);
  while (tiers->use_of(command.from, command.length) == Tiers::Usable::later) std::this_thread::yield();
  used = tiers.get();
  first.leave();
  while (!passed) std::this_thread::yield();
  copying.join();
  tiers->end_copy(command);
  tiers->stop();
}

}  // namespace
}  // namespace ebb::store
