// Checkpoints smaller than a block share blocks of memory: those that go to a file beside others that stay, and come
// back among them.
#include <map>
#include <random>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

class SmallCheckpoints : public ::testing::TestWithParam<bool> {
 protected:
  Store open(std::uint64_t caches) const {
    Options options{.device = "cpu", .directory = at_.path(), .device_cache = caches, .host_cache = caches};
    options.disk = 64 << 20;
    options.durability = GetParam() ? Durability::storage : Durability::ephemeral;
    if (!GetParam()) options.directory = ::testing::TempDir();
    return Store::open(options).value();
  }

 private:
  OwnDirectory at_;
};

TEST_P(SmallCheckpoints, ComeBackWhole) {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    std::mt19937_64 random(seed);
    Store store = open(64 * kKiB);  // some thirty of them
    History history = store.history("shot " + std::to_string(seed));
    std::map<Version, std::size_t> sizes;
    const auto size = [&] { return static_cast<std::size_t>(1 + random() % (random() % 8 == 0 ? 20'000 : 4'095)); };
    Version next = 0;
    for (int step = 0; step < 1'500; ++step) {
      if (sizes.empty() || random() % 5 < 3) {
        const std::size_t bytes = size();
        ASSERT_TRUE(write(history, next, bytes));
        sizes[next++] = bytes;
      } else {
        auto any = sizes.begin();
        std::advance(any, static_cast<long>(random() % sizes.size()));
        expect_restored(history, any->first, any->second);
        sizes.erase(any);
      }
    }
    for (const auto& [version, bytes] : sizes) expect_restored(history, version, bytes);
  }
}
INSTANTIATE_TEST_SUITE_P(Kept, SmallCheckpoints, ::testing::Bool());

TEST(SmallMemory, HoldsEightOf512BytesInABlock) {
  Options options{.device = "cpu", .device_cache = 0, .host_cache = 1 << 20, .disk = 0};
  Store store = Store::open(options).value();
  constexpr Version kMany = 2048;
  for (Version v = 0; v < kMany; ++v) ASSERT_TRUE(write(store, v, 512));
  EXPECT_EQ(store.stats().tiers.front().used, std::uint64_t{1} << 20);
  for (Version v = kMany; v-- > 0;) expect_restored(store, v, 512);
}

}  // namespace
}  // namespace ebb::store
