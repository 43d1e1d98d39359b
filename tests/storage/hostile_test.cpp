// Any bytes give a value or a named error. For the address sanitizer, which detects reads out of bounds.
#include <gtest/gtest.h>

#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::storage {
namespace {

using test::Bytes;
using test::describe;
using test::scan;
using test::StoreImage;

constexpr const char* kSegment = "segment-00000001.ebb";

StoreImage small() {
  StoreImage image;
  image.add(1, describe("a", 1, {600, 3}, "meta"));
  image.drop(image.add(1, describe("b", 2, {300})));
  image.leave(1, 2, std::byte{0x77});
  image.add(1, describe(std::string(9000, 'x'), 3, {5000}));
  return image;
}

// Each record that is offered is one of these, bit for bit, or read_record finds it out.
void expect_no_wrong_byte(const std::map<std::string, Bytes>& files, const std::map<std::string, Bytes>& good) {
  auto store = scan(files);
  if (!store) return;  // by name: nothing was offered
  test::ImageFiles image;
  image.files = files;
  for (const ScannedSegment& segment : store->segments) {
    for (const ScannedRecord& record : segment.records) {
      if (!test::read_record(image, "/store", record.head)) continue;
      const RecordHead& head = record.head;
      const auto begin = static_cast<std::ptrdiff_t>(head.place.offset);
      const auto end = begin + static_cast<std::ptrdiff_t>(head.header_bytes + head.payload_bytes);
      const Bytes &now = files.at(kSegment), &then = good.at(kSegment);
      ASSERT_LE(static_cast<std::size_t>(end), std::min(now.size(), then.size()));
      ASSERT_TRUE(std::equal(now.begin() + begin, now.begin() + end, then.begin() + begin))
          << "a wrong byte was called good";
    }
  }
}

TEST(Hostile, TruncationAtEveryLength) {
  const StoreImage image = small();
  auto files = image.files;
  files["index"] = encode_index(scan(image.files).value());
  const Bytes whole = image.files.at(kSegment);
  for (std::size_t length = 0; length < whole.size(); length += length % 512 < 2 || length % 512 > 509 ? 1 : 31) {
    files[kSegment] = Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    auto store = scan(files, true);
    ASSERT_TRUE(store) << length << ": " << store.error().message;
    // Two are live: whichever is not found is named.
    std::size_t found = 0;
    for (const ScannedSegment& segment : store->segments) found += segment.records.size();
    ASSERT_GE(found + store->damages.size(), 2u) << length;
    ASSERT_LT(found, 2u) << length;
    ASSERT_FALSE(store->from_index);
    expect_no_wrong_byte(files, image.files);
  }
}

TEST(Hostile, RandomFlipsAnywhere) {
  const StoreImage image = small();
  auto files = image.files;
  std::mt19937_64 random(20261121);
  Bytes& bytes = files[kSegment];
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::pair<std::size_t, std::byte>> flips;
    for (std::uint64_t n = 1 + random() % 3; n-- > 0;) {
      const std::size_t at = random() % 2 ? 4096 + random() % 5120 : random() % bytes.size();
      const auto bits = static_cast<std::byte>(1 + random() % 255);
      bytes[at] ^= bits;
      flips.emplace_back(at, bits);
    }
    expect_no_wrong_byte(files, image.files);
    if (HasFatalFailure()) FAIL() << "case " << i;
    for (const auto& [at, bits] : flips) bytes[at] ^= bits;
  }
}

TEST(Hostile, RandomBytesAreNothing) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes = test::random_bytes(random() % 1200, random());
    const RecordPlace place{{}, random() % 3, 4096};
    if (i % 2 && bytes.size() >= kSector) {  // cases that the checksum would reject
      begin_sector(bytes.data(), i % 4 == 1 ? kRecordMagic : kIndexMagic);
      seal_sector(bytes.data());
    }
    EXPECT_FALSE(parse_head(bytes, place, random()));
    EXPECT_FALSE(parse_segment(bytes));
    EXPECT_FALSE(parse_store(bytes));
    EXPECT_FALSE(parse_index(bytes, {}));
    RecordHead head{.place = place, .header_bytes = bytes.size()};
    EXPECT_FALSE(parse_header(bytes, head));
  }
}

// What matters most: the checksums are right, the numbers under them are not.
TEST(Hostile, FieldsUnderGoodChecksums) {
  const std::uint64_t kValues[] = {
      0,          1,          2,          3,          4,          255,        511,   512,        513,
      4095,       4096,       4097,       8192,       65535,      65536,      65537, 1ull << 30, (1ull << 30) + 1,
      0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull, ~0ull << 12};
  std::mt19937_64 random(3);
  StoreImage image;
  const RecordHead head = image.add(1, describe(std::string("a\0/../\xff", 7), 1, {600, 3, 0, 90}, "meta"));
  const Bytes& whole = image.segment(1);
  const Bytes header(whole.begin() + 4096, whole.begin() + 4096 + static_cast<std::ptrdiff_t>(head.header_bytes));
  std::size_t good = 0;
  for (int i = 0; i < 100'000; ++i) {
    Bytes bytes = header;
    for (std::uint64_t n = 1 + random() % 3; n-- > 0;) {
      const std::size_t at = random() % 2 ? 12 + 4 * (random() % 29) : kSector + random() % 120;
      const std::size_t size = random() % 2 ? 4 : 8;
      const std::uint64_t value = random() % 4 ? kValues[random() % std::size(kValues)] : random();
      for (std::size_t k = 0; k < size; ++k) bytes[at + k] = static_cast<std::byte>(value >> (8 * k));
    }
    BytesWriter(bytes.data() + 112).bytes(checksum_of(std::span(bytes).subspan(kSector)));
    seal_sector(bytes.data());
    auto parsed = parse_head(bytes, head.place, whole.size());
    if (!parsed || parsed->kind != RecordHead::Kind::live) continue;
    auto whole_header =
        parse_header(std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), parsed->header_bytes)), *parsed);
    if (!whole_header) continue;
    ++good;
    std::uint64_t end = 0;
    for (const RegionInfo& region : whole_header->description.info.regions) {
      ASSERT_GE(region.offset, end);
      end = region.offset + region.bytes;
    }
    ASSERT_LE(end, whole_header->description.info.bytes);
    ASSERT_LE(parsed->place.offset + parsed->record_bytes, whole.size());
  }
  EXPECT_GT(good, 100u) << "the cases must get past the checksums";
}

TEST(Hostile, IndexUnderGoodChecksums) {
  StoreImage image = small();
  const Bytes whole = encode_index(scan(image.files).value());
  std::mt19937_64 random(5);
  std::size_t good = 0;
  for (int i = 0; i < 30'000; ++i) {
    Bytes bytes = whole;
    if (random() % 4 == 0) bytes.resize(kSector + random() % (bytes.size() - kSector));
    for (std::uint64_t n = random() % 3; n-- > 0;) {
      const std::size_t at = kSector + random() % 400;
      if (at + 8 > bytes.size()) continue;
      const std::uint64_t value = random() % 2 ? random() % 10 : random() % 2 ? ~0ull : random();
      for (std::size_t k = 0; k < 8; ++k) bytes[at + k] = static_cast<std::byte>(value >> (8 * k));
    }
    BytesWriter(bytes.data() + 32).number(std::uint64_t{bytes.size()});
    BytesWriter(bytes.data() + 48).bytes(checksum_of(std::span(bytes).subspan(kSector)));
    seal_sector(bytes.data());
    auto parsed = parse_index(bytes, image.head);
    if (!parsed) {
      ASSERT_EQ(parsed.error().code, Errc::damaged);
      continue;
    }
    ++good;
    for (const ScannedSegment& segment : parsed->segments) {
      for (const ScannedRecord& record : segment.records) {
        ASSERT_LE(record.head.place.offset + record.head.record_bytes, segment.bytes);
      }
    }
  }
  EXPECT_GT(good, 100u);
}

}  // namespace
}  // namespace ebb::storage
