#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::storage {
namespace {

using test::Bytes;
using test::describe;
using test::names;
using test::scan;
using test::StoreImage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StoreImage filled() {
  StoreImage image;
  image.add(1, describe("a", 1, {5000, 3}, "m"));
  image.leave(1, 2);
  image.drop(image.add(1, describe("b", 2, {300})));
  image.add(1, describe("b", 3, {300}));
  image.add(4, describe("a", 7, {0}));
  return image;
}

void expect_same(const ScannedStore& a, const ScannedStore& b) {
  ASSERT_EQ(names(a), names(b));
  EXPECT_EQ(a.head, b.head);
  EXPECT_EQ(a.next_sequence, b.next_sequence);
  ASSERT_EQ(a.damages.size(), b.damages.size());
  for (std::size_t i = 0; i < a.damages.size(); ++i) {
    EXPECT_EQ(a.damages[i].file, b.damages[i].file);
    EXPECT_EQ(a.damages[i].offset, b.damages[i].offset);
    EXPECT_EQ(a.damages[i].what, b.damages[i].what);
  }
  ASSERT_EQ(a.segments.size(), b.segments.size());
  for (std::size_t i = 0; i < a.segments.size(); ++i) {
    const ScannedSegment &x = a.segments[i], &y = b.segments[i];
    EXPECT_EQ(x.segment, y.segment);
    EXPECT_EQ(x.bytes, y.bytes);
    EXPECT_EQ(x.end, y.end);
    EXPECT_EQ(x.dead, y.dead);
    EXPECT_EQ(x.last_sequence, y.last_sequence);
    ASSERT_EQ(x.gaps.size(), y.gaps.size());
    for (std::size_t j = 0; j < x.gaps.size(); ++j) {
      EXPECT_EQ(x.gaps[j].offset, y.gaps[j].offset);
      EXPECT_EQ(x.gaps[j].length, y.gaps[j].length);
    }
    for (std::size_t j = 0; j < x.records.size(); ++j) EXPECT_EQ(x.records[j].head, y.records[j].head);
  }
}

TEST(Index, SaysWhatAScanSays) {
  StoreImage image = filled();
  image.segment(4)[4096 + 600] ^= std::byte{1};  // and damage
  image.add(4, describe("c", 8, {1}));
  auto scanned = scan(image.files).value();
  ASSERT_EQ(scanned.damages.size(), 1u);
  ASSERT_EQ(scanned.segments[0].gaps.size(), 1u);
  image.files["index"] = encode_index(scanned);
  auto indexed = scan(image.files, true).value();
  EXPECT_TRUE(indexed.from_index);
  expect_same(indexed, scanned);
  EXPECT_FALSE(scan(image.files, false).value().from_index);
}

TEST(Index, OfOtherFilesThanAreThereIsNotBelieved) {
  const StoreImage image = filled();
  const Bytes index = encode_index(scan(image.files).value());
  const auto expect_scanned = [&](StoreImage now, std::size_t damages) {
    now.files["index"] = index;
    auto store = scan(now.files, true);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_FALSE(store->from_index);
    EXPECT_EQ(store->damages.size(), damages);
  };
  StoreImage longer = image, shorter = image, fewer = image, more = image;
  longer.leave(4, 1);
  expect_scanned(longer, 0);
  shorter.segment(4).resize(4096);  // the one record of it is gone, and was in the index
  expect_scanned(shorter, 1);
  fewer.files.erase("segment-00000001.ebb");
  expect_scanned(fewer, 2);
  more.segment(5);
  expect_scanned(more, 0);
  StoreImage other(2);
  other.files["index"] = index;
  auto store = scan(other.files, true).value();
  EXPECT_THAT(store.damages.at(0).what, HasSubstr("another store"));
}

TEST(Index, TellsOfRecordsThatAScanCannotSee) {
  StoreImage image = filled();
  auto scanned = scan(image.files).value();
  image.files["index"] = encode_index(scanned);
  const RecordHead lost = scanned.segments[1].records[0].head;
  std::fill_n(image.segment(4).begin() + static_cast<std::ptrdiff_t>(lost.place.offset), 4096, std::byte{0});
  auto store = scan(image.files).value();
  ASSERT_EQ(store.damages.size(), 1u);
  EXPECT_THAT(store.damages[0].what, HasSubstr("version 7 of history 'a' is in the index"));
  EXPECT_EQ(store.damages[0].offset, lost.place.offset);
}

TEST(Index, EveryFlipAndEveryLengthIsFoundAndTheScanAnswers) {
  StoreImage image = filled();
  auto scanned = scan(image.files).value();
  const Bytes whole = encode_index(scanned);
  ASSERT_TRUE(parse_index(whole, image.head));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes flipped = whole;
    flipped[i] ^= std::byte{2};
    EXPECT_FALSE(parse_index(flipped, image.head)) << i;
    EXPECT_FALSE(parse_index(std::span(whole).first(i), image.head)) << i;
  }
  image.files["index"] = whole;
  image.files["index"][600] ^= std::byte{2};
  auto store = scan(image.files, true).value();
  EXPECT_EQ(names(store), names(scanned));
  ASSERT_EQ(store.damages.size(), 1u);
  EXPECT_EQ(store.damages[0].file.filename(), "index");
}

// A file that claims to be longer than it is.
class LongIndex final : public test::ImageFiles {
 public:
  os::SysResult status(int fd, os::FileStatus& out) noexcept override {
    const auto known = ImageFiles::status(fd, out);
    if (known && out.bytes == files.at("index").size()) out.bytes = kBytes;
    return known;
  }
  os::SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    for (std::size_t before = most; before < bytes && !most.compare_exchange_weak(before, bytes);) continue;
    return ImageFiles::read(fd, memory, bytes, offset);
  }
  static constexpr std::uint64_t kBytes = 1 << 30;
  std::atomic<std::size_t> most{0};  // requested at once
};

TEST(Index, NoMemoryIsTakenForALengthThatOnlyTheFileHas) {
  const StoreImage image = filled();
  const auto scanned = scan(image.files).value();
  const Bytes whole = encode_index(scanned);
  Bytes flipped = whole;
  flipped[40] ^= std::byte{1};
  for (const auto& [bytes, word] : std::vector<std::pair<Bytes, std::string>>{
           {whole, "should have " + std::to_string(whole.size()) + " bytes and has 1073741824"},
           {flipped, "checksum"},
           {Bytes(whole.size()), "index"},
           {Bytes(100), "index"}}) {
    LongIndex files;
    files.files = image.files;
    files.files["index"] = bytes;
    auto store = scan_store(files, "/store", true);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_LE(files.most.load(), std::size_t{1} << 20) << word;
    EXPECT_EQ(names(*store), names(scanned));
    ASSERT_EQ(store->damages.size(), 1u);
    EXPECT_EQ(store->damages[0].file.filename(), "index");
    EXPECT_THAT(store->damages[0].what, HasSubstr(word));
  }
}

TEST(Index, OfAHundredThousandIsReadInLessThanASecond) {
  StoreImage image;
  ScannedStore store;
  store.head = image.head;
  ScannedSegment& segment = store.segments.emplace_back();
  segment.segment = 1;
  std::uint64_t at = 4096;
  for (int i = 0; i < 100'000; ++i) {
    RecordHead head{
        .place = {image.head.store, 1, at}, .header_bytes = 4096, .payload_bytes = 65536, .record_bytes = 69632};
    head.sequence = static_cast<std::uint64_t>(i) + 1;
    head.version = i;
    head.name_bytes = 7;
    head.block_bytes = 65536;
    segment.records.push_back({head, "adjoint"});
    at += head.record_bytes;
  }
  segment.bytes = segment.end = at;
  const auto start = std::chrono::steady_clock::now();
  const Bytes bytes = encode_index(store);
  auto parsed = parse_index(bytes, image.head);
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->segments[0].records.size(), 100'000u);
  EXPECT_EQ(parsed->next_sequence, 100'001u);
  EXPECT_LT(took, std::chrono::seconds(5));  // sanitized, on a busy machine
}

}  // namespace
}  // namespace ebb::storage
