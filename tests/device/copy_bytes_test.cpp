// Copies on either side of the size from which they go past the caches, from and to every place in a line.
#include "device/copy_bytes.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace ebb::device {
namespace {

constexpr std::size_t kMiB = 1 << 20, kLine = 64, kBeside = 2 * kLine;
constexpr std::byte kUntouched{0xEE};

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> out(bytes);
  unsigned state = seed * 2654435761U + 1;
  for (std::byte& byte : out) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return out;
}

void expect_copied(std::size_t bytes, std::size_t to, std::size_t from) {
  const std::vector<std::byte> source = pattern(bytes + kBeside, static_cast<unsigned>(bytes + from));
  std::vector<std::byte> target(bytes + 2 * kBeside, kUntouched);
  copy_bytes(target.data() + kBeside + to, source.data() + from, bytes);
  const auto begin = target.begin() + static_cast<std::ptrdiff_t>(kBeside + to);
  const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
  EXPECT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
      << bytes << " bytes to " << to << " from " << from;
  const auto untouched = [](std::byte byte) { return byte == kUntouched; };
  EXPECT_TRUE(std::all_of(target.begin(), begin, untouched)) << "before the target of " << bytes << " bytes at " << to;
  EXPECT_TRUE(std::all_of(end, target.end(), untouched)) << "after the target of " << bytes << " bytes at " << to;
}

TEST(CopyBytes, every_size_around_the_border_arrives_and_nothing_beside_it) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kLine, kMiB - 1, kMiB, kMiB + 1, kMiB + kLine - 1,
                                  kMiB + kLine, kMiB + kLine + 1, 3 * kMiB + 17}) {
    expect_copied(bytes, 0, 0);
    expect_copied(bytes, 1, 0);
    expect_copied(bytes, 0, 1);
  }
}

TEST(CopyBytes, every_place_in_a_line_is_a_source_and_a_target) {
  for (std::size_t place = 0; place < kLine; ++place) {
    expect_copied(kMiB + 5, place, 0);
    expect_copied(kMiB + 5, 3, place);
  }
}

TEST(CopyBytes, nothing_is_read_or_written_of_no_bytes) { copy_bytes(nullptr, nullptr, 0); }

// Of many threads' copies; that the fence is needed follows from the processor's manual, and would hardly show here.
TEST(CopyBytes, whoever_is_told_afterwards_sees_the_bytes) {
  std::vector<std::byte> target(kMiB + 1);
  std::atomic<unsigned> told{0}, seen{0};
  constexpr unsigned kRounds = 50;
  std::thread reader([&] {
    for (unsigned round = 1; round <= kRounds; ++round) {
      while (told.load(std::memory_order_acquire) != round) std::this_thread::yield();
      EXPECT_EQ(target, pattern(target.size(), round)) << "round " << round;
      seen.store(round, std::memory_order_release);
    }
  });
  for (unsigned round = 1; round <= kRounds; ++round) {
    const std::vector<std::byte> source = pattern(target.size(), round);
    copy_bytes(target.data(), source.data(), source.size());
    told.store(round, std::memory_order_release);
    while (seen.load(std::memory_order_acquire) != round) std::this_thread::yield();
  }
  reader.join();
}

}  // namespace
}  // namespace ebb::device
