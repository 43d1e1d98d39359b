// Caches whose memory ends earlier than was asked for.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "support.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;

constexpr std::size_t kSize = 64 * kKiB;

TEST(MemoryEnds, ADeviceCacheThatIsNotMappedToItsEndIsUsedAsFarAsItGoes) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Rig rig(Backend::gpu, {.device = 8 * kSize, .host = 8 * kSize}, seed);
    rig.setup().map_piece = kSize;
    std::vector<std::string> said;
    std::mutex mutex;
    rig.setup().log = [&](std::string_view line) {
      std::lock_guard lock(mutex);
      said.emplace_back(line);
    };
    rig.device().limit_mapped(2 * kSize);
    Store& store = rig.store();
    const StreamHandle on = rig.device().create_stream().value();
    std::vector<std::vector<std::byte>> fields;
    for (Version v = 0; v < 30; ++v) {
      fields.push_back(bytes_of(v, kSize));
      const std::vector<Source> sources = {{0, fields.back().data(), kSize}};
      ASSERT_TRUE(store.checkpoint(v, sources, {.timeout = Seconds(60), .stream = on})) << v;
    }
    for (Version v = 30; v-- > 0;) expect_restored(store, v, kSize);
    const ArenaStats arena = store.stats().tiers.at(0).arena;
    EXPECT_EQ(arena.limit, 2 * kSize);
    EXPECT_NE(arena.trouble, "");
    store.close().value();
    std::lock_guard lock(mutex);
    const auto of_device = [](const std::string& line) { return line.starts_with("device cache:"); };
    EXPECT_EQ(std::count_if(said.begin(), said.end(), of_device), 1);
  }
}

}  // namespace
}  // namespace ebb::runtime
