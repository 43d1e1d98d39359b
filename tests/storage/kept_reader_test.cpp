// A store that is only read, while what it found is not there any more, or something else is in its place.
#include <gmock/gmock.h>

#include <set>

#include "platform/testing/memory_files.hpp"
#include "tests/storage/kept_fixture.hpp"

namespace ebb::storage {
namespace {

using ::testing::HasSubstr;

class KeptReaderTest : public KeptFixture {
 protected:
  std::unique_ptr<KeptStorage> open_reader() {
    KeptOptions options = options_;
    options.readonly = true;
    return try_open(options).value();
  }
  ~KeptReaderTest() override { storage_.reset(); }

  platform::testing::MemoryFiles memory_;
};

// Of the same name's length, sizes, place and sequence: only the version, the time and the body tell them apart.
TEST_F(KeptReaderTest, another_record_in_the_place_of_what_was_found_is_not_handed_out) {
  open();
  ASSERT_TRUE(keep(kFirst, 0, 100'000));
  storage_->stop();
  storage_.reset();
  auto reader = open_reader();
  ASSERT_EQ(reader->found().size(), 1u);
  const ObjectId found = reader->found()[0].object;
  for (const auto& path : segments()) std::filesystem::remove(path);
  std::filesystem::remove(directory_ / kIndexFile);
  open();
  ASSERT_TRUE(keep(kFirst + 1, 7, 100'000));
  ASSERT_EQ(segments().size(), 1u);
  ASSERT_EQ(segments()[0].filename(), "segment-00000001.ebb") << "or this shows nothing";

  std::swap(storage_, reader);
  Buffer in(100'000);
  const auto got = get(found, 0, in.data(), 100'000);
  ASSERT_FALSE(got) << "bytes of version 7 were handed out as version 0";
  EXPECT_EQ(got.error().code, Errc::damaged);
  EXPECT_THAT(got.error().message, HasSubstr("another record is in its place"));
  const auto read = storage_->read(found);
  ASSERT_FALSE(read) << "the description of version 7 was handed out as that of version 0";
  EXPECT_EQ(read.error().code, Errc::damaged);
  EXPECT_EQ(storage_->verify(found).error().code, Errc::damaged);
  std::swap(storage_, reader);

  // Nor is version 0 dropped when that one is.
  ASSERT_TRUE(keep(kFirst + 2, 8, 100));
  storage_->drop(kFirst + 1);
  settle();
  std::swap(storage_, reader);
  EXPECT_EQ(get(found, 0, in.data(), 100'000).error().code, Errc::damaged);
  EXPECT_EQ(storage_->read(found).error().code, Errc::damaged);
  EXPECT_EQ(storage_->verify(found).error().code, Errc::damaged);
  std::swap(storage_, reader);
}

// A segment has its whole length from the start, and a payload of zeros looks like what was never written.
TEST_F(KeptReaderTest, looking_again_reads_little_where_nothing_is_new_and_misses_nothing) {
  FaultyFiles read(memory_, 1);
  KeptOptions options = options_;
  options.directory = "/store";
  options.segment_bytes = options.capacity = 32 << 20;
  options.sync_interval = std::chrono::hours(1);
  storage_ = open_kept_storage(memory_, clock_, options, completions_.done(), kept_.kept()).value();
  ASSERT_TRUE(keep(kFirst, 0, 100'000));
  options.readonly = true;
  const auto reader = open_kept_storage(read, clock_, options, completions_.done(), {}).value();
  ASSERT_EQ(reader->found().size(), 1u);
  const auto look = [&] {
    std::set<Version> versions;
    const std::size_t before = read.records().size();
    for (const Found& found : reader->refresh()) versions.insert(found.version);
    std::uint64_t bytes = 0;
    const auto records = read.records();
    for (std::size_t i = before; i < records.size(); ++i) {
      if (records[i].call == FileCall::read && records[i].result) bytes += static_cast<std::uint64_t>(records[i].result.value);
    }
    return std::pair(versions, bytes);
  };
  const std::set<Version> none;
  EXPECT_EQ(look().first, none);
  EXPECT_LE(look().second, 64u << 10) << "of 32 MiB";

  ASSERT_TRUE(storage_->begin(kFirst + 1, describe(1, 300'000)));  // a place that is not filled yet
  const Buffer zeros(3 << 20);
  std::ranges::fill(zeros.first(3 << 20), std::byte{0});
  ASSERT_TRUE(storage_->begin(kFirst + 2, describe(2, 3 << 20)));
  ASSERT_TRUE(put(kFirst + 2, 3 << 20, 0, zeros.data(), 3 << 20));
  EXPECT_EQ(look().first, none) << "it is not complete";
  ASSERT_TRUE(keep(kFirst + 3, 3, 5000));
  EXPECT_EQ(look().first, (std::set<Version>{2, 3}));
  EXPECT_EQ(look().first, none);
  Buffer late(300'000);
  late.scramble(1);
  ASSERT_TRUE(put(kFirst + 1, 300'000, 0, late.data(), 300'000));
  storage_->commit();
  ASSERT_TRUE(kept_.of(kFirst + 1));
  EXPECT_EQ(look().first, std::set<Version>{1}) << "before what it saw already";
  EXPECT_EQ(look().first, none);
  EXPECT_LE(look().second, 64u << 10);
}

}  // namespace
}  // namespace ebb::storage
