// What inspect() says of a store, and verify_all() of its records.
#include "storage/admin/inspect.hpp"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/scan/record_reader.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/storage/memory_store.hpp"

namespace ebb::storage {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;
using test::describe;
using test::StoreImage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = admin::Verdict::Kind;

Result<Inspection> look(const StoreImage& image) {
  test::ImageFiles files;
  files.files = image.files;
  return inspect(files, test::ImageFiles::kDirectory);
}

std::vector<RecordHead> heads(const Inspection& seen) {
  std::vector<RecordHead> out;
  for (const Inspected& record : seen.records) out.push_back(record.head);
  return out;
}

std::vector<Kind> kinds(const std::vector<Verified>& verdicts) {
  std::vector<Kind> out;
  for (const Verified& verdict : verdicts) out.push_back(verdict.kind);
  return out;
}

TEST(Inspect, EveryByteOfASegmentIsCounted) {
  StoreImage image;
  const RecordHead old = image.add(1, describe("a", 1, {5000}));
  const RecordHead gone = image.add(1, describe("a", 2, {300}));
  image.drop(gone);
  image.leave(1, 3);
  const RecordHead hurt = image.add(1, describe("a", 3, {9000}));
  image.segment(1)[hurt.place.offset + 600] ^= std::byte{1};
  const RecordHead now = image.add(1, describe("a", 1, {100}));
  image.leave(1, 5);
  const Inspection seen = look(image).value();
  ASSERT_EQ(seen.segments.size(), 1u);
  const admin::SegmentUse& use = seen.segments[0];
  EXPECT_EQ(use.live, now.record_bytes);
  EXPECT_EQ(use.checkpoints, 1u);
  EXPECT_EQ(use.superseded, old.record_bytes);
  EXPECT_EQ(use.dropped, gone.record_bytes);
  EXPECT_EQ(use.gaps, 3 * os::kBlock);
  EXPECT_EQ(use.damaged, hurt.record_bytes);
  EXPECT_EQ(use.unused, 5 * os::kBlock);
  EXPECT_EQ(os::kBlock + use.live + use.superseded + use.dropped + use.gaps + use.damaged + use.unused, use.bytes);
  ASSERT_EQ(seen.records.size(), 2u);
  EXPECT_EQ(seen.records[0].head, now) << "of one name the one that counts comes first";
  EXPECT_FALSE(seen.records[0].superseded);
  EXPECT_TRUE(seen.records[1].superseded);
  ASSERT_EQ(seen.damages.size(), 1u);
  EXPECT_EQ(seen.damages[0].damage.offset, hurt.place.offset);
  EXPECT_EQ(seen.damages[0].version, 3);
  EXPECT_FALSE(seen.damages[0].history) << "only the body had it, and that is damaged";
}

TEST(Inspect, TheIndexNamesWhatADamagedHeadCannot) {
  StoreImage image;
  const RecordHead one = image.add(1, describe("adjoint", 7, {5000}));
  image.add(1, describe("adjoint", 8, {5000}));
  image.files["index"] = encode_index(test::scan(image.files).value());
  EXPECT_THAT(look(image).value().damages, IsEmpty());
  image.segment(1)[one.place.offset + 40] ^= std::byte{1};
  const Inspection seen = look(image).value();
  EXPECT_TRUE(seen.index);
  ASSERT_EQ(seen.damages.size(), 1u);
  EXPECT_EQ(seen.damages[0].history, "adjoint");
  EXPECT_EQ(seen.damages[0].version, 7);
}

TEST(Inspect, WhatTheIndexOnceKnewIsStillTold) {
  StoreImage image;
  const RecordHead one = image.add(1, describe("adjoint", 7, {5000}));
  ScannedStore scanned = test::scan(image.files).value();
  scanned.damages.push_back({"/store/segment-00000001.ebb", one.place.offset + 4096, "its payload"});
  scanned.damages.push_back({"/store/index", 0, "of the index before this one"});
  image.files["index"] = encode_index(scanned);
  const Inspection seen = look(image).value();
  ASSERT_EQ(seen.damages.size(), 1u);
  EXPECT_EQ(seen.damages[0].damage.what, "its payload");
  EXPECT_EQ(seen.damages[0].damage.file, "/store/segment-00000001.ebb");
  EXPECT_EQ(seen.damages[0].version, 7) << "whose place it is in";
}

TEST(Inspect, OtherFilesAreListedAndLeftOverOnes) {
  StoreImage image;
  for (const char* name : {"index.new", "store.new", "lock", "notes", "segment-1.ebb"}) image.files[name] = {};
  const Inspection seen = look(image).value();
  EXPECT_THAT(seen.left_over, ElementsAre("index.new", "store.new"));
  EXPECT_THAT(seen.others, ElementsAre("notes", "segment-1.ebb"));
  EXPECT_FALSE(seen.index);
}

// A writer first removes the index: a stale index does not describe the current records.
class IndexTakenAway final : public doubles::NoFiles {
 public:
  IndexTakenAway(test::ImageFiles& files, std::string when) : files_(files), when_(std::move(when)) {}
  os::SysResult open(const Path& path, os::Open how, bool direct) noexcept override {
    if (path.filename() == when_) files_.files.erase("index");
    return files_.open(path, how, direct);
  }
  os::SysResult close(int fd) noexcept override { return files_.close(fd); }
  os::SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    return files_.read(fd, memory, bytes, offset);
  }
  os::SysResult list(const Path& path, std::vector<std::string>& out) noexcept override {
    return files_.list(path, out);
  }
  os::SysResult status(const Path& path, os::FileStatus& out) noexcept override { return files_.status(path, out); }
  os::SysResult status(int fd, os::FileStatus& out) noexcept override { return files_.status(fd, out); }

 private:
  test::ImageFiles& files_;
  const std::string when_;
};

TEST(Inspect, AnIndexThatGoesAwayMeanwhileSaysNothing) {
  StoreImage image;
  image.add(1, describe("a", 1, {100}));
  image.files["index"] = encode_index(test::scan(image.files).value());
  image.drop(image.add(1, describe("a", 2, {100})));
  EXPECT_THAT(look(image).value().damages, ::testing::Not(IsEmpty())) << "the segment is longer than the index says";
  test::ImageFiles files;
  files.files = image.files;
  IndexTakenAway taken(files, segment_name(1));
  const Inspection seen = inspect(taken, "/store").value();
  EXPECT_THAT(seen.damages, IsEmpty());
  EXPECT_FALSE(seen.index);
}

TEST(VerifyAll, JudgesEachByItself) {
  StoreImage image;
  image.add(1, describe("a", 1, {50'000}));
  const RecordHead hurt = image.add(1, describe("a", 2, {50'000}));
  const RecordHead gone = image.add(2, describe("a", 3, {50'000}));
  image.add(2, describe("a", 4, {0}));
  image.segment(1)[hurt.place.offset + hurt.header_bytes + 20'000] ^= std::byte{1};
  const Inspection seen = look(image).value();
  image.drop(gone);  // since it was looked at
  test::ImageFiles files;
  files.files = image.files;
  for (const unsigned threads : {1u, 3u, 16u}) {
    const auto verdicts = verify_all(files, "/store", heads(seen), threads);
    EXPECT_THAT(kinds(verdicts), ElementsAre(Kind::intact, Kind::damaged, Kind::gone, Kind::intact));
    EXPECT_EQ(verdicts[1].damage.file, "/store/segment-00000001.ebb");
    EXPECT_EQ(verdicts[1].damage.offset, hurt.place.offset + hurt.header_bytes + 16'384);
  }
  EXPECT_EQ(files.open_files(), 0u);
}

TEST(VerifyAll, WhatIsDroppedWhileItIsReadIsNotDamaged) {
  StoreImage image;
  const RecordHead head = image.add(1, describe("a", 1, {2 * RecordReader::kPiece}));
  test::ImageFiles files;
  files.files = image.files;
  RecordReader reader(files, "/store", head);
  ASSERT_TRUE(reader.open());
  ASSERT_TRUE(reader.next());
  image.drop(head);
  files.files["segment-00000001.ebb"] = image.files["segment-00000001.ebb"];  // the rest of it is a hole now
  auto next = reader.next();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, Errc::unknown_version);
}

TEST(VerifyAll, EndsWhenItIsTold) {
  StoreImage image;
  for (Version version = 0; version < 20; ++version) image.add(1, describe("a", version, {5000}));
  test::ImageFiles files;
  files.files = image.files;
  const Inspection seen = inspect(files, "/store").value();
  for (const unsigned threads : {1u, 3u}) {
    std::atomic<int> told{0};
    const auto verdicts = verify_all(files, "/store", heads(seen), threads, [&](std::uint64_t) { return ++told < 5; });
    EXPECT_LT(told, 12);
    const auto unknown = std::ranges::count(kinds(verdicts), Kind::unknown);
    EXPECT_GE(unknown, 15);
    EXPECT_LT(unknown, 20) << "some were read before";
  }
  EXPECT_EQ(files.open_files(), 0u);
}

TEST(VerifyAll, TellsEveryByteThatItRead) {
  StoreImage image;
  std::uint64_t expected = 0;
  for (Version version = 0; version < 5; ++version) {
    const RecordHead head = image.add(1, describe("a", version, {5000 * static_cast<std::size_t>(version)}));
    expected += head.header_bytes + head.payload_bytes;
  }
  test::ImageFiles files;
  files.files = image.files;
  const Inspection seen = inspect(files, "/store").value();
  std::atomic<std::uint64_t> told{0};
  verify_all(files, "/store", heads(seen), 3, [&](std::uint64_t bytes) { return told += bytes, true; });
  EXPECT_EQ(told, expected);
}

TEST(VerifyAll, WhatCannotBeReadIsNamedAndTheOthersAreRead) {
  StoreImage image;
  for (Version version = 0; version < 3; ++version) image.add(1, describe("a", version, {5000}));
  test::ImageFiles plain;
  plain.files = image.files;
  const Inspection seen = inspect(plain, "/store").value();
  FaultyFiles files(plain, 1);
  files.fail_nth(FileCall::read, 3, EIO);  // header and payload of the first one are read well
  const auto verdicts = verify_all(files, "/store", heads(seen), 1);
  EXPECT_THAT(kinds(verdicts), ElementsAre(Kind::intact, Kind::unreadable, Kind::intact));
  EXPECT_THAT(verdicts[1].damage.what, HasSubstr("EIO"));
  EXPECT_EQ(verdicts[1].damage.file, "/store/segment-00000001.ebb");
}

}  // namespace
}  // namespace ebb::storage
