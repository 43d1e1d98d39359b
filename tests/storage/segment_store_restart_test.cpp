// What a process may trust in an earlier one's files: used numbers, failed syncs and missing syncs.
#include <cerrno>

#include "storage/admin/collect.hpp"
#include "tests/storage/segment_store_fixture.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::storage {
namespace {

class SegmentStoreRestartTest : public SegmentStoreFixture {
 protected:
  /// As after a killed process: without the writes of a close.
  void without_index() { std::filesystem::remove(directory_ / kIndexFile); }
  std::unique_ptr<PersistentStorage> reader() {
    PersistentOptions readonly = options_;
    readonly.readonly = true;
    return try_open(readonly).value();
  }
  Errc read_error(PersistentStorage& from, ObjectId id) {
    auto read = from.load_description(id);
    return read ? Errc::closed : read.error().code;
  }
};

TEST_F(SegmentStoreRestartTest, a_segment_number_is_never_used_again) {
  for (const bool clean : {true, false}) {
    SCOPED_TRACE(clean);
    const ObjectId first = kFirst + (clean ? 0 : 10);
    open();
    ASSERT_TRUE(persist(first, 0, 16384));
    const auto old = segments().back();
    const auto beside = reader();
    ASSERT_EQ(beside->found().size(), 1u);
    const ObjectId seen = beside->found()[0].object;
    storage_->drop(first);
    storage_.reset();
    EXPECT_EQ(read_error(*beside, seen), Errc::unknown_version) << "dropped";
    if (!clean) without_index();
    open();
    EXPECT_TRUE(storage_->found().empty());
    EXPECT_EQ(read_error(*beside, seen), Errc::unknown_version) << "dropped, and opened again";
    ASSERT_TRUE(persist(first + 1, 7, 16384));
    EXPECT_GT(segments().back(), old);
    EXPECT_EQ(read_error(*beside, seen), Errc::unknown_version) << "another was written";
    const auto added = beside->refresh();
    ASSERT_EQ(added.size(), 1u);
    EXPECT_EQ(added[0].version, 7);
    storage_->drop(first + 1);
    storage_.reset();
    EXPECT_EQ(segments().size(), 1u) << "the last one alone stays";
  }
}

TEST_F(SegmentStoreRestartTest, the_last_segment_takes_no_room_when_nothing_lives_in_it) {
  open();
  ASSERT_TRUE(persist(kFirst, 0, 500'000));
  storage_->drop(kFirst);
  storage_.reset();
  without_index();
  EXPECT_LE(allocated(), 3 * os::kBlock);
  // Killed while it was the one that is written.
  std::filesystem::resize_file(segments().back(), 1 << 20);
  open();
  EXPECT_EQ(std::filesystem::file_size(segments().back()), 2 * os::kBlock + os::round_up(500'000));
}

TEST_F(SegmentStoreRestartTest, what_a_killed_process_did_not_sync_is_synced_or_the_opening_fails) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  storage_.reset();
  for (const FileCall call : {FileCall::sync, FileCall::sync_directory}) {
    SCOPED_TRACE(static_cast<int>(call));
    without_index();
    files_.fail_nth(call, 1, EIO);
    const auto refused = try_open(options_);
    files_.clear_faults();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::io_error);
    EXPECT_NE(refused.error().message.find("syncing"), std::string::npos) << refused.error().message;
  }
  open();
  EXPECT_EQ(storage_->found().size(), 1u);
  storage_.reset();
  const std::uint64_t before = files_.count(FileCall::sync);
  open();
  EXPECT_EQ(files_.count(FileCall::sync), before) << "closed, it was all synced";
}

TEST_F(SegmentStoreRestartTest, the_removal_of_the_index_is_synced_though_an_earlier_opening_failed_at_that) {
  for (const bool synced : {true, false}) {
    SCOPED_TRACE(synced);
    options_.synced = synced;
    open();
    ASSERT_TRUE(persist(kFirst, 1, 16384));
    storage_.reset();
    for (std::uint64_t nth = 1; std::filesystem::exists(directory_ / kIndexFile); ++nth) {
      ASSERT_LT(nth, 9u);
      files_.fail_nth(FileCall::sync_directory, nth, EIO);
      ASSERT_FALSE(try_open(options_)) << "it was not synced before the first change";
      files_.clear_faults();
    }
    const std::size_t start = files_.records().size();
    open();
    const auto records = files_.records();
    EXPECT_TRUE(std::any_of(
        records.begin() + static_cast<std::ptrdiff_t>(start), records.end(),
        [&](const FileRecord& one) { return one.call == FileCall::sync_directory && one.path == directory_; }));
    storage_.reset();
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(SegmentStoreRestartTest, an_index_that_is_made_anew_does_not_speak_of_the_old_ones_damage) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  storage_.reset();
  flip(directory_ / kIndexFile, 20);
  open();
  ASSERT_EQ(storage_->damages().size(), 1u);
  EXPECT_EQ(storage_->damages()[0].file.filename(), kIndexFile);
  for (int restart = 0; restart < 2; ++restart) {
    reopen();
    EXPECT_TRUE(storage_->damages().empty());
    EXPECT_EQ(storage_->found().size(), 1u);
  }
}

TEST_F(SegmentStoreRestartTest, what_lies_behind_a_head_that_became_zeros_is_told_of_and_left_alone) {
  constexpr std::uint64_t kRecord = os::kBlock + os::round_up(40'000);
  const auto store = [&](std::uint64_t offset, std::vector<std::byte>& sector) {  // exchanges them
    const auto opened = files_.open(segments().at(0), os::Open::write, false);
    const os::File file(files_, static_cast<int>(opened.value), "", false);
    std::vector<std::byte> now(sector.size());
    ASSERT_TRUE(files_.read(file.fd(), now.data(), now.size(), offset));
    ASSERT_TRUE(files_.write(file.fd(), sector.data(), sector.size(), offset));
    ASSERT_TRUE(files_.sync(file.fd()));
    sector = now;
  };
  ObjectId id = kFirst;
  for (const std::vector<std::uint64_t>& gone :
       {std::vector<std::uint64_t>{1}, {2}, {0, 1, 2}}) {  // between, last, all
    SCOPED_TRACE(gone.front());
    open();
    for (Version version = 0; version < 3; ++version) ASSERT_TRUE(persist(id++, version, 40'000));
    storage_.reset();
    without_index();
    std::map<std::uint64_t, std::vector<std::byte>> sectors;
    for (const std::uint64_t which : gone) {
      store(os::kBlock + which * kRecord, sectors.emplace(which, std::vector<std::byte>(512)).first->second);
    }
    for (int restart = 0; restart < 2; ++restart) {
      open();
      EXPECT_EQ(storage_->found().size(), restart ? 0 : 3 - gone.size());
      ASSERT_EQ(storage_->damages().size(), 1u);
      EXPECT_EQ(storage_->damages()[0].offset, os::kBlock + gone.front() * kRecord);
      for (const Found& found : storage_->found()) storage_->drop(found.object);
      storage_.reset();
    }
    without_index();
    for (auto& [which, sector] : sectors) store(os::kBlock + which * kRecord, sector);
    open();
    ASSERT_EQ(storage_->found().size(), gone.size());
    for (const Found& found : storage_->found()) expect_back(found.object, found.version, 40'000);
    storage_.reset();
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(SegmentStoreRestartTest, a_small_record_whose_head_became_zeros_is_told_of_wherever_it_is_until_gc_removes_it) {
  constexpr std::uint64_t kSectors = 24;  // of three blocks, with a record in each
  test::StoreImage image;
  for (std::uint64_t block = 0; block < 3; ++block) {
    std::vector<std::pair<Description, test::Bytes>> small;
    for (auto version = static_cast<Version>(8 * block); small.size() < 8; ++version)
      small.emplace_back(test::describe("adjoint", version, {100}), test::random_bytes(100, block));
    ASSERT_EQ(image.add_block(1, small).back().record_bytes, kSector);
  }
  struct Gone {
    std::uint64_t from, to, told;  // of these sectors
  };
  for (const auto& [from, to, told] :
       {Gone{0, 1, 0}, {1, 2, 1}, {7, 8, 7}, {8, 9, 8}, {8, 17, 16}, {6, 17, 6}, {23, 24, 23}}) {
    SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to));
    auto files = image.files;
    std::fill_n(files[segment_name(1)].begin() + static_cast<std::ptrdiff_t>(os::kBlock + from * kSector),
                (to - from) * kSector, std::byte{});
    std::filesystem::create_directories(directory_);
    for (const auto& [name, bytes] : files) {
      const auto opened = files_.open(directory_ / name, os::Open::create, false);
      ASSERT_TRUE(opened);
      const os::File file(files_, static_cast<int>(opened.value), name, false);
      ASSERT_TRUE(files_.write(file.fd(), bytes.data(), bytes.size(), 0));
      ASSERT_TRUE(files_.sync(file.fd()));
    }
    for (int restart = 0; restart < 3; ++restart) {
      open();
      EXPECT_EQ(storage_->found().size(), kSectors - (to - from));
      ASSERT_EQ(storage_->damages().size(), restart < 2 ? 1 : 0);
      if (restart < 2) {
        EXPECT_EQ(storage_->damages()[0].offset, os::kBlock + told * kSector);
      }
      storage_.reset();
      if (restart == 1) {
        ASSERT_TRUE(collect(files_, directory_, {.damaged = true}));
      }
    }
    std::filesystem::remove_all(directory_);
  }
}

// A store that is handed to the system loses its files with the power, but not always the index of an earlier time.
TEST_F(SegmentStoreRestartTest, the_number_of_a_segment_that_went_with_the_power_is_not_given_again) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  reopen();
  std::filesystem::copy_file(directory_ / "index.old", directory_.string() + ".old");
  ASSERT_EQ(segments().size(), 1u);
  const std::filesystem::path lost = segments().front();
  storage_.reset();
  std::filesystem::remove(directory_ / "index");
  std::filesystem::remove(lost);
  std::filesystem::rename(directory_.string() + ".old", directory_ / "index.old");
  open();
  ASSERT_TRUE(persist(kFirst + 1, 2, 16384));
  EXPECT_FALSE(std::filesystem::exists(lost));
}

}  // namespace
}  // namespace ebb::storage
