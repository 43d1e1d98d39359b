// Memory cut into edges and zones: every byte is in one part, and every zone is found by its addresses.
#include "snapshots/protected_memory.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace ebb::snapshots {
namespace {

TEST(ProtectedMemory, EveryByteIsInOnePartAndEveryZoneIsWhereItsAddressesAre) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t zone = 4096u << random() % 4;
    std::vector<Protection> all;
    std::uintptr_t at = 0x100000 + random() % 5000;
    for (std::size_t regions = 1 + random() % 4; regions > 0; --regions) {
      const std::size_t bytes = 1 + random() % (random() % 2 ? 9000 : 200'000);
      all.push_back({0, reinterpret_cast<std::byte*>(at), bytes});
      at += bytes + random() % 6000;
    }
    std::ranges::shuffle(all, random);  // regions are not in the order of their addresses
    for (std::uint32_t region = 0; region < all.size(); ++region) all[region].region = region;
    const ProtectedMemory memory(all, zone);
    std::size_t part = 0;
    std::uint32_t zones = 0;
    std::uint64_t edges = 0;
    for (const Protection& one : all) {
      std::uint64_t covered = 0;
      for (; part < memory.parts().size() && memory.parts()[part].region == one.region; ++part) {
        const MapRegion& found = memory.parts()[part];
        ASSERT_EQ(found.at, covered);
        ASSERT_EQ(found.memory, one.memory + covered);
        covered += found.bytes;
        if (found.first) {
          ASSERT_EQ(*found.first, zones);
          ASSERT_EQ(reinterpret_cast<std::uintptr_t>(found.memory) % 4096, 0u);
          ASSERT_EQ(found.bytes % 4096, 0u);
          zones += static_cast<std::uint32_t>((found.bytes + zone - 1) / zone);
        } else {
          ++edges;
          ASSERT_LT(found.bytes, 4096u);
        }
      }
      ASSERT_EQ(covered, one.bytes);
    }
    ASSERT_EQ(memory.zones(), zones);
    ASSERT_EQ(memory.edges(), edges);
    for (std::uint32_t z = 0; z < zones; ++z) {
      const auto range = memory.range_of(z);
      ASSERT_EQ(memory.zone_at(range.begin), z);
      ASSERT_EQ(memory.zone_at(range.end() - 1), z);
      const auto found = ProtectedMemory::zones_in(memory.body_of(z), range, zone);
      ASSERT_EQ(found.first, z);
      ASSERT_EQ(found.count, 1u);
    }
    for (const MapRegion& one : memory.parts())
      ASSERT_EQ(memory.zone_at(one.memory).has_value(), one.first.has_value());
  }
}

}  // namespace
}  // namespace ebb::snapshots
