#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/doubles/faulty_files.hpp"
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

TEST(Scan, FindsRecordsOfAllSegmentsAndPassesWhatIsDead) {
  StoreImage image;
  image.add(1, describe("a", 1, {10'000}));
  const RecordHead dropped = image.add(1, describe("a", 2, {9000}));
  image.add(1, describe(std::string(5000, 'n'), 3, {0}));
  image.add(2, describe("b", 1, {5, 6}));
  image.drop(dropped);
  RecordHead nothing{.kind = RecordHead::Kind::nothing, .place = image.place(1), .record_bytes = 8192};
  image.leave(1, 2, std::byte{0xee});
  image.rewrite(nothing);
  image.add(1, describe("a", 4, {1}));
  auto store = scan(image.files).value();
  EXPECT_THAT(names(store), ElementsAre("a/1", std::string(5000, 'n') + "/3", "a/4", "b/1"));
  EXPECT_TRUE(store.damages.empty()) << store.damages[0].what;
  EXPECT_EQ(store.head, image.head);
  EXPECT_FALSE(store.from_index);
  EXPECT_EQ(store.next_sequence, image.sequence);
  EXPECT_EQ(store.segments[0].dead, dropped.record_bytes + 8192);
  EXPECT_EQ(store.segments[0].end, image.segment(1).size());
  EXPECT_EQ(store.segments[0].bytes, image.segment(1).size());
  EXPECT_TRUE(store.segments[0].gaps.empty());
}

TEST(Scan, WhatWasNotFinishedIsAGapAndNoDamage) {
  StoreImage image;
  image.add(1, describe("a", 1, {10'000}));
  const std::uint64_t gap = image.segment(1).size();
  image.leave(1, 5, std::byte{0x5a});
  const RecordHead second = image.add(1, describe("a", 2, {10'000}));
  const std::uint64_t end = image.segment(1).size();
  image.leave(1, 3, std::byte{0x5a});
  auto store = scan(image.files).value();
  EXPECT_THAT(names(store), ElementsAre("a/1", "a/2"));
  EXPECT_TRUE(store.damages.empty());
  ASSERT_EQ(store.segments[0].gaps.size(), 1u);
  EXPECT_EQ(store.segments[0].gaps[0].offset, gap);
  EXPECT_EQ(store.segments[0].gaps[0].offset + store.segments[0].gaps[0].length, second.place.offset);
  EXPECT_EQ(store.segments[0].end, end);
  EXPECT_EQ(store.segments[0].bytes, image.segment(1).size());
}

TEST(Scan, GapsAreSearchedInPiecesAndFarBehind) {
  StoreImage image;
  image.leave(1, 700, std::byte{1});  // nearly three pieces
  const RecordHead only = image.add(1, describe("a", 1, {1}));
  auto store = scan(image.files).value();
  ASSERT_THAT(names(store), ElementsAre("a/1"));
  EXPECT_EQ(store.segments[0].records[0].head, only);
}

TEST(Scan, APayloadThatHoldsRecordsHoldsNone) {
  StoreImage inner(1), outer(1);
  inner.add(2, describe("evil", 1, {100}));
  outer.add(1, describe("a", 1, {inner.segment(2).size()}), inner.segment(2));
  outer.leave(1, 1);
  Bytes& to = outer.segment(1);  // in a gap, at another place than it says
  const Bytes& from = inner.segment(2);
  to.insert(to.end(), from.begin(), from.end());
  outer.add(1, describe("a", 2, {1}));
  auto store = scan(outer.files).value();
  EXPECT_THAT(names(store), ElementsAre("a/1", "a/2"));
  EXPECT_TRUE(store.damages.empty());
}

TEST(Scan, EveryFlipOfAHeaderIsNamedAndTheOthersStay) {
  StoreImage image;
  image.add(1, describe("first", 1, {5000}));
  const RecordHead hit = image.add(1, describe("hit", 2, {5000}));
  image.add(1, describe("last", 3, {5000}));
  for (std::uint64_t i = 0; i < hit.header_bytes; i += i < 700 ? 1 : 97) {
    auto files = image.files;
    files["segment-00000001.ebb"][hit.place.offset + i] ^= std::byte{4};
    auto store = scan(files).value();
    EXPECT_THAT(names(store), ElementsAre("first/1", "last/3")) << i;
    ASSERT_EQ(store.damages.size(), 1u) << i;
    EXPECT_EQ(store.damages[0].offset, hit.place.offset);
    EXPECT_EQ(store.damages[0].file.filename(), "segment-00000001.ebb");
    if (i >= kSector) {
      EXPECT_THAT(store.damages[0].what, HasSubstr("version 2")) << i;
    }
    EXPECT_TRUE(store.segments[0].gaps.empty()) << "space that may have data is not free";
  }
}

TEST(Scan, DamageOfASmallRecordNamesItsHistoryAndNotItsPayload) {
  for (const std::string& name : {std::string("small"), std::string(150, 's') + std::string(40, 't')}) {
    StoreImage image;
    const Bytes payload(1500, std::byte{'p'});
    const auto heads = image.add_block(1, {{describe(name, 1, {1500}), payload}});
    auto files = image.files;
    files["segment-00000001.ebb"][heads[0].place.offset + 1500] ^= std::byte{4};
    const auto store = scan(files).value();
    ASSERT_EQ(store.damages.size(), 1u);
    EXPECT_THAT(store.damages[0].what, HasSubstr("its history seems to be '" + name + "'"));
  }
}

TEST(Scan, EveryFlipOfAHeadBehindAGapIsNamedTooAndIsNotPartOfIt) {
  for (const bool last : {false, true}) {
    StoreImage image;
    image.add(1, describe("first", 1, {5000}));
    const std::uint64_t gap = image.segment(1).size();
    image.leave(1, 3, std::byte{0x5a});
    const RecordHead hit = image.add(1, describe("hit", 2, {5000}));
    if (!last) image.add(1, describe("last", 3, {5000}));
    for (std::uint64_t i = 0; i < hit.header_bytes; i += i < kSector ? 1 : 97) {
      SCOPED_TRACE(i);
      auto files = image.files;
      files["segment-00000001.ebb"][hit.place.offset + i] ^= std::byte{4};
      const auto store = scan(files).value();
      EXPECT_EQ(names(store).size(), last ? 1u : 2u);
      ASSERT_EQ(store.damages.size(), 1u);
      EXPECT_EQ(store.damages[0].offset, hit.place.offset);
      const ScannedSegment& segment = store.segments.at(0);
      EXPECT_EQ(segment.end, image.segment(1).size()) << "what may be saved is not written over";
      ASSERT_LE(segment.gaps.size(), 1u);
      if (!segment.gaps.empty()) {
        EXPECT_EQ(segment.gaps[0].offset, gap);
        EXPECT_EQ(segment.gaps[0].offset + segment.gaps[0].length, hit.place.offset) << "nor is it anybody's room";
      }
    }
  }
}

// As where a store is kept in itself.
TEST(Scan, ACopyOfAHeadOfThisSegmentIsNoDamage) {
  StoreImage image;
  image.add(1, describe("a", 1, {100}));
  const Bytes copy = image.segment(1);
  image.leave(1, 1);
  Bytes& to = image.segment(1);
  to.insert(to.end(), copy.begin(), copy.end());
  image.add(1, describe("a", 2, {1}));
  const auto store = scan(image.files).value();
  EXPECT_THAT(names(store), ElementsAre("a/1", "a/2"));
  EXPECT_TRUE(store.damages.empty());
}

TEST(Scan, ADamagedLastRecordIsNotWrittenOver) {
  StoreImage image;
  image.add(1, describe("a", 1, {5000}));
  const RecordHead last = image.add(1, describe("a", 2, {5000}));
  image.segment(1)[last.place.offset + 50] ^= std::byte{1};
  auto store = scan(image.files).value();
  EXPECT_EQ(store.damages.size(), 1u);
  EXPECT_EQ(store.segments[0].end, image.segment(1).size());
}

TEST(Scan, HeadOfASegmentIsCheckedAndItsRecordsAreFoundWithoutIt) {
  for (const bool zeros : {false, true}) {
    StoreImage image;
    image.add(1, describe("a", 1, {1}));
    if (zeros) {
      std::fill_n(image.segment(1).begin(), 4096, std::byte{0});
    } else {
      image.segment(1)[20] ^= std::byte{1};
    }
    auto store = scan(image.files).value();
    EXPECT_THAT(names(store), ElementsAre("a/1"));
    ASSERT_EQ(store.damages.size(), 1u) << zeros;
    EXPECT_EQ(store.damages[0].offset, 0u);
  }
  StoreImage just_made;
  just_made.files["segment-00000001.ebb"] = Bytes(8192);
  just_made.files["segment-00000002.ebb"] = {};
  auto store = scan(just_made.files).value();
  EXPECT_TRUE(store.damages.empty());
  EXPECT_EQ(store.segments.size(), 2u);
  StoreImage image, other(9);
  image.files["segment-00000001.ebb"] = other.segment(1);
  EXPECT_THAT(scan(image.files).value().damages.at(0).what, HasSubstr("another store"));
}

TEST(Scan, NewerFormatsAreRefusedByName) {
  for (const char* file : {"store", "segment-00000001.ebb", "index"}) {
    StoreImage image;
    image.add(1, describe("a", 1, {1}));
    image.files["index"] = encode_index(scan(image.files).value());
    Bytes& bytes = image.files[file];
    BytesWriter(bytes.data() + 8).number(std::uint32_t{7});
    seal_sector(bytes.data());
    const auto refused = scan(image.files, false);
    ASSERT_FALSE(refused) << file;
    EXPECT_EQ(refused.error().code, Errc::unsupported);
    EXPECT_THAT(refused.error().message, HasSubstr(file));
    EXPECT_THAT(refused.error().message, HasSubstr("format 7"));
  }
}

TEST(Scan, StartsWhereItIsTold) {
  StoreImage image;
  image.add(1, describe("a", 1, {1}));
  const RecordHead second = image.add(1, describe("a", 2, {1}));
  test::ImageFiles files;
  files.files = image.files;
  std::vector<Damage> damages;
  auto segment = scan_segment(files, "/store", image.head.store, 1, second.place.offset, damages).value();
  ASSERT_EQ(segment.records.size(), 1u);
  EXPECT_EQ(segment.records[0].head, second);
  auto none = scan_segment(files, "/store", image.head.store, 2, 0, damages).value();
  EXPECT_EQ(none.bytes, 0u);
  EXPECT_TRUE(damages.empty());
  EXPECT_EQ(files.open_files(), 0u);
}

// A disk that cannot read some blocks. As the system does it, a read ends before the first of them.
class BadBlocks final : public test::ImageFiles {
 public:
  os::SysResult open(const Path& path, os::Open how, bool direct) noexcept override {
    const auto opened = ImageFiles::open(path, how, direct);
    const std::lock_guard lock(mutex_);
    if (opened) names_[static_cast<int>(opened.value)] = path.filename().string();
    return opened;
  }
  os::SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    const auto& blocks = bad[name(fd)];
    const auto first = blocks.lower_bound(offset / 4096 * 4096);
    if (first != blocks.end() && *first < offset + bytes) {
      if (*first <= offset) return os::SysResult::failed(EIO);
      bytes = *first - offset;
    }
    return ImageFiles::read(fd, memory, bytes, offset);
  }
  std::map<std::string, std::set<std::uint64_t>> bad{{"segment-00000001.ebb", {}}, {"store", {}}, {"index", {}}};

 private:
  std::string name(int fd) {
    const std::lock_guard lock(mutex_);
    return names_.at(fd);
  }
  std::mutex mutex_;
  std::map<int, std::string> names_;
};

TEST(Scan, WhatCannotBeReadIsDamagedAndTheOthersAreFound) {
  StoreImage image;
  image.add(1, describe("a", 1, {10'000}));
  const RecordHead second = image.add(1, describe("a", 2, {10'000}));
  const RecordHead third = image.add(1, describe(std::string(9000, 'n'), 3, {10'000}));
  const std::uint64_t gap = image.segment(1).size();
  image.leave(1, 300, std::byte{0x5a});
  image.add(1, describe("a", 4, {10'000}));
  const std::uint64_t tail = image.segment(1).size();
  image.leave(1, 300);
  const std::string kLong = std::string(9000, 'n') + "/3";
  struct Case {
    std::set<std::uint64_t> bad;
    std::uint64_t at;
    std::vector<std::string> found;
  };
  const std::vector<Case> cases{
      {{0}, 0, {"a/1", "a/2", kLong, "a/4"}},
      {{second.place.offset}, second.place.offset, {"a/1", kLong, "a/4"}},
      {{second.place.offset, second.place.offset + 4096}, second.place.offset, {"a/1", kLong, "a/4"}},
      {{third.place.offset + 4096}, third.place.offset, {"a/1", "a/2", "a/4"}},
      {{gap}, gap, {"a/1", "a/2", kLong, "a/4"}},
      {{gap + 100 * 4096, gap + 101 * 4096}, gap + 100 * 4096, {"a/1", "a/2", kLong, "a/4"}},
      {{gap + 299 * 4096}, gap + 299 * 4096, {"a/1", "a/2", kLong, "a/4"}},
      {{tail}, tail, {"a/1", "a/2", kLong, "a/4"}},
      {{tail + 299 * 4096}, tail + 299 * 4096, {"a/1", "a/2", kLong, "a/4"}},
  };
  for (const Case& one : cases) {
    BadBlocks files;
    files.files = image.files;
    files.bad["segment-00000001.ebb"] = one.bad;
    auto store = scan_store(files, "/store", true);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ(names(*store), one.found) << one.at;
    ASSERT_EQ(store->damages.size(), 1u) << one.at;
    EXPECT_EQ(store->damages[0].file, "/store/segment-00000001.ebb");
    EXPECT_EQ(store->damages[0].offset, one.at);
    EXPECT_THAT(store->damages[0].what, HasSubstr("EIO"));
    if (one.at >= tail) {
      EXPECT_EQ(store->segments[0].end, image.segment(1).size()) << "it must not be overwritten";
    }
  }
}

// The index of an intermediate close lists too little, and new records precede those that reappear.
TEST(Scan, WhatCanBeReadAgainIsFoundAgainAndOlderThanWhatWasWrittenMeanwhile) {
  StoreImage image;
  image.add(1, describe("a", 1, {10'000}));
  const RecordHead last = image.add(1, describe("a", 2, {10'000}));
  BadBlocks files;
  files.files = image.files;
  files.bad["segment-00000001.ebb"] = {last.place.offset};
  const auto hurt = scan_store(files, "/store", true).value();
  EXPECT_THAT(names(hurt), ElementsAre("a/1"));
  EXPECT_GT(hurt.next_sequence, last.sequence);
  files.files["index"] = encode_index(hurt);
  files.bad["segment-00000001.ebb"].clear();
  const auto again = scan_store(files, "/store", true).value();
  EXPECT_THAT(names(again), ElementsAre("a/1", "a/2"));
  EXPECT_TRUE(again.damages.empty());
}

TEST(Scan, AnIndexThatCannotBeReadIsDamagedAndTheSegmentsAnswer) {
  for (const std::size_t bad : {0, 4096}) {
    StoreImage image;
    image.add(1, describe("a", 1, {1}));
    for (int i = 0; i < 100; ++i) image.add(1, describe("a", 2 + i, {0}));
    image.files["index"] = encode_index(scan(image.files).value());
    BadBlocks files;
    files.files = image.files;
    files.bad["index"] = {bad};
    auto store = scan_store(files, "/store", true);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_FALSE(store->from_index);
    EXPECT_EQ(names(*store).size(), 101u);
    ASSERT_EQ(store->damages.size(), 1u);
    EXPECT_EQ(store->damages[0].file, "/store/index");
    EXPECT_THAT(store->damages[0].what, HasSubstr("EIO"));
  }
}

TEST(Scan, ASegmentThatCannotBeOpenedAndADirectoryThatCannotBeListedAreErrors) {
  StoreImage image;
  image.add(1, describe("a", 1, {1}));
  test::ImageFiles inner;
  inner.files = image.files;
  std::uint64_t opens = 0;
  {
    doubles::FaultyFiles files(inner, 1);
    ASSERT_TRUE(scan_store(files, "/store", true));
    opens = files.count(doubles::FileCall::open);
  }
  for (const auto& [call, nth] :
       {std::pair(doubles::FileCall::open, opens), std::pair(doubles::FileCall::list, std::uint64_t{1})}) {
    doubles::FaultyFiles files(inner, 1);
    files.fail_nth(call, nth, EIO);
    const auto store = scan_store(files, "/store", true);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Errc::io_error);
  }
}

// A writer that finishes a record between two looks of a reader.
class Growing final : public doubles::NoFiles {
 public:
  Growing(Bytes before, Bytes after) : before_(std::move(before)), after_(std::move(after)) {}
  os::SysResult open(const Path&, os::Open, bool) noexcept override { return os::SysResult::of(3); }
  os::SysResult close(int) noexcept override { return os::SysResult::of(0); }
  os::SysResult read(int, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    const Bytes& now = offset == 4096 && looks_++ == 0 ? before_ : after_;
    const std::size_t many = offset >= now.size() ? 0 : std::min<std::size_t>(bytes, now.size() - offset);
    if (many) std::memcpy(memory, now.data() + offset, many);
    return os::SysResult::of(static_cast<std::int64_t>(many));
  }
  os::SysResult status(int, os::FileStatus& out) noexcept override {
    out.bytes = looks_ == 0 ? before_.size() : after_.size();
    return os::SysResult::of(0);
  }

 private:
  Bytes before_, after_;
  int looks_ = 0;
};

TEST(Scan, ARecordThatIsBeingWrittenIsNotCalledDamaged) {
  StoreImage image;
  const RecordHead head = image.add(1, describe("a", 1, {100}));
  const Bytes whole = image.segment(1);
  Bytes torn = whole, growing = whole;
  std::fill(torn.begin() + 4096 + 512, torn.begin() + 8192, std::byte{0});
  growing.resize(8192);
  for (const Bytes& before : {torn, growing}) {
    Growing files(before, whole);
    std::vector<Damage> damages;
    auto segment = scan_segment(files, "/store", image.head.store, 1, 0, damages).value();
    EXPECT_TRUE(damages.empty()) << damages[0].what;
    ASSERT_EQ(segment.records.size(), 1u);
    EXPECT_EQ(segment.records[0].head, head);
  }
}

TEST(Verify, ReadsAllOfARecordAndNamesWhatIsWrong) {
  StoreImage image;
  image.add(1, describe("other", 1, {1}));
  const RecordHead head = image.add(1, describe("hist", 17, {9000, 300}, "meta"));
  test::ImageFiles files;
  files.files = image.files;
  std::uint64_t read = 0;
  auto header = test::read_record(files, "/store", head, &read);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->description.history, "hist");
  EXPECT_EQ(header->description.info.metadata, "meta");
  EXPECT_EQ(read, head.payload_bytes);
  Bytes& bytes = files.files["segment-00000001.ebb"];
  for (std::uint64_t i = 0; i < head.header_bytes + head.payload_bytes; i += i < 600 ? 1 : 37) {
    bytes[head.place.offset + i] ^= std::byte{32};
    auto damaged = test::read_record(files, "/store", head);
    ASSERT_FALSE(damaged) << i;
    EXPECT_EQ(damaged.error().code, Errc::damaged);
    EXPECT_THAT(damaged.error().message, HasSubstr("version 17"));
    EXPECT_THAT(damaged.error().message, HasSubstr("/store/segment-00000001.ebb, offset "));
    if (i >= head.header_bytes) {
      EXPECT_THAT(damaged.error().message, HasSubstr("history 'hist'"));
    }
    bytes[head.place.offset + i] ^= std::byte{32};
  }
  bytes.resize(bytes.size() - 4096);
  EXPECT_EQ(test::read_record(files, "/store", head).error().code, Errc::damaged);
  image.drop(head);
  files.files = image.files;
  EXPECT_EQ(test::read_record(files, "/store", head).error().code, Errc::unknown_version);
  files.files.erase("segment-00000001.ebb");
  EXPECT_EQ(test::read_record(files, "/store", head).error().code, Errc::unknown_version);
}

}  // namespace
}  // namespace ebb::storage
