// Files that are removed, renamed or replaced from outside while a store is open: a version that is reported persistent
// has a named file.
#include <gmock/gmock.h>

#include "storage/admin/inspect.hpp"
#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SegmentStorePresenceTest : public SegmentStoreFixture {
 protected:
  void expect_lost(const Result<void>& how, const std::string& what) {
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().code, Errc::io_error);
    EXPECT_THAT(how.error().message, HasSubstr(what));
  }
  // Versions 1 to 3, in a segment each.
  void fill_segments(ObjectId first = kFirst) {
    open();
    for (Version version = 1; version <= 3; ++version) {
      ASSERT_TRUE(persist(first + static_cast<ObjectId>(version) - 1, version, 700'000));
    }
    ASSERT_EQ(segments().size(), 3u);
  }
  const fs::path aside_ = directory_.string() + "-aside";
  ~SegmentStorePresenceTest() override {
    storage_.reset();
    fs::remove_all(aside_);
  }
};

TEST_F(SegmentStorePresenceTest, a_segment_without_a_name_fails_the_next_sync_of_any_and_the_one_after_is_good) {
  for (const bool synced : {true, false}) {
    for (int gone = 0; gone < 3; ++gone) {
      SCOPED_TRACE(gone);
      const ObjectId base = kFirst + 1000 * static_cast<ObjectId>(gone + (synced ? 3 : 0));
      storage_.reset();
      fs::remove_all(directory_);
      options_.synced = synced;
      ASSERT_NO_FATAL_FAILURE(fill_segments(base));
      EXPECT_TRUE(storage_->check_files_exist());
      const fs::path segment = segments()[static_cast<std::size_t>(gone)];
      fs::remove(segment);
      const auto how = persist(base + 3, 9, 5000);
      expect_lost(how, segment.string());
      expect_lost(how, "version " + std::to_string(gone + 1) + " of \"adjoint\"");
      expect_lost(storage_->check_files_exist(), segment.string());
      EXPECT_TRUE(persist(base + 4, 10, 5000)) << "in a named file; the loss was reported";
      expect_back(base + 4, 10, 5000);
      storage_->stop();
      EXPECT_TRUE(fs::exists(directory_ / kIndexFile)) << "which lists the missing records";
      storage_.reset();
      open();
      std::set<Version> found;
      for (const Found& one : storage_->found()) found.insert(one.version);
      std::set<Version> left{1, 2, 3, 10};
      left.erase(gone + 1);
      EXPECT_EQ(found, left) << "what failed is not there";
      ASSERT_EQ(storage_->damages().size(), 1u);
      EXPECT_EQ(storage_->damages()[0].file, segment);
      EXPECT_THAT(storage_->damages()[0].what, HasSubstr("version " + std::to_string(gone + 1)));
    }
  }
}

TEST_F(SegmentStorePresenceTest, another_file_of_the_same_name_is_not_the_one_that_was_written) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  const fs::path segment = segments().at(0);
  fs::copy_file(segment, aside_);
  fs::rename(aside_, segment);
  expect_lost(persist(kFirst + 1, 2, 16384), segment.string());
  EXPECT_TRUE(persist(kFirst + 2, 3, 16384));
}

TEST_F(SegmentStorePresenceTest, another_directory_in_the_place_of_the_store_is_left_as_it_is) {
  ASSERT_NO_FATAL_FAILURE(fill_segments());
  fs::rename(directory_, aside_);
  expect_lost(persist(kFirst + 3, 4, 5000), "removed or renamed");
  auto first = std::move(storage_);
  open();
  for (ObjectId id = kFirst + 10; id < kFirst + 13; ++id) ASSERT_TRUE(persist(id, 7, 700'000));
  storage_->stop();
  storage_ = std::move(first);
  const auto all = [&] {
    std::map<fs::path, fs::file_time_type> out;
    for (const auto& entry : fs::directory_iterator(directory_)) out[entry.path()] = entry.last_write_time();
    return out;
  };
  const auto before = all();
  expect_lost(persist(kFirst + 4, 5, 5000), "replaced");
  expect_lost(persist(kFirst + 5, 6, 900'000), "replaced");
  for (ObjectId id = kFirst; id < kFirst + 3; ++id) storage_->drop(id);
  expect_lost(storage_->check_files_exist(), "replaced");
  storage_->stop();
  EXPECT_EQ(all(), before) << "nothing is written, made or removed there";
  storage_.reset();
  open();
  ASSERT_EQ(storage_->found().size(), 1u);
  EXPECT_TRUE(storage_->verify(storage_->found()[0].object));
}

TEST_F(SegmentStorePresenceTest, a_directory_that_is_back_is_the_store_again) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  fs::rename(directory_, aside_);
  expect_lost(persist(kFirst + 1, 2, 16384), directory_.string());
  fs::rename(aside_, directory_);
  EXPECT_TRUE(persist(kFirst + 2, 3, 16384));
  reopen();
  std::set<Version> found;
  for (const Found& one : storage_->found()) found.insert(one.version);
  EXPECT_EQ(found, (std::set<Version>{1, 3}));
}

TEST_F(SegmentStorePresenceTest, the_lock_is_to_be_there_for_it_keeps_others_out) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  fs::remove(directory_ / kLockFile);
  expect_lost(persist(kFirst + 1, 2, 16384), (directory_ / kLockFile).string());
}

// A process that has no descriptor left cannot list a directory, and can ask for each name.
TEST_F(SegmentStorePresenceTest, where_the_directory_cannot_be_listed_each_name_is_asked_for) {
  ASSERT_NO_FATAL_FAILURE(fill_segments());
  files_.fail_nth(FileCall::list, 1, EMFILE, FaultyFiles::kEver);
  EXPECT_TRUE(persist(kFirst + 3, 4, 5000));
  fs::remove(segments().at(0));
  expect_lost(persist(kFirst + 4, 5, 5000), "segment-00000001.ebb");
}

TEST_F(SegmentStorePresenceTest, what_this_store_removes_is_missed_by_nobody) {
  options_.sync_interval = std::chrono::milliseconds(0);
  ASSERT_NO_FATAL_FAILURE(fill_segments());
  for (ObjectId id = kFirst + 3; id < kFirst + 60; ++id) {
    storage_->drop(id - 2);
    EXPECT_TRUE(storage_->check_files_exist());
    ASSERT_TRUE(persist(id, static_cast<Version>(id - kFirst), 700'000));
  }
  EXPECT_LT(segments().size(), 8u);
}

TEST_F(SegmentStorePresenceTest, a_file_with_the_highest_number_does_not_stop_the_writing) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  storage_->stop();
  storage_.reset();
  fs::copy_file(segments().at(0), directory_ / segment_name(UINT64_MAX));
  open();
  EXPECT_TRUE(persist(kFirst + 1, 2, 16384));
  expect_back(kFirst + 1, 2, 16384);
}

}  // namespace
}  // namespace ebb::storage
