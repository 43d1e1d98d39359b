// Older writings of a version: they are never offered again once a newer one was there, whatever became of that.
#include <cerrno>
#include <gmock/gmock.h>

#include "storage/admin/collect.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/scan/unreadable.hpp"
#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class SegmentStoreHiddenTest : public SegmentStoreFixture {
 protected:
  static constexpr std::size_t kOld = 16384, kNew = 20480;

  SegmentStoreHiddenTest() { options_.sync_interval = std::chrono::hours(1); }

  /// Ends this process, as a close or as a kill would.
  void end(bool clean = true) {
    storage_.reset();
    if (!clean) std::filesystem::remove(directory_ / kIndexFile);
  }
  /// The head of a store's only record.
  std::pair<std::filesystem::path, std::uint64_t> place_of(Version version) {
    for (const ScannedSegment& segment : scan_store(posix_, directory_, false).value().segments) {
      for (const ScannedRecord& record : segment.records) {
        if (record.head.version == version)
          return {segment_path(directory_, segment.segment), record.head.place.offset};
      }
    }
    return {};
  }
  static std::vector<std::pair<Version, std::uint64_t>> sizes(const std::vector<Found>& found) {
    std::vector<std::pair<Version, std::uint64_t>> out;
    for (const Found& one : found) out.emplace_back(one.version, one.bytes);
    return out;
  }
  std::vector<std::pair<Version, std::uint64_t>> offered() { return sizes(storage_->found()); }
  std::unique_ptr<PersistentStorage> reader() {
    PersistentOptions readonly = options_;
    readonly.readonly = true;
    return try_open(readonly).value();
  }
  /// A store opened for writing, whose only record, of version 7, is unreadable.
  void open_unreadable(ObjectId id = kFirst) {
    open();
    ASSERT_TRUE(persist(id, 7, kOld));
    end();
    std::filesystem::remove(directory_ / kIndexFile);
    old_ = place_of(7);
    files_.make_unreadable(old_.first, old_.second);
    open();
    ASSERT_THAT(offered(), IsEmpty());
    ASSERT_EQ(storage_->damages().size(), 1u);
  }

  std::pair<std::filesystem::path, std::uint64_t> old_;
};

TEST_F(SegmentStoreHiddenTest, what_was_dropped_stays_gone_though_an_older_writing_can_be_read_again) {
  for (const bool clean : {true, false}) {
    SCOPED_TRACE(clean);
    const ObjectId id = kFirst + (clean ? 0 : 10);
    open_unreadable(id);
    ASSERT_TRUE(persist(id + 1, 7, kNew));
    storage_->drop(id + 1);
    settle();
    end(clean);
    files_.clear_faults();
    EXPECT_THAT(sizes(reader()->found()), Not(Contains(std::pair(Version{7}, std::uint64_t{kOld}))));
    open();
    EXPECT_THAT(offered(), Not(Contains(std::pair(Version{7}, std::uint64_t{kOld}))));
    end(clean);
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(SegmentStoreHiddenTest, though_all_of_its_segment_was_dropped) {
  open_unreadable();
  ASSERT_TRUE(persist(kFirst + 1, 7, 1'000'000));  // a separate segment
  ASSERT_TRUE(persist(kFirst + 2, 8, 1'000'000));
  storage_->drop(kFirst + 1);
  end();
  files_.clear_faults();
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(8, 1'000'000)));
  end();
  EXPECT_EQ(segments().size(), 1u) << "it is removed when the older record is gone permanently";
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(8, 1'000'000)));
}

// Where its block is damaged, how far a dropped record went is unknown: its neighbour is no part of it.
TEST_F(SegmentStoreHiddenTest, a_listed_drop_hides_no_damage_of_its_neighbour) {
  for (const bool unreadable : {true, false}) {
    SCOPED_TRACE(unreadable);
    open();
    ObjectId id = kFirst + (unreadable ? 0 : 10'000);
    Version version = 0;
    do {  // until two are committed together
      ASSERT_TRUE(write(++id, ++version, 300));
      ASSERT_TRUE(persist(++id, ++version, 300));
    } while (place_of(version).second % os::kBlock == 0);
    storage_->drop(id - 1);
    settle();
    end(false);
    const auto [path, offset] = place_of(version);
    const std::uint64_t block = offset / os::kBlock * os::kBlock;
    if (unreadable) {
      files_.make_unreadable(path, block);
    } else {
      flip(path, block + 200);
      flip(path, offset + 200);
    }
    open();
    ASSERT_EQ(storage_->damages().size(), unreadable ? 1u : 2u);
    EXPECT_EQ(storage_->damages().back().unreadable, unreadable);
    end(false);
    ASSERT_TRUE(collect(files_, directory_, {}));
    files_.clear_faults();
    if (!unreadable) flip(path, offset + 200);
    std::filesystem::remove(directory_ / kIndexFile);
    open();
    EXPECT_THAT(offered(), Contains(std::pair(version, std::uint64_t{300})));
    EXPECT_THAT(offered(), Not(Contains(std::pair(version - 1, std::uint64_t{300}))));
    end(false);
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(SegmentStoreHiddenTest, what_was_written_anew_is_offered_alone) {
  open_unreadable();
  ASSERT_TRUE(persist(kFirst + 1, 7, kNew));
  end();
  files_.clear_faults();
  EXPECT_THAT(sizes(reader()->found()), ElementsAre(std::pair(7, kNew)));
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(7, kNew)));
  // The older one is gone before the newer is offered: were that one's mark to rot, no old bytes would come.
  std::size_t live = 0;
  for (const ScannedSegment& segment : scan_store(posix_, directory_, false).value().segments)
    live += segment.records.size();
  EXPECT_EQ(live, 1u);
}

TEST_F(SegmentStoreHiddenTest, what_could_not_be_kept_hides_nothing) {
  open_unreadable();
  ASSERT_TRUE(write(kFirst + 1, 7, kNew));
  files_.fail_nth(FileCall::sync, 2, EIO);  // after its header
  storage_->commit();
  ASSERT_FALSE(persisted_.of(kFirst + 1));
  end();
  files_.clear_faults();
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(7, kOld))) << "what was durable before still counts";
}

TEST_F(SegmentStoreHiddenTest, an_older_writing_that_cannot_be_marked_stays_hidden) {
  open_unreadable();
  ASSERT_TRUE(persist(kFirst + 1, 7, 1'000'000));
  ASSERT_TRUE(persist(kFirst + 2, 8, 1'000'000));
  storage_->drop(kFirst + 1);
  end();
  files_.clear_faults();
  for (int again = 0; again < 2; ++again) {
    files_.fail_nth(FileCall::write, 1, EIO, FaultyFiles::kEver);
    open();
    EXPECT_THAT(offered(), ElementsAre(std::pair(8, 1'000'000)));
    EXPECT_THAT(sizes(reader()->found()), ElementsAre(std::pair(8, 1'000'000))) << "were this process killed";
    end();
    files_.clear_faults();
  }
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(8, 1'000'000)));
  end();
  EXPECT_EQ(segments().size(), 1u);
}

TEST_F(SegmentStoreHiddenTest, what_is_refused_beside_an_old_writing_is_not_found_by_the_next_process) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  storage_->drop(kFirst);
  ASSERT_TRUE(write(kFirst + 1, 7, kNew));
  files_.make_unreadable(segment_path(directory_, 1), 4096);  // the old one's head, which is to be dropped
  storage_->commit();
  ASSERT_FALSE(persisted_.of(kFirst + 1));
  files_.clear_faults();
  EXPECT_THAT(sizes(reader()->found()), ElementsAre(std::pair(7, kOld))) << "were this process killed";
}

TEST_F(SegmentStoreHiddenTest, where_that_cannot_be_synced_nothing_else_in_its_segment_is_called_kept) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  storage_->drop(kFirst);
  ASSERT_TRUE(write(kFirst + 1, 7, kNew));
  ASSERT_TRUE(storage_->begin(kFirst + 2, describe(8, kNew)));  // its bytes may be under that sync too
  files_.make_unreadable(segment_path(directory_, 1), 4096);    // the old one's head
  files_.fail_nth(FileCall::sync, 3, EIO);                      // after those of payload and header
  storage_->commit();
  ASSERT_FALSE(persisted_.of(kFirst + 1));
  EXPECT_FALSE(persisted_.of(kFirst + 2)) << "its loss is reported too";
  EXPECT_TRUE(persist(kFirst + 3, 9, kNew)) << "the next segment is another one";
}

TEST_F(SegmentStoreHiddenTest, a_segment_that_was_to_go_says_what_was_dropped_where_it_stays) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1'000'000));
  ASSERT_TRUE(persist(kFirst + 1, 2, 600'000));
  ASSERT_TRUE(persist(kFirst + 2, 3, 100'000));
  ASSERT_TRUE(persist(kFirst + 3, 4, 900'000));
  storage_->drop(kFirst);      // all of the first segment
  storage_->drop(kFirst + 1);  // a part of the second
  files_.fail_nth(FileCall::read, 1, EIO);
  settle();
  for (const auto& [version, bytes] : sizes(reader()->found())) EXPECT_NE(version, 1) << "were this process killed";
}

TEST_F(SegmentStoreHiddenTest, what_was_left_because_it_could_not_be_read_goes_when_it_is_written_anew) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  end();
  open();
  storage_->abandon(storage_->found().at(0).object);
  ASSERT_TRUE(persist(kFirst + 1, 7, kNew));
  storage_->drop(kFirst + 1);
  settle();
  end();
  open();  // by the index, which knows of no drops
  EXPECT_THAT(offered(), Not(Contains(std::pair(Version{7}, std::uint64_t{kOld}))));
}

TEST_F(SegmentStoreHiddenTest, what_the_disk_still_cannot_read_is_no_reason_to_refuse_the_new_one) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  end();
  open();
  const auto [segment, head] = place_of(7);
  files_.make_unreadable(segment, head);
  storage_->abandon(storage_->found().at(0).object);
  const auto kept = persist(kFirst + 1, 7, kNew);
  EXPECT_TRUE(kept) << kept.error().message;
  end();
  files_.clear_faults();
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(Version{7}, std::uint64_t{kNew})));
}

TEST_F(SegmentStoreHiddenTest, behind_what_cannot_be_read_at_the_end_of_a_segment_there_may_be_more) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  end();
  const std::filesystem::path segment = segments().at(0);
  const std::uint64_t bytes = std::filesystem::file_size(segment);
  std::filesystem::resize_file(segment, bytes + (1 << 16));  // a killed process's, which had room left
  std::filesystem::remove(directory_ / kIndexFile);
  files_.make_unreadable(segment, bytes);
  open();
  ASSERT_EQ(storage_->damages().size(), 1u);
  EXPECT_TRUE(storage_->damages().at(0).unreadable) << storage_->damages().at(0).what;
  EXPECT_EQ(storage_->damages().at(0).offset, bytes);
  ASSERT_TRUE(persist(kFirst + 1, 8, kNew));
  const std::filesystem::path other = segments().back();
  ASSERT_NE(other, segment);
  ASSERT_TRUE(persist(kFirst + 2, 9, 1 << 20));
  ASSERT_NE(segments().back(), other) << "the last segment always stays";
  storage_->drop(kFirst + 1);
  end();
  EXPECT_THAT(segments(), Contains(other)) << "its drop may hide an older writing that was not read";
  files_.clear_faults();
  open();
  EXPECT_THAT(offered(),
              ElementsAre(std::pair(Version{7}, std::uint64_t{kOld}), std::pair(Version{9}, std::uint64_t{1 << 20})));
}

TEST_F(SegmentStoreHiddenTest, an_index_that_names_another_record_drops_none) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  ASSERT_TRUE(persist(kFirst + 1, 8, kOld));
  end();
  const auto path = directory_ / kIndexFile;
  auto file = read_index(posix_, path).value().value();
  auto store_file = open_store_directory(posix_, directory_, {.readonly = true});
  auto index = parse_index(file.bytes, store_file->head()).value();
  index.segments.at(0).records.at(0).head.version = 8;  // of which that of the other one is newer
  const std::vector<std::byte> lie = encode_index(index);
  {
    const os::File out(posix_, static_cast<int>(posix_.open(path, os::Open::write, false).value), path, false);
    ASSERT_TRUE(posix_.write(out.fd(), lie.data(), lie.size(), 0));
  }
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(8, kOld)));
  end(false);
  open();
  EXPECT_THAT(offered(), ElementsAre(std::pair(7, kOld), std::pair(8, kOld)));
}

TEST_F(SegmentStoreHiddenTest, a_reader_that_looks_again_hides_it_too) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  end();
  std::filesystem::remove(directory_ / kIndexFile);
  old_ = place_of(7);
  files_.make_unreadable(old_.first, old_.second);
  const auto beside = reader();
  ASSERT_THAT(beside->found(), IsEmpty());
  open();
  ASSERT_TRUE(persist(kFirst + 1, 7, kNew));
  for (const bool dropped : {false, true}) {
    if (dropped) {
      storage_->drop(kFirst + 1);
      settle();
    }
    const auto late = dropped ? reader() : nullptr;
    const std::vector<Found> seen = late ? late->found() : beside->refresh();
    EXPECT_EQ(sizes(seen) == (std::vector{std::pair(Version{7}, std::uint64_t{kNew})}), !dropped);
    files_.clear_faults();
    for (const Found& one : (late ? late : beside)->refresh()) EXPECT_NE(one.bytes, kOld);
    files_.make_unreadable(old_.first, old_.second);
  }
}

TEST_F(SegmentStoreHiddenTest, sequences_end_by_name_and_never_begin_again) {
  open();
  ASSERT_TRUE(persist(kFirst, 7, kOld));
  end();
  const auto [path, offset] = place_of(7);
  std::filesystem::remove(directory_ / kIndexFile);
  RecordHead head = scan_store(posix_, directory_, false).value().segments.at(0).records.at(0).head;
  head.sequence = kMaxSequence;
  const auto forged = encode(head);
  const os::File file(posix_, static_cast<int>(posix_.open(path, os::Open::write, false).value), path, false);
  ASSERT_TRUE(posix_.write(file.fd(), forged.data(), forged.size(), offset));
  ASSERT_TRUE(posix_.sync(file.fd()));
  open();
  ASSERT_THAT(offered(), ElementsAre(std::pair(7, kOld)));
  const auto refused = storage_->begin(kFirst + 1, describe(8, kNew));
  ASSERT_FALSE(refused) << "it would be older than the existing one";
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("sequence"));
}

}  // namespace
}  // namespace ebb::storage
