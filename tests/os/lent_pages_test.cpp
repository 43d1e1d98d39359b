#include "ebbtide/lent_pages.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "os/pages.hpp"

namespace ebb::os {
namespace {

constexpr std::size_t kCache = 4 * kHugePage;

class LentPagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ = map_pages(kCache).value();
    for (std::size_t i = 0; i < kCache; ++i) cache_[i] = old(i);
  }
  void TearDown() override { unmap_pages(cache_, kCache); }
  static std::byte old(std::size_t i) { return static_cast<std::byte>(i * 7 + i / 4096); }

  std::byte* cache_ = nullptr;
};

// Lent and returned at random places and sizes, next to memory that must not change.
TEST_F(LentPagesTest, BytesComeBackAndNothingElseChanges) {
  std::mt19937_64 random(5);
  std::vector<std::byte> expected(cache_, cache_ + kCache);
  std::vector<LentPages> views;
  for (int round = 0; round < 60; ++round) {
    const std::size_t at = random() % (kCache / 4096) * 4096;
    const std::size_t most = kCache - at;
    const std::size_t bytes = 1 + random() % (round % 3 == 0 ? most : std::min<std::size_t>(most, 20'000));
    LentPages lent = LentPages::lend(cache_ + at, bytes).value();
    ASSERT_TRUE(lent.data() < cache_ || lent.data() >= cache_ + kCache);
    ASSERT_EQ(0, std::memcmp(lent.data(), expected.data() + at, bytes)) << "what was there goes with it";
    std::memset(lent.data(), round, bytes);
    std::memset(expected.data() + at, round, bytes);
    const bool kept = round % 2 == 0;
    lent.give_back(kept);
    if (kept) {
      ASSERT_EQ(0, std::memcmp(lent.data(), expected.data() + at, bytes)) << "a view still shows it";
      std::memset(lent.data(), 0xee, bytes);
      views.push_back(std::move(lent));
    } else {
      ASSERT_EQ(lent.data(), nullptr);
    }
    // The last page is the caller's to its end.
    for (std::size_t i = at + bytes; i < std::min(kCache, (at + bytes + 4095) / 4096 * 4096); ++i) {
      expected[i] = cache_[i];
    }
    ASSERT_EQ(0, std::memcmp(cache_, expected.data(), kCache)) << round;
    if (views.size() == 5) views.erase(views.begin());
  }
}

// Memory that a store lends to other processes is a file's: its pages can be mapped twice, where private ones move.
TEST_F(LentPagesTest, WhatAProgramKeepsOfAFilesPagesIsACopy) {
  const int file = ::memfd_create("lent", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, kCache), 0);
  void* const mapped = ::mmap(nullptr, kCache, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ::close(file);
  auto* const memory = static_cast<std::byte*>(mapped);
  for (const bool needed : {true, false}) {
    std::memset(memory, 1, kCache);
    LentPages lent = LentPages::lend(memory, 5000).value();
    std::memset(lent.data(), 2, 5000);
    needed ? lent.give_back(/*kept=*/true) : lent.forget(/*kept=*/true);
    EXPECT_TRUE(!needed || memory[4999] == std::byte{2});
    std::memset(memory, 3, kCache);
    EXPECT_EQ(lent.data()[4999], std::byte{2});
    std::memset(lent.data(), 4, 5000);
    EXPECT_EQ(memory[4999], std::byte{3}) << "a view that is kept reached the cache";
  }
  ::munmap(mapped, kCache);
}

TEST_F(LentPagesTest, ForgottenPagesCanBeWrittenAgain) {
  for (const bool kept : {false, true}) {
    LentPages lent = LentPages::lend(cache_ + kHugePage, kHugePage + 1).value();
    lent.forget(kept);
    EXPECT_EQ(lent.data() != nullptr, kept);
    std::memset(cache_, 1, kCache);
    if (kept) std::memset(lent.data(), 2, kHugePage + 1);
    EXPECT_EQ(cache_[kHugePage], std::byte{1});
  }
}

}  // namespace
}  // namespace ebb::os
