// What a store's device cache does not use is lent to others, and comes back: real stores of one process, in threads.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <thread>
#include <vector>

#include "kept_rig.hpp"
#include "planner/spare_room.hpp"

namespace ebb::store {
namespace {

using testing_support::OwnDirectory;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::size_t kWords = kMiB;  // 8 MiB

class SparePiecesOfStores : public ::testing::Test {
 protected:
  SparePiecesOfStores() {
    EXPECT_NE(::mkdtemp(memory_.data()), nullptr);
    std::filesystem::create_directories(directory_.path());
  }
  ~SparePiecesOfStores() override {
    std::error_code ignored;
    std::filesystem::remove_all(memory_, ignored);
  }
  Store open(Options options) {
    const std::vector<std::filesystem::path> folders{memory_};
    options::Seams seams{std::make_shared<os::PosixFiles>(), std::make_shared<os::SteadyClock>(), nullptr};
    seams.node = std::make_shared<const share::NodeSeams>(share::NodeSeams{
        std::make_shared<os::TmpfsSharedMemory>(memory_), std::make_shared<os::UnixSockets>(folders), folders});
    options.device = "cpu";
    options.directory = directory_.path();
    options.durability = Durability::ephemeral;
    options.disk = 2048 * kMiB;
    return Engine::open_store(std::move(seams), options, {{"EBBTIDE_JOB", "test"}}).value();
  }
  Store owner() { return open({.device_cache = 256 * kMiB, .host_cache = 16 * kMiB, .lend = kLendSpare}); }
  Store borrower() { return open({.device_cache = 16 * kMiB, .host_cache = 64 * kMiB, .borrow = kBorrowAll}); }
  static void write(Store& store, Version begin, Version end) {
    for (Version version = begin; version < end; ++version) {
      const std::vector<std::uint64_t> words(kWords, static_cast<std::uint64_t>(version));
      store.checkpoint(version, {{0, words.data(), words.size() * 8}}).value();
    }
  }
  static void expect_all(Store& store, Version end) {
    for (Version version = 0; version < end; ++version) {
      std::vector<std::uint64_t> words(kWords);
      store.restore(version, {{0, words.data(), words.size() * 8}}).value();
      EXPECT_EQ(words, std::vector<std::uint64_t>(kWords, static_cast<std::uint64_t>(version))) << version;
    }
  }
  static std::uint64_t lent(const Store& store) { return store.stats().leases->lent; }
  static bool becomes(const std::function<bool()>& true_now) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!true_now() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true_now();
  }

 private:
  std::string memory_ = "/dev/shm/ebbtide-test-XXXXXX";
  OwnDirectory directory_;
};

TEST_F(SparePiecesOfStores, ComeAndGoWhileOwnerAndBorrowersWrite) {
  constexpr Version kBurst = 16, kBursts = 3;
  Store owned = owner();
  Store first = borrower();
  std::optional<Store> second(borrower());
  ASSERT_TRUE(becomes([&] { return lent(owned) == 192 * kMiB; }));
  std::thread one([&] { write(first, 0, kBurst * kBursts / 2); });
  std::thread two([&] {
    for (int round = 0; round < 2; ++round) {
      write(*second, 0, kBurst);
      expect_all(*second, kBurst);
      second.emplace(borrower());
    }
  });
  for (Version burst = 0; burst < kBursts; ++burst) {
    write(owned, burst * kBurst, (burst + 1) * kBurst);
    EXPECT_TRUE(owned.wait("local"));
    std::this_thread::sleep_for(2 * std::chrono::nanoseconds(planner::kSpareAfter));  // it lends again, or does not
  }
  one.join();
  two.join();
  std::vector<Version> all;
  for (Version version = 0; version < kBurst * kBursts; ++version) all.push_back(version);
  owned.hint(all).value();
  EXPECT_TRUE(becomes([&] { return lent(owned) == 0 && owned.stats().tiers[0].capacity == 256 * kMiB; }));
  expect_all(owned, kBurst * kBursts);
  expect_all(first, kBurst * kBursts / 2);
}

}  // namespace
}  // namespace ebb::store
