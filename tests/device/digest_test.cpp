#include "device/digest.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace ebb::device {
namespace {

std::vector<std::uint64_t> words(std::size_t n, bool constant, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> all(n, 0x3f8000003f800000u);
  if (!constant) {
    for (auto& word : all) word = random();
  }
  return all;
}

// Also of fields that are the same number everywhere.
TEST(Digest, AnyAlterationIsFound) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t bytes = 1 + random() % 3000;
    auto memory = words(bytes / 8 + 1, round % 2 == 0, static_cast<std::uint64_t>(round));
    auto* const at = reinterpret_cast<std::byte*>(memory.data());
    const Digest before = digest_of(at, bytes);
    const std::size_t from = random() % bytes, length = 1 + random() % std::min<std::size_t>(bytes - from, 200);
    std::vector<std::byte> was(at + from, at + from + length);
    if (round % 3 == 0)
      at[from] ^= std::byte(1u << random() % 8);
    else
      std::memset(at + from, static_cast<int>(random() % 256), length);
    const bool same = std::memcmp(was.data(), at + from, length) == 0;
    EXPECT_EQ(digest_of(at, bytes) == before, same) << bytes << " " << from << " " << length;
    std::memcpy(at + from, was.data(), length);
    EXPECT_EQ(digest_of(at, bytes), before);
  }
}

TEST(Digest, ChangedPlacesAreFound) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 2000; ++round) {
    auto memory = words(512, false, static_cast<std::uint64_t>(round));
    const Digest before = digest_of(memory.data(), 4096);
    const std::size_t a = random() % 512, b = random() % 512;
    std::swap(memory[a], memory[b]);
    EXPECT_EQ(digest_of(memory.data(), 4096) == before, a == b);
  }
}

TEST(Digest, PartsAddUp) {
  std::vector<Digest> parts(kDigestParts, Digest{5, UINT64_MAX});
  EXPECT_EQ(sum_of(parts.data()), (Digest{5 * kDigestParts, 0 - std::uint64_t{kDigestParts}}));
  put_parts(parts.data(), {7, 9});
  EXPECT_EQ(sum_of(parts.data()), (Digest{7, 9}));
}

}  // namespace
}  // namespace ebb::device
