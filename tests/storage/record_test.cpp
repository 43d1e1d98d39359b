#include "storage/format/record.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/format/sector.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::storage {
namespace {

using test::Bytes;
using ::testing::HasSubstr;

constexpr std::uint64_t kRoom = 1 << 30;

RecordHead head_at(std::uint64_t offset, std::uint32_t block_bytes = 4096) {
  RecordHead head;
  head.place.store.fill(std::byte{7});
  head.place.segment = 3;
  head.place.offset = offset;
  head.sequence = 11;
  head.written_ns = -5;
  head.block_bytes = block_bytes;
  return head;
}

Bytes encoded(RecordHead& head, const Description& description) {
  std::vector<Checksum> sums(block_count(description.info.bytes, head.block_bytes));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i].fill(static_cast<std::byte>(i));
  return encode(head, description, sums);
}

void seal_again(Bytes& bytes) {
  const Checksum body = checksum_of(std::span(bytes).subspan(kSector));
  BytesWriter(bytes.data() + 112).bytes(body);
  seal_sector(bytes.data());
}

// A field that is wrong.
struct Case {
  std::size_t offset, bytes;
  std::uint64_t value;
  const char* why;

  void put_into(Bytes& record) const {
    for (std::size_t i = 0; i < bytes; ++i) record[offset + i] = static_cast<std::byte>(value >> (8 * i));
  }
};

// Each under a correct checksum.
void expect_each_refused(const Bytes& whole, const RecordPlace& place, std::span<const Case> cases) {
  for (const Case& one : cases) {
    Bytes bytes = whole;
    one.put_into(bytes);
    seal_sector(bytes.data());
    const auto refused = parse_head(bytes, place, ~0ull);
    ASSERT_FALSE(refused) << one.offset << " " << one.value;
    EXPECT_EQ(refused.error().code, Errc::damaged);
    EXPECT_THAT(refused.error().message, HasSubstr(one.why)) << one.offset << " " << one.value;
  }
}

TEST(Record, ComesBackAsItWas) {
  for (const std::string& name :
       {std::string(), std::string("adjoint"), std::string("a\0/../\xff", 7), std::string(65536, 'n')}) {
    for (const std::size_t first : {0, 1, 4096, 100'000}) {
      const Description description = test::describe(name, -9, {first, 0, 17}, std::string("m\0m", 3));
      RecordHead head = head_at(8192);
      const Bytes bytes = encoded(head, description);
      ASSERT_EQ(bytes.size(), head.header_bytes);
      ASSERT_EQ(bytes.size(), header_bytes(description, 4096));
      ASSERT_EQ(head.record_bytes, head.header_bytes + os::round_up(description.info.bytes));
      auto parsed = parse_head(bytes, head.place, kRoom);
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_EQ(*parsed, head);
      auto header = parse_header(bytes, *parsed);
      ASSERT_TRUE(header) << header.error().message;
      EXPECT_EQ(header->description.history, name);
      EXPECT_EQ(header->description.version, -9);
      EXPECT_EQ(header->description.info.metadata, description.info.metadata);
      EXPECT_EQ(header->description.info.bytes, description.info.bytes);
      ASSERT_EQ(header->description.info.regions.size(), 3u);
      EXPECT_EQ(header->description.info.regions[2].offset, description.info.regions[2].offset);
      EXPECT_EQ(header->description.info.regions[2].bytes, 17u);
      ASSERT_EQ(header->blocks.size(), block_count(description.info.bytes, 4096));
      EXPECT_EQ(header->blocks.back()[3], static_cast<std::byte>(header->blocks.size() - 1));
    }
  }
}

TEST(Record, FieldsLieWhereThePageSays) {
  RecordHead head = head_at(8192);
  const Bytes bytes = encoded(head, test::describe("ab", 0x0102030405060708, {5000}));
  EXPECT_EQ(BytesReader(bytes).text(8), "EBBRECRD");
  const auto at = [&](std::size_t offset) {
    return BytesReader(std::span(bytes).subspan(offset)).number<std::uint64_t>();
  };
  EXPECT_EQ(at(8), (std::uint64_t{1} << 32) + 1);
  EXPECT_EQ(at(32), 3u);
  EXPECT_EQ(at(40), 8192u);
  EXPECT_EQ(at(48), 4096u);
  EXPECT_EQ(at(56), 5000u);
  EXPECT_EQ(at(64), 4096u + 8192u);
  EXPECT_EQ(at(72), 11u);
  EXPECT_EQ(bytes[80], std::byte{8});
  EXPECT_EQ(at(88), (std::uint64_t{1} << 32) + 2);
  EXPECT_EQ(at(96), std::uint64_t{4096} << 32);
  EXPECT_EQ(BytesReader(std::span(bytes).subspan(512)).text(2), "ab");
  EXPECT_EQ(bytes[514], std::byte{0});
  EXPECT_EQ(at(518), 5000u);
}

TEST(Record, ChecksumIsTheCanonicalXxh3) {
  const Checksum sum = checksum_of({});  // a value that xxHash documents for no bytes at all
  const unsigned char expected[] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                    0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
  EXPECT_EQ(std::memcmp(sum.data(), expected, 16), 0);
}

TEST(Record, EveryFlipOfAHeaderIsFound) {
  RecordHead head = head_at(4096);
  const Bytes whole = encoded(head, test::describe("h", 1, {300, 4}, "meta"));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes bytes = whole;
    bytes[i] ^= static_cast<std::byte>(1 << (i % 8));
    const auto parsed = parse_head(bytes, head.place, kRoom);
    if (i < kSector) {
      EXPECT_FALSE(parsed) << i;
    } else {
      ASSERT_TRUE(parsed) << i;
      const auto header = parse_header(bytes, *parsed);
      ASSERT_FALSE(header) << i;
      EXPECT_EQ(header.error().code, Errc::damaged);
    }
  }
}

TEST(Record, ASmallOneTakesWholeSectorsAndComesBackAsItWas) {
  for (const std::string& name : {std::string(), std::string("adjoint"), std::string(400, 'n')}) {
    for (const std::size_t bytes : {0, 1, 280, 281, 512, 1000, 2500}) {
      const Description description = test::describe(name, -9, {bytes, 0, 3}, std::string("m\0m", 3));
      const Bytes payload = test::random_bytes(description.info.bytes, bytes);
      RecordHead head = head_at(8192 + 512);
      head.record_bytes = 3584;
      const Bytes record = encode_compact(head, description, payload);
      const std::size_t body = name.size() + 3 * 20 + 3 + payload.size();
      EXPECT_EQ(record.size(), (160 + body + 511) / 512 * 512);
      EXPECT_EQ(record.size(), compact_bytes(description));
      auto parsed = parse_head(record, head.place, kRoom);
      ASSERT_TRUE(parsed) << parsed.error().message;
      EXPECT_EQ(*parsed, head);
      EXPECT_EQ(parsed->format(), 2u);
      EXPECT_TRUE(is_named(record, *parsed, name));
      EXPECT_FALSE(is_named(record, *parsed, "other"));
      auto header = parse_header(record, *parsed);
      ASSERT_TRUE(header) << header.error().message;
      EXPECT_EQ(header->description.history, name);
      EXPECT_EQ(header->description.info.metadata, description.info.metadata);
      EXPECT_EQ(header->description.info.regions[2].offset, description.info.regions[2].offset);
      EXPECT_EQ(header->payload, payload);
      const auto dropped = parse_head(encode(tombstone(head, name)), head.place, kRoom);
      ASSERT_TRUE(dropped) << dropped.error().message;
      EXPECT_TRUE(is_tombstone_of(*dropped, head));
    }
  }
  EXPECT_EQ(compact_bytes(test::describe("adjoint", 1, {3500})), 0u) << "it has blocks of its own";
  EXPECT_EQ(compact_bytes(test::describe(std::string(60'000, 'n'), 1, {1})), 0u);
}

TEST(Record, EveryFlipOfASmallOneIsFound) {
  RecordHead head = head_at(8192 + 512);
  const Description description = test::describe("h", 1, {600, 4}, "meta");
  head.record_bytes = compact_bytes(description);
  const Bytes whole = encode_compact(head, description, test::random_bytes(description.info.bytes, 1));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes bytes = whole;
    bytes[i] ^= static_cast<std::byte>(1 << (i % 8));
    const auto parsed = parse_head(bytes, head.place, kRoom);
    EXPECT_EQ(static_cast<bool>(parsed), i >= kSector) << i;
    if (parsed) {
      EXPECT_FALSE(parse_header(bytes, *parsed)) << i;
    }
  }
}

TEST(Record, SizesThatDoNotFitASmallOneAreRefused) {
  const Case cases[] = {
      {8, 4, 1, "not zero after"},
      {48, 8, 512, "header's length"},
      {48, 8, 8192, "its header's length"},
      {56, 8, 4097, "larger than a"},
      {56, 8, ~0ull, "larger than a"},
      {64, 8, 0, "whole sectors"},
      {64, 8, 512, "shorter than"},
      {64, 8, 4096, "its block's end"},
      {64, 8, ~0ull << 9, "end of any file"},
      {64, 8, 1025, "whole sectors"},
      {88, 4, ~0u, "name is longer"},
      {92, 4, ~0u, "header's length"},
      {96, 4, ~0u, "its header's length"},
      {100, 4, 4096, "checksums of its own"},
  };
  RecordHead head = head_at(8192 + 512);
  head.record_bytes = 1024;
  const Bytes whole = encode_compact(head, test::describe("h", 1, {512}), test::random_bytes(512, 1));
  ASSERT_TRUE(parse_head(whole, head.place, ~0ull));
  expect_each_refused(whole, head.place, cases);
}

TEST(Record, ANewerFormatIsToldApartFromDamage) {
  RecordHead head = head_at(4096);
  Bytes bytes = encoded(head, test::describe("h", 1, {300}));
  BytesWriter(bytes.data() + 8).number(kFormat + 1);
  EXPECT_EQ(parse_head(bytes, head.place, kRoom).error().code, Errc::damaged);  // a flip, not a format
  seal_sector(bytes.data());
  const auto refused = parse_head(bytes, head.place, kRoom);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("format 4; this program knows formats up to 3"));
}

TEST(Record, ItsPlaceIsPartOfIt) {
  RecordHead head = head_at(4096);
  const Bytes bytes = encoded(head, test::describe("h", 1, {300}));
  RecordPlace other = head.place;
  other.offset = 8192;
  EXPECT_THAT(parse_head(bytes, other, kRoom).error().message,
              HasSubstr("says that it is at offset 4096 of segment 3"));
  other = head.place;
  other.segment = 4;
  EXPECT_FALSE(parse_head(bytes, other, kRoom));
  other = head.place;
  other.store[15] = std::byte{8};
  EXPECT_THAT(parse_head(bytes, other, kRoom).error().message, HasSubstr("another store"));
}

TEST(Record, OneThatEndsBehindItsSegmentIsDamagedAndNamed) {
  RecordHead head = head_at(4096);
  const Bytes bytes = encoded(head, test::describe("h", 41, {300}));
  EXPECT_TRUE(parse_head(bytes, head.place, 4096 + 8192));
  const auto cut = parse_head(bytes, head.place, 4096 + 8191);
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message, HasSubstr("version 41"));
  head.kind = RecordHead::Kind::dropped;  // nothing of it is read
  EXPECT_TRUE(parse_head(encode(head), head.place, 4096 + 4096));
}

TEST(Record, ThatNeverWasSaysOnlyHowLongItIs) {
  RecordHead head = head_at(4096);
  head.kind = RecordHead::Kind::nothing;
  head.record_bytes = 12288;
  head.name_bytes = 5;
  auto parsed = parse_head(encode(head), head.place, kRoom);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->record_bytes, 12288u);
  EXPECT_EQ(parsed->name_bytes, 0u);
  EXPECT_EQ(parsed->sequence, 0u);
  EXPECT_FALSE(parse_header(Bytes(4096), *parsed));
}

TEST(Record, ListsOfDropsComeBackAsTheyWereAndEveryFlipIsFound) {
  for (const std::size_t many : {1, 44, 45, 352, 353, 1000}) {
    std::vector<Drop> drops, back;
    for (std::size_t i = 0; i < many; ++i)
      drops.push_back({4096 + 512 * i, i % 3 ? RecordHead::Kind::dropped : RecordHead::Kind::nothing});
    const RecordHead at = head_at(1 << 20);
    const Bytes lists = encode(at.place, drops);
    EXPECT_EQ(lists.size(), drops_bytes(many));
    std::uint64_t next = 0;
    for (RecordPlace place = at.place; next < lists.size(); place.offset = at.place.offset + next) {
      const Bytes sector(lists.begin() + static_cast<std::ptrdiff_t>(next),
                         lists.begin() + static_cast<std::ptrdiff_t>(next + kSector));
      const auto head = parse_head(sector, place, kRoom);
      ASSERT_TRUE(head) << head.error().message;
      EXPECT_EQ(head->format(), 2u);
      EXPECT_FALSE(parse_header(sector, *head));
      for (const Drop& drop : parse_drops(sector, *head)) back.push_back(drop);
      for (std::size_t i = 0; i < kSector; ++i) {
        Bytes flipped = sector;
        flipped[i] ^= static_cast<std::byte>(1 << (i % 8));
        ASSERT_FALSE(parse_head(flipped, place, kRoom)) << i;
      }
      next += head->record_bytes;
    }
    EXPECT_EQ(next, lists.size()) << "the last of a block has the rest of it";
    EXPECT_EQ(back, drops);
  }
}

TEST(Record, ListsOfWhatCannotBeDroppedAreRefused) {
  const RecordHead at = head_at(8192);
  const Bytes whole = encode(at.place, std::vector<Drop>{{4096}, {4608}});
  const Case cases[] = {
      {8, 4, 1, "kind 4"},
      {48, 8, 1024, "a record's fields"},
      {56, 8, 1, "a record's fields"},
      {72, 8, 1, "a record's fields"},
      {80, 8, 1, "a record's fields"},
      {128, 8, 1, "a record's fields"},
      {92, 4, 0, "not zero after"},
      {92, 4, 1, "not zero after"},
      {92, 4, 3, "no record can be"},
      {92, 4, 45, "no record can be"},
      {144, 8, 4096 + 1, "no record can be"},
      {144, 8, 4096 + 4, "no record can be"},
      {144, 8, 3584 + 2, "no record can be"},
      {144, 8, 8192 + 2, "no record can be"},
      {144, 8, ~0ull, "no record can be"},
      {160, 8, 1, "not zero after"},
  };
  expect_each_refused(whole, at.place, cases);
}

TEST(Record, SizesThatDoNotFitAreRefused) {
  const Case cases[] = {
      {12, 4, 0, "kind 0"},
      {12, 4, 4, "kind 4"},  // in format 2 alone
      {12, 4, 5, "kind 5"},
      {48, 8, 0, "header's length"},
      {48, 8, 8192, "header's length"},
      {48, 8, ~0ull, "header's length"},
      {56, 8, 1ull << 63, "larger than any file"},
      {56, 8, 1ull << 62, "longer than a header"},
      {56, 8, 0, "length does not fit"},
      {64, 8, 0, "whole blocks"},
      {64, 8, 4097, "whole blocks"},
      {64, 8, 4096, "length does not fit"},
      {64, 8, ~0ull << 12, "end of any file"},
      {88, 4, 65537, "name is longer"},
      {88, 4, 4096, "header's length"},
      {92, 4, ~0u, "longer than a header"},
      {96, 4, ~0u, "longer than a header"},
      {100, 4, 4097, "no multiple of 4096"},
      {100, 4, 128u << 20, "no multiple of 4096"},
      {128, 1, 1, "not zero after"},
      {495, 1, 1, "not zero after"},
  };
  RecordHead head = head_at(4096);
  const Bytes whole = encoded(head, test::describe("h", 1, {300}));
  expect_each_refused(whole, head.place, cases);
}

TEST(Record, RegionsThatDoNotFitAreRefused) {
  const auto region = [](std::size_t i) { return kSector + 1 + i * kRegionBytes; };
  const Case cases[] = {
      {region(1), 4, 0, "region 0 appears twice"},
      {region(0) + 4, 8, 257, "begins before the one before it ends"},
      {region(0) + 4, 8, ~0ull, "ends past the payload's end"},
      {region(0) + 12, 8, 1ull << 63, "ends past the payload's end"},
      {region(1) + 4, 8, 5, "ends past the payload's end"},
      {region(1) + 12, 8, ~0ull, "ends past the payload's end"},
      {4095, 1, 1, "not zero after"},
  };
  RecordHead head = head_at(4096);
  const Bytes whole = encoded(head, test::describe("h", 1, {256, 4}));
  for (const Case& one : cases) {
    Bytes bytes = whole;
    one.put_into(bytes);
    seal_again(bytes);
    const auto parsed = parse_head(bytes, head.place, kRoom);
    ASSERT_TRUE(parsed) << parsed.error().message;
    const auto refused = parse_header(bytes, *parsed);
    ASSERT_FALSE(refused) << one.why;
    EXPECT_THAT(refused.error().message, HasSubstr(one.why));
    EXPECT_THAT(refused.error().message, HasSubstr("version 1: "));
  }
}

TEST(Record, WhatCannotBeKeptIsRefusedBeforeItIsWritten) {
  EXPECT_TRUE(check(test::describe("h", 1, {1, 2, 3}), 65536));
  EXPECT_EQ(check(test::describe(std::string(65537, 'n'), 1, {1}), 65536).error().code, Errc::invalid_argument);
  EXPECT_EQ(check(test::describe("h", 1, {1}), 100).error().code, Errc::invalid_argument);
  Description twice = test::describe("h", 1, {1, 2});
  twice.info.regions[1].id = 0;
  EXPECT_EQ(check(twice, 65536).error().code, Errc::invalid_argument);
  RecordHead head = head_at(4096);
  EXPECT_THROW(encode(head, twice, std::vector<Checksum>(1)), std::logic_error);
  EXPECT_THROW(encode(head, test::describe("h", 1, {1}), {}), std::logic_error);
  Description huge = test::describe("h", 1, {});
  huge.info.bytes = 1ull << 50;
  EXPECT_EQ(check(huge, 65536).error().code, Errc::too_large);
  EXPECT_TRUE(check(huge, 0));
}

TEST(FirstBlocks, TheStoresLevelIsOneOfTwo) {
  const StoreHead process{Uuid{std::byte{2}}, 1000, -3, Durability::process};
  Bytes bytes = encode(process);
  EXPECT_EQ(parse_store(bytes).value().level, Durability::process);
  EXPECT_EQ(parse_store(encode(StoreHead{})).value().level, Durability::storage);
  for (const std::byte level : {std::byte{0}, std::byte{3}, std::byte{255}}) {
    bytes[12] = level;
    const Checksum sum = checksum_of(std::span(bytes).first(496));
    std::copy(sum.begin(), sum.end(), bytes.begin() + 496);
    const auto refused = parse_store(bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::damaged);
    EXPECT_NE(refused.error().message.find("level " + std::to_string(static_cast<int>(level))), std::string::npos);
  }
}

TEST(FirstBlocks, ComeBackAndEveryFlipIsFound) {
  const SegmentHead segment{Uuid{std::byte{1}}, 77};
  const StoreHead store{Uuid{std::byte{2}}, 1000, -3};
  const Bytes one = encode(segment), two = encode(store);
  ASSERT_EQ(one.size(), 4096u);
  ASSERT_EQ(two.size(), 4096u);
  EXPECT_EQ(parse_segment(one).value(), segment);
  EXPECT_EQ(parse_store(two).value(), store);
  EXPECT_FALSE(parse_store(one));
  EXPECT_FALSE(parse_segment(two));
  for (std::size_t i = 0; i < 4096; ++i) {
    Bytes a = one, b = two;
    a[i] ^= std::byte{16};
    b[i] ^= std::byte{16};
    EXPECT_FALSE(parse_segment(a)) << i;
    EXPECT_FALSE(parse_store(b)) << i;
    EXPECT_FALSE(parse_segment(std::span(one).first(i))) << i;
    EXPECT_FALSE(parse_store(std::span(two).first(i))) << i;
  }
}

}  // namespace
}  // namespace ebb::storage
