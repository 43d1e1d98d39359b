// The names and the layout of snapshots: what is written is read, and what cannot be is refused.
#include "storage/format/snapshot_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "storage/format/bytes.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::storage {
namespace {

using ::testing::HasSubstr;

TEST(PieceName, ComesBackAsItWas) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const PieceName name{i % 3 == 0   ? ""
                         : i % 3 == 1 ? "model"
                                      : "a" + PieceName{"b", {1, 2}, 3}.text(),
                         {random() >> random() % 64, random() >> random() % 64},
                         random() >> random() % 64};
    ASSERT_EQ(parse_piece_name(name.text()), name) << name.text();
    ASSERT_TRUE(name.text().starts_with(PieceName::prefix(name.history)));
  }
  EXPECT_EQ((PieceName{"m", {0xab, 1}, 12}.text()), "m/.ebbtide-snapshot/00000000000000ab-0000000000000001/12");
}

TEST(PieceName, NoOtherNameIsAPieces) {
  const std::string id = "m/.ebbtide-snapshot/00000000000000ab-0000000000000001";
  for (const std::string& name :
       {std::string(), std::string("m"), id, id + "/", id + "/01", id + "/-1", id + "/1 ", id + "/1/",
        id + "/18446744073709551616", id + "x/1", std::string("m/.ebbtide-snapshot/ab-1/12"),
        std::string("m/.ebbtide-snapshot/00000000000000AB-0000000000000001/12")}) {
    EXPECT_FALSE(parse_piece_name(name)) << name;
  }
}

const ZoneMap kMap{{{4, {9, 1}, 65536}, {3, {8, 1}, 65536}},
                   {{100, 8192}, {40960, 8192}, {0, 4096}, {4096, 4096}},
                   {{{0, 0, 1}, 0, 0}, {{1, 0, 2}, 1, 16384}, {{1, 2, 3}, 0, 8192}, {{3, 0, 1}, 0, 32768}},
                   std::vector<Checksum>(7)};
const SnapshotLayout kFits{{{5, 0}, {5, 100}, {2, 0}, {7, 0}}, {16384, 32768}};

TEST(SnapshotLayout, ComesBackAsItWasAndFitsItsMap) {
  ASSERT_EQ(misfit(kMap), "");
  EXPECT_EQ(misfit(kFits, kMap), "");
  for (const SnapshotLayout& layout : {kFits, SnapshotLayout{}}) {
    EXPECT_EQ(parse_layout(encode(layout)).value(), layout);
  }
}

TEST(SnapshotLayout, BytesThatAreNoLayoutAreRefused) {
  const auto bytes = encode(kFits);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_EQ(parse_layout(std::span(bytes).first(length)).error().code, Errc::damaged);
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    auto other = bytes;
    other[at] ^= std::byte{0x41};
    ASSERT_EQ(parse_layout(other).error().code, Errc::damaged) << at;
  }
  auto longer = bytes;
  longer.emplace_back();
  EXPECT_EQ(parse_layout(longer).error().code, Errc::damaged);
  // Counts that exceed the bytes, under a checksum that matches.
  auto huge = bytes;
  std::fill_n(huge.begin() + 8, 8, std::byte{0xff});
  const auto sum = checksum_of(std::span(huge).first(huge.size() - sizeof(Checksum)));
  std::copy(sum.begin(), sum.end(), huge.end() - sizeof(Checksum));
  EXPECT_THAT(parse_layout(huge).error().message, HasSubstr("longer or shorter"));
}

TEST(SnapshotLayout, OneOfAnotherMapIsRefused) {
  const auto wrong = [](auto&& change) {
    SnapshotLayout layout = kFits;
    change(layout);
    return misfit(layout, kMap);
  };
  EXPECT_THAT(wrong([](auto& it) { it.parts.pop_back(); }), HasSubstr("one part for each region"));
  EXPECT_THAT(wrong([](auto& it) { it.piece_bytes.push_back(16384); }), HasSubstr("pieces of each source"));
  for (const std::uint64_t bytes : {0, 2048, 16385, 1 << 27}) {
    EXPECT_THAT(wrong([&](auto& it) { it.piece_bytes[1] = bytes; }), HasSubstr("not a power of two"));
  }
  EXPECT_THAT(wrong([](auto& it) { it.parts[1].at = 99; }), HasSubstr("overlap or leave a gap"));
  EXPECT_THAT(wrong([](auto& it) { it.parts[1].at = 101; }), HasSubstr("overlap or leave a gap"));
  EXPECT_THAT(wrong([](auto& it) { it.parts[0].at = 1; }), HasSubstr("overlap or leave a gap"));
  EXPECT_THAT(wrong([](auto& it) { it.parts[3].region = 5; }), HasSubstr("do not follow each other"));
  EXPECT_THAT(wrong([](auto& it) { it.piece_bytes[1] = 4096; }), HasSubstr("in two pieces"));
  ZoneMap map = kMap;
  map.extents[1].offset = 12288;  // two zones of 8192 from here on: the first reaches over 16384
  SnapshotLayout layout = kFits;
  layout.piece_bytes[1] = 16384;
  EXPECT_THAT(misfit(layout, map), HasSubstr("in two pieces"));
  layout.piece_bytes[1] = 32768;
  EXPECT_EQ(misfit(layout, map), "");
}

}  // namespace
}  // namespace ebb::storage
