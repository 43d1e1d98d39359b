// A read-only store whose records disappear or are replaced.
#include <fstream>
#include <gmock/gmock.h>
#include <set>

#include "tests/doubles/memory_files.hpp"
#include "tests/storage/memory_store.hpp"
#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

using ::testing::HasSubstr;

class SegmentStoreReaderTest : public SegmentStoreFixture {
 protected:
  std::unique_ptr<PersistentStorage> open_reader() {
    PersistentOptions options = options_;
    options.readonly = true;
    return try_open(options).value();
  }
  ~SegmentStoreReaderTest() override { storage_.reset(); }

  doubles::MemoryFiles memory_;
};

// Of the same name's length, sizes, place and sequence: they differ only in the version, the time and the body.
TEST_F(SegmentStoreReaderTest, another_record_in_the_place_of_what_was_found_is_not_handed_out) {
  open();
  ASSERT_TRUE(persist(kFirst, 0, 100'000));
  storage_->stop();
  storage_.reset();
  auto reader = open_reader();
  ASSERT_EQ(reader->found().size(), 1u);
  const ObjectId found = reader->found()[0].object;
  for (const auto& path : segments()) std::filesystem::remove(path);
  std::filesystem::remove(directory_ / kIndexFile);
  open();
  ASSERT_TRUE(persist(kFirst + 1, 7, 100'000));
  ASSERT_EQ(segments().size(), 1u);
  ASSERT_EQ(segments()[0].filename(), "segment-00000001.ebb") << "or this shows nothing";

  std::swap(storage_, reader);
  Buffer in(100'000);
  const auto got = get(found, 0, in.data(), 100'000);
  ASSERT_FALSE(got) << "bytes of version 7 were handed out as version 0";
  EXPECT_EQ(got.error().code, Errc::damaged);
  EXPECT_THAT(got.error().message, HasSubstr("another record is in its place"));
  const auto read = storage_->load_description(found);
  ASSERT_FALSE(read) << "the description of version 7 was handed out as that of version 0";
  EXPECT_EQ(read.error().code, Errc::damaged);
  EXPECT_EQ(storage_->verify(found).error().code, Errc::damaged);
  std::swap(storage_, reader);

  // Nor is version 0 dropped when that one is.
  ASSERT_TRUE(persist(kFirst + 2, 8, 100));
  storage_->drop(kFirst + 1);
  settle();
  std::swap(storage_, reader);
  EXPECT_EQ(get(found, 0, in.data(), 100'000).error().code, Errc::damaged);
  EXPECT_EQ(storage_->load_description(found).error().code, Errc::damaged);
  EXPECT_EQ(storage_->verify(found).error().code, Errc::damaged);
  std::swap(storage_, reader);
}

// The index is complete with a correct checksum, but was not written by a writer of this store.
class SegmentStoreIndexTest : public SegmentStoreReaderTest {
 protected:
  static test::Bytes bytes_of(const std::string& history) { return test::random_bytes(20'000, history[0]); }
  // "left", "gone" and "here", one version of each; `forge` changes the index.
  void open_forged(const std::function<void(std::vector<ScannedRecord>&)>& forge) {
    test::StoreImage image;
    for (const std::string history : {"left", "gone", "here"}) {
      image.add(1, test::describe(history, 3, {20'000}), bytes_of(history));
    }
    ScannedStore scanned = test::scan(image.files).value();
    forge(scanned.segments[0].records);
    image.files[kIndexFile] = encode_index(scanned);
    test::put_image(memory_, image);
    PersistentOptions options = options_;
    options.directory = test::kStore;
    options.readonly = true;
    storage_ = open_persistent_storage(memory_, clock_, options, completions_.done(), {}).value();
    ASSERT_EQ(storage_->found().size(), 3u);
  }
  void expect_refused(const Found& found, const std::string& why) {
    SCOPED_TRACE(found.history);
    Buffer in(20'480);
    const Result<void> all[] = {
        get(found.object, 0, in.data(), 20'000), storage_->verify(found.object),
        storage_->read_payload(found.object, [](std::uint64_t, std::span<const std::byte>) {}),
        storage_->region_checksums(found.object) ? Result<void>() : storage_->region_checksums(found.object).error(),
        storage_->load_description(found.object) ? Result<void>() : storage_->load_description(found.object).error()};
    for (std::size_t i = 0; i < std::size(all); ++i) {
      ASSERT_FALSE(all[i]) << "call " << i << " handed it out";
      EXPECT_EQ(all[i].error().code, Errc::damaged);
      EXPECT_THAT(all[i].error().message, HasSubstr(why)) << "call " << i;
    }
  }
  void expect_right(const Found& found) {
    Buffer in(20'480);
    ASSERT_TRUE(get(found.object, 0, in.data(), 20'000));
    EXPECT_TRUE(std::ranges::equal(in.first(20'000), bytes_of(found.history)));
    EXPECT_EQ(storage_->load_description(found.object).value()->history, found.history);
    EXPECT_TRUE(storage_->verify(found.object));
  }
};

// These two have the same index entries except for the names' letters.
TEST_F(SegmentStoreIndexTest, a_record_is_not_handed_out_under_the_name_of_another_history) {
  ASSERT_NO_FATAL_FAILURE(open_forged([](auto& records) { std::swap(records[0].history, records[1].history); }));
  for (const Found& found : storage_->found()) {
    if (found.history == "here")
      expect_right(found);
    else
      expect_refused(found, "another history's record is in its place");
  }
}

TEST_F(SegmentStoreIndexTest, a_record_without_checksums_is_one_only_if_its_own_header_says_so) {
  ASSERT_NO_FATAL_FAILURE(open_forged([](auto& records) { records[0].head.block_bytes = 0; }));
  for (const Found& found : storage_->found()) {
    if (found.history == "left")
      expect_refused(found, "another record is in its place");
    else
      expect_right(found);
  }
}

// Bytes in a payload are not a record, whatever they look like, and whatever was there before.
TEST_F(SegmentStoreReaderTest, looking_again_finds_nothing_within_a_record) {
  test::StoreImage image, before;
  before.leave(1, 2);
  const RecordHead inner = before.add(1, test::describe("inner", 1, {5000}));
  const auto copy = std::span(before.segment(1)).subspan(inner.place.offset, inner.record_bytes);
  test::Bytes payload(4096);
  ASSERT_EQ(inner.place.offset, 3 * 4096u) << "two headers and a block from the start";
  payload.insert(payload.end(), copy.begin(), copy.end());
  image.add(1, test::describe("outer", 1, {payload.size()}), payload);
  image.files[kOldIndexFile] = encode_index(test::scan(before.files).value());
  test::put_image(memory_, image);
  PersistentOptions options = options_;
  options.directory = test::kStore;
  options.readonly = true;
  storage_ = open_persistent_storage(memory_, clock_, options, completions_.done(), {}).value();
  ASSERT_EQ(storage_->found().size(), 1u);
  EXPECT_EQ(storage_->found()[0].history, "outer");
  EXPECT_EQ(storage_->damages().size(), 1u) << "or this shows nothing";
  for (const Found& one : storage_->refresh()) ADD_FAILURE() << one.history;
}

// A segment has its whole length from the start, and a payload of zeros looks like unwritten space.
TEST_F(SegmentStoreReaderTest, looking_again_reads_little_where_nothing_is_new_and_misses_nothing) {
  FaultyFiles read(memory_, 1);
  PersistentOptions options = options_;
  options.directory = "/store";
  options.segment_bytes = options.capacity = 32 << 20;
  options.sync_interval = std::chrono::hours(1);
  storage_ = open_persistent_storage(memory_, clock_, options, completions_.done(), persisted_.callback()).value();
  ASSERT_TRUE(persist(kFirst, 0, 100'000));
  options.readonly = true;
  const auto reader = open_persistent_storage(read, clock_, options, completions_.done(), {}).value();
  ASSERT_EQ(reader->found().size(), 1u);
  const auto look = [&] {
    std::set<Version> versions;
    const std::size_t before = read.records().size();
    for (const Found& found : reader->refresh()) versions.insert(found.version);
    std::uint64_t bytes = 0;
    const auto records = read.records();
    for (std::size_t i = before; i < records.size(); ++i) {
      if (records[i].call == FileCall::read && records[i].result)
        bytes += static_cast<std::uint64_t>(records[i].result.value);
    }
    return std::pair(versions, bytes);
  };
  const std::set<Version> none;
  EXPECT_EQ(look().first, none);
  EXPECT_LE(look().second, 64u << 10) << "of 32 MiB";

  ASSERT_TRUE(storage_->begin(kFirst + 1, describe(1, 300'000)));  // a place that is not written yet
  const Buffer zeros(3 << 20);
  std::ranges::fill(zeros.first(3 << 20), std::byte{0});
  ASSERT_TRUE(storage_->begin(kFirst + 2, describe(2, 3 << 20)));
  ASSERT_TRUE(put(kFirst + 2, 3 << 20, 0, zeros.data(), 3 << 20));
  EXPECT_EQ(look().first, none) << "it is not complete";
  ASSERT_TRUE(persist(kFirst + 3, 3, 5000));
  ASSERT_TRUE(persisted_.of(kFirst + 2))
      << "its end was perhaps still being reported: it may have come with the next batch";
  EXPECT_EQ(look().first, (std::set<Version>{2, 3}));
  EXPECT_EQ(look().first, none);
  Buffer late(300'000);
  late.scramble(1);
  ASSERT_TRUE(put(kFirst + 1, 300'000, 0, late.data(), 300'000));
  storage_->commit();
  ASSERT_TRUE(persisted_.of(kFirst + 1));
  EXPECT_EQ(look().first, std::set<Version>{1}) << "before what it saw already";
  EXPECT_EQ(look().first, none);
  EXPECT_LE(look().second, 64u << 10);
}

// However many segments there are.
TEST_F(SegmentStoreReaderTest, looking_again_where_nothing_has_changed_takes_three_calls_and_misses_nothing) {
  FaultyFiles read(memory_, 1);
  PersistentOptions options = options_;
  options.directory = "/store";
  options.sync_interval = std::chrono::hours(1);
  storage_ = open_persistent_storage(memory_, clock_, options, completions_.done(), persisted_.callback()).value();
  for (Version version = 0; version < 20; ++version) {
    ASSERT_TRUE(persist(kFirst + static_cast<ObjectId>(version), version, 700'000));
  }
  options.readonly = true;
  const auto reader = open_persistent_storage(read, clock_, options, completions_.done(), {}).value();
  const auto look = [&] {  // new checkpoints, and the number of calls
    const std::size_t before = read.records().size();
    std::set<Version> versions;
    for (const Found& found : reader->refresh()) versions.insert(found.version);
    return std::pair(versions, read.records().size() - before);
  };
  const std::pair nothing(std::set<Version>{}, std::size_t{3});
  static_cast<void>(look());  // the first opens the file
  EXPECT_EQ(look(), nothing);
  const ObjectId dropped = reader->found()[3].object;
  EXPECT_FALSE(reader->was_dropped(dropped));
  for (int turn = 0; turn < 50; ++turn) {
    const std::uint64_t looks = reader->changes_seen();
    ASSERT_TRUE(persist(kFirst + 100 + static_cast<ObjectId>(turn), 100 + turn, 5000));
    EXPECT_EQ(look().first, std::set<Version>{100 + turn});
    EXPECT_GT(reader->changes_seen(), looks);
    EXPECT_EQ(look(), nothing);
  }
  storage_->drop(kFirst + 3);
  ASSERT_TRUE(persist(kFirst + 200, 200, 5000));
  ASSERT_TRUE(persist(kFirst + 201, 201, 5000));  // the batch before it is over
  static_cast<void>(look());
  EXPECT_TRUE(reader->was_dropped(dropped));
  storage_->stop();
  storage_.reset();
  static_cast<void>(look());
  static_cast<void>(look());
  EXPECT_EQ(look(), nothing) << "now there is an index";
  options.readonly = false;
  storage_ = open_persistent_storage(memory_, clock_, options, completions_.done(), persisted_.callback()).value();
  ASSERT_TRUE(persist(kFirst + 300, 300, 5000));
  EXPECT_EQ(look().first, std::set<Version>{300});
}

// One of release 0.1.0, say: its file `lock` has its name alone.
TEST_F(SegmentStoreReaderTest, beside_a_writer_that_tells_nothing_each_look_is_a_scan) {
  open();
  ASSERT_TRUE(persist(kFirst, 0, 16384));
  FaultyFiles read(posix_, 1);
  PersistentOptions options = options_;
  options.readonly = true;
  const auto reader = open_persistent_storage(read, clock_, options, completions_.done(), {}).value();
  const auto scans = [&] {
    const std::uint64_t before = reader->changes_seen();
    EXPECT_TRUE(reader->refresh().empty());
    return reader->changes_seen() - before;
  };
  EXPECT_EQ(scans(), 0u);
  for (const char* text : {"", "process 17 on node3\n"}) {
    std::ofstream(directory_ / kLockFile, std::ios::trunc) << text;
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(scans(), 1u) << text;
  }
  std::filesystem::remove(directory_ / kLockFile);
  EXPECT_EQ(scans(), 1u);
  EXPECT_EQ(scans(), 1u);
}

TEST_F(SegmentStoreReaderTest, looking_again_notices_what_was_dropped_whatever_shares_its_block) {
  constexpr Version kMany = 20;
  options_.sync_interval = std::chrono::hours(1);
  open();
  for (Version version = 0; version < kMany; ++version)
    ASSERT_TRUE(write(kFirst + static_cast<ObjectId>(version), version, 300));
  ASSERT_TRUE(persist(kFirst + kMany, kMany, 300));
  const auto reader = open_reader();
  ASSERT_EQ(reader->found().size(), kMany + 1u);
  for (Version version = 0; version < kMany; version += 3) storage_->drop(kFirst + static_cast<ObjectId>(version));
  settle();
  EXPECT_EQ(reader->refresh().size(), 2u) << "of settling";
  for (const Found& found : reader->found())
    EXPECT_EQ(reader->was_dropped(found.object), found.version < kMany && found.version % 3 == 0) << found.version;
}

// What could not be read is looked for again.
TEST_F(SegmentStoreReaderTest, a_look_that_failed_is_made_again) {
  open();
  ASSERT_TRUE(persist(kFirst, 0, 16384));
  FaultyFiles read(posix_, 1);
  PersistentOptions options = options_;
  options.readonly = true;
  const auto reader = open_persistent_storage(read, clock_, options, completions_.done(), {}).value();
  Version version = 1;
  for (const FileCall call : {FileCall::list, FileCall::open, FileCall::status, FileCall::read}) {
    for (std::uint64_t nth = 1; nth <= 4; ++nth, ++version) {
      ASSERT_TRUE(persist(kFirst + static_cast<ObjectId>(version), version, 16384));
      read.fail_nth(call, nth, EIO);
      std::size_t found = reader->refresh().size();
      read.clear_faults();
      found += reader->refresh().size();
      EXPECT_EQ(found, 1u) << "call " << int(call) << ", number " << nth;
    }
  }
}

}  // namespace
}  // namespace ebb::storage
