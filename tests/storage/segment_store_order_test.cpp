// The order in which a persistent storage writes and syncs, the effect of a fault at each call, and the names of
// damage.
#include <cerrno>
#include <set>
#include <thread>

#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

class SegmentStoreOrderTest : public SegmentStoreFixture {
 protected:
  /// The index of the first recorded call of this kind on a segment, from `from` on, at `offset` if given.
  std::size_t at(FileCall call, std::size_t from = 0, std::optional<std::uint64_t> offset = {}) const {
    const auto records = files_.records();
    for (std::size_t i = from; i < records.size(); ++i) {
      const bool ours = call == FileCall::sync_directory || segment_number(records[i].path.filename());
      if (records[i].call == call && ours && (!offset || records[i].offset == *offset)) return i;
    }
    return SIZE_MAX;
  }
  std::size_t now() const { return files_.records().size(); }
  void expect_not_persisted(ObjectId id, Errc code, const char* word) {
    const auto how = persisted_.of(id);
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().code, code) << how.error().message;
    EXPECT_NE(how.error().message.find(word), std::string::npos) << how.error().message;
    EXPECT_NE(how.error().message.find("segment-"), std::string::npos) << how.error().message;
    EXPECT_NE(how.error().message.find("of \"adjoint\""), std::string::npos) << how.error().message;
  }
};

TEST_F(SegmentStoreOrderTest, payload_then_sync_then_header_then_sync) {
  open();
  const std::size_t start = now();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 20));
  const std::size_t create = at(FileCall::open, start), head = at(FileCall::write, create, 0);
  const std::size_t names = at(FileCall::sync_directory, head);
  const std::size_t payload = at(FileCall::write, start, 8192), payload_sync = at(FileCall::sync, payload);
  const std::size_t header = at(FileCall::write, start, 4096), header_sync = at(FileCall::sync, header);
  ASSERT_LT(header_sync, SIZE_MAX);
  EXPECT_LT(create, head);
  EXPECT_LT(head, payload_sync) << "which is the head's too";
  EXPECT_LT(names, header);
  EXPECT_LT(payload, payload_sync);
  EXPECT_LT(payload_sync, header);
  EXPECT_LT(header, header_sync);
}

TEST_F(SegmentStoreOrderTest, a_small_one_goes_with_the_empty_room_of_its_header_which_follows_the_sync) {
  open();
  const std::size_t start = now();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  const std::size_t payload = at(FileCall::write, start, 4096), payload_sync = at(FileCall::sync, payload);
  const std::size_t header = at(FileCall::write, payload + 1, 4096), header_sync = at(FileCall::sync, header);
  ASSERT_LT(header_sync, SIZE_MAX);
  EXPECT_GT(files_.records()[payload].bytes, 4096u) << "with some of the payload";
  EXPECT_EQ(files_.records()[header].bytes, 4096u);
  EXPECT_LT(payload_sync, header);
}

TEST_F(SegmentStoreOrderTest, a_drop_is_marked_and_synced_before_its_room_goes) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  const std::size_t start = now();
  storage_->drop(kFirst);
  settle();
  const std::size_t mark = at(FileCall::write, start, 4096), punch = at(FileCall::punch, start, 8192);
  ASSERT_LT(punch, SIZE_MAX);
  EXPECT_LT(mark, at(FileCall::sync, mark));
  EXPECT_LT(at(FileCall::sync, mark), punch);
}

TEST_F(SegmentStoreOrderTest, a_version_written_anew_is_reported_when_the_old_one_is_gone_for_good) {
  options_.sync_interval = std::chrono::hours(1);
  std::atomic<std::size_t> told{0};  // calls until the new one was reported
  storage_ =
      open_persistent_storage(files_, clock_, options_, completions_.done(), [&](ObjectId id, const Result<void>& how) {
        if (id == kFirst + 1) told = now();
        persisted_.callback()(id, how);
      }).value();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  const std::size_t start = now();
  storage_->drop(kFirst);
  ASSERT_TRUE(persist(kFirst + 1, 1, 16384));
  const std::size_t drop = at(FileCall::write, start, 4096);
  EXPECT_LT(at(FileCall::sync, drop), told);
}

TEST_F(SegmentStoreOrderTest, so_it_is_where_the_old_one_is_alone_in_its_segment) {
  options_.sync_interval = std::chrono::hours(1);
  std::atomic<std::size_t> told{0};
  storage_ =
      open_persistent_storage(files_, clock_, options_, completions_.done(), [&](ObjectId id, const Result<void>& how) {
        if (id == kFirst + 1) told = now();
        persisted_.callback()(id, how);
      }).value();
  ASSERT_TRUE(persist(kFirst, 1, 1'000'000));
  const auto old = segments().at(0);
  const std::size_t start = now();
  storage_->drop(kFirst);
  ASSERT_TRUE(persist(kFirst + 1, 1, 1'000'000));
  const auto records = files_.records();
  const auto end = records.begin() + static_cast<std::ptrdiff_t>(told.load());
  // By a mark, or (where the drop was carried out before the new one was complete) with its segment.
  const auto drop = std::find_if(records.begin() + static_cast<std::ptrdiff_t>(start), end, [&](const FileRecord& one) {
    return one.path == old && (one.call == FileCall::remove || (one.call == FileCall::write && one.offset == 4096));
  });
  ASSERT_NE(drop, end) << "nothing says that the old one is dropped";
  const bool marked = drop->call == FileCall::write;
  EXPECT_TRUE(std::any_of(drop, end, [&](const FileRecord& one) {
    return marked ? one.call == FileCall::sync && one.path == old : one.call == FileCall::sync_directory;
  }));
  settle();
  EXPECT_FALSE(std::filesystem::exists(old)) << "its room comes back with all of it";
}

TEST_F(SegmentStoreOrderTest, where_the_old_one_cannot_be_dropped_the_new_one_is_not_reported_durable) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  storage_->drop(kFirst);
  ASSERT_TRUE(write(kFirst + 1, 1, 16384));
  files_.fail_nth(FileCall::read, 1, EIO, FaultyFiles::kEver);  // of its head, also where that is tried again
  storage_->commit();
  const auto how = persisted_.of(kFirst + 1);
  ASSERT_FALSE(how);
  EXPECT_NE(how.error().message.find("of \"adjoint\": what was written under this name before"), std::string::npos)
      << how.error().message;
  EXPECT_TRUE(persist(kFirst + 2, 2, 16384));
}

TEST_F(SegmentStoreOrderTest, where_that_drop_fails_the_new_one_is_reported_once) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  storage_->drop(kFirst);
  ASSERT_TRUE(write(kFirst + 1, 1, 16384));
  files_.fail_nth(FileCall::sync, 3, EIO);  // after those of payload and header
  storage_->commit();
  expect_not_persisted(kFirst + 1, Errc::io_error, "EIO");
  reopen();
  EXPECT_EQ(persisted_.reports(), 2u);
  EXPECT_TRUE(storage_->found().empty()) << "what was reported lost does not come back as good";
}

TEST_F(SegmentStoreOrderTest, a_drop_that_failed_is_tried_again_when_the_store_closes) {
  for (const FileCall call : {FileCall::read, FileCall::write, FileCall::sync}) {
    SCOPED_TRACE(static_cast<int>(call));
    if (storage_)
      reopen();
    else
      open();
    const ObjectId first = kFirst + static_cast<ObjectId>(call) * 100;
    const Version version = static_cast<Version>(call) * 100;
    ASSERT_TRUE(persist(first, version, 16384));
    ASSERT_TRUE(persist(first + 1, version + 1, 16384));
    files_.fail_nth(call, 1, EIO);
    storage_->drop(first);
    reopen();
    files_.clear_faults();
    for (const Found& found : storage_->found()) EXPECT_NE(found.version, version);
    EXPECT_EQ(storage_->found().back().version, version + 1);
  }
}

TEST_F(SegmentStoreOrderTest, what_never_was_on_the_disk_does_not_stop_its_next_writing) {
  open();
  for (int i = 0; i < 3; ++i) {
    files_.fail_nth(FileCall::write, 1, EIO, 1000);
    EXPECT_FALSE(persist(kFirst + 2 * i, i, 16384));
    storage_->drop(kFirst + 2 * i);
    storage_->commit();
    EXPECT_FALSE(persist(kFirst + 100 + i, 100 + i, 16384)) << "its drop was tried, and failed";
    files_.clear_faults();
    EXPECT_TRUE(persist(kFirst + 2 * i + 1, i, 16384));
  }
  reopen();
  EXPECT_EQ(storage_->found().size(), 3u);
}

TEST_F(SegmentStoreOrderTest, only_what_was_on_the_disk_is_said_to_be_there_again) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  files_.fail_nth(FileCall::write, 1, EIO, 1000);
  EXPECT_FALSE(persist(kFirst + 1, 2, 16384));
  storage_->drop(kFirst);
  storage_->drop(kFirst + 1);
  storage_->stop();
  EXPECT_EQ(storage_->failed_drops(), std::vector<std::string>{"version 1 of \"adjoint\""});
}

TEST_F(SegmentStoreOrderTest, a_segment_that_cannot_be_removed_is_tried_again_when_the_store_closes) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1'000'000));
  ASSERT_TRUE(persist(kFirst + 1, 2, 1'000'000));  // in another
  files_.fail_nth(FileCall::remove, 1, EIO);
  storage_->drop(kFirst);
  reopen();
  ASSERT_EQ(storage_->found().size(), 1u);
  EXPECT_EQ(storage_->found().front().version, 2);
}

TEST_F(SegmentStoreOrderTest, handed_to_the_system_nothing_is_synced) {
  options_.synced = false;
  open();
  const std::size_t start = now();
  for (ObjectId i = 0; i < 20; ++i) ASSERT_TRUE(persist(kFirst + i, static_cast<Version>(i), 100'000));
  for (ObjectId i = 0; i < 5; ++i) storage_->drop(kFirst + i);
  settle();
  EXPECT_EQ(at(FileCall::sync, start), SIZE_MAX);
}

TEST_F(SegmentStoreOrderTest, one_sync_serves_all_that_wait) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(persist(kFirst, 0, 4096));  // the segment exists
  const std::uint64_t before = files_.count(FileCall::sync);
  for (ObjectId i = 1; i <= 100; ++i) ASSERT_TRUE(write(kFirst + i, static_cast<Version>(i), 4096));
  EXPECT_FALSE(persisted_.has(kFirst + 1));
  EXPECT_EQ(files_.count(FileCall::sync), before);
  storage_->commit();
  for (ObjectId i = 1; i <= 100; ++i) ASSERT_TRUE(persisted_.of(kFirst + i));
  EXPECT_LE(files_.count(FileCall::sync), before + 4) << "the last may have been reported too late for the first two";
}

TEST_F(SegmentStoreOrderTest, many_small_objects_in_few_files) {
  options_.segment_bytes = 256 << 20;
  options_.capacity = 256 << 20;
  options_.sync_interval = std::chrono::hours(1);
  options_.synced = false;
  open();
  constexpr ObjectId kMany = 20'000;
  Buffer out(4096);
  for (ObjectId i = 0; i < kMany; ++i) {
    storage_->begin(kFirst + i, describe(static_cast<Version>(i), 4096)).value();
    storage_->put(i, kFirst + i, 4096, 0, out.data(), 4096).value();
  }
  for (ObjectId i = 0; i < kMany; ++i) ASSERT_TRUE(persisted_.of(kFirst + i));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_)) ++files;
  EXPECT_LT(files, 20u);
  reopen();
  EXPECT_EQ(storage_->found().size(), kMany);
}

TEST_F(SegmentStoreOrderTest, a_failed_sync_is_never_called_good_afterwards) {
  options_.sync_interval = std::chrono::hours(1);
  for (const int which : {1, 2}) {  // of payloads, of headers
    SCOPED_TRACE(which);
    const ObjectId first = kFirst + static_cast<ObjectId>(which) * 100;
    const Version version = which * 100;
    if (storage_)
      reopen();
    else
      open();
    ASSERT_TRUE(persist(first, version, 16384));
    ASSERT_TRUE(write(first + 1, version + 1, 16384));
    storage_->begin(first + 2, describe(version + 2, 16384)).value();  // not complete
    files_.fail_nth(FileCall::sync, static_cast<std::uint64_t>(which), EIO);
    const std::size_t start = now();
    storage_->commit();
    expect_not_persisted(first + 1, Errc::io_error, "EIO");
    expect_not_persisted(first + 2, Errc::io_error, "EIO");
    Buffer out(16384);
    EXPECT_EQ(put(first + 2, 16384, 0, out.data(), 16384).error().code, Errc::io_error);
    // The process continues in a new segment; of the old one, only a header is overwritten.
    ASSERT_TRUE(persist(first + 3, version + 3, 16384));
    const auto records = files_.records();
    std::filesystem::path broken;
    std::set<std::uint64_t> places;
    std::size_t syncs = 0;
    for (std::size_t i = start; i < records.size(); ++i) {
      if (records[i].call == FileCall::sync && !records[i].result)
        broken = records[i].path;
      else if (!broken.empty() && records[i].path == broken && records[i].call == FileCall::sync)
        ++syncs;
      else if (!broken.empty() && records[i].path == broken && records[i].call == FileCall::write)
        places.insert(records[i].offset);
    }
    EXPECT_FALSE(broken.empty());
    const std::set<std::uint64_t> mark{os::kBlock + os::kBlock + 16384};  // after the first record
    EXPECT_EQ(places, which == 1 ? std::set<std::uint64_t>() : mark);
    EXPECT_EQ(syncs, which == 1 ? 0u : 1u);
    const auto seen = scan_store(files_, directory_, false).value();  // as the next one would, were this one killed now
    for (const ScannedSegment& segment : seen.segments) {
      for (const ScannedRecord& record : segment.records) EXPECT_NE(record.head.version, version + 1);
    }
    expect_back(first, version, 16384);
    expect_back(first + 1, version + 1, 16384);  // its bytes exist as long as the process does
  }
  EXPECT_EQ(persisted_.reports(), 8u);
  reopen();
  std::vector<Version> versions;
  for (const Found& found : storage_->found()) versions.push_back(found.version);
  EXPECT_EQ(versions, (std::vector<Version>{100, 103, 200, 203})) << "nor by the next process";
}

TEST_F(SegmentStoreOrderTest, a_header_that_cannot_be_written_is_a_failure_by_name) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  for (const int error : {EIO, ENOSPC}) {
    const ObjectId id = kFirst + static_cast<ObjectId>(error);
    ASSERT_TRUE(write(id, error, 16384));
    files_.fail_nth(FileCall::write, 1, error);
    storage_->commit();
    expect_not_persisted(id, error == EIO ? Errc::io_error : Errc::no_space, error == EIO ? "EIO" : "ENOSPC");
    ASSERT_TRUE(persist(id + 1000, error + 1000, 16384));
  }
  reopen();
  std::vector<Version> versions;
  for (const Found& found : storage_->found()) versions.push_back(found.version);
  EXPECT_EQ(versions, (std::vector<Version>{1, EIO + 1000, ENOSPC + 1000}));
}

TEST_F(SegmentStoreOrderTest, a_put_that_failed_may_be_put_again) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  Buffer out(32768);
  out.scramble(1);
  storage_->begin(kFirst, describe(1, 32768)).value();
  ASSERT_TRUE(put(kFirst, 32768, 16384, out.data() + 16384, 16384));
  for (const int error : {EIO, ENOSPC}) {
    files_.fail_nth(FileCall::write, 1, error);
    const auto failed = put(kFirst, 32768, 0, out.data(), 16384);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, error == EIO ? Errc::io_error : Errc::no_space);
  }
  ASSERT_TRUE(put(kFirst, 32768, 16384, out.data() + 16384, 16384)) << "twice is no more than once";
  storage_->commit();
  EXPECT_FALSE(persisted_.has(kFirst));
  ASSERT_TRUE(put(kFirst, 32768, 0, out.data(), 16384));
  storage_->commit();
  ASSERT_TRUE(persisted_.of(kFirst));
  expect_back(kFirst, 1, 32768);
}

TEST_F(SegmentStoreOrderTest, short_writes_and_reads_are_continued) {
  open();
  files_.shorten_at_rate(FileCall::write, 0.5);
  files_.shorten_at_rate(FileCall::read, 0.5);
  for (ObjectId i = 0; i < 10; ++i) ASSERT_TRUE(persist(kFirst + i, static_cast<Version>(i), 100'000));
  for (ObjectId i = 0; i < 10; ++i) expect_back(kFirst + i, static_cast<Version>(i), 100'000);
  reopen();
  ASSERT_EQ(storage_->found().size(), 10u);
  for (const Found& found : storage_->found()) expect_back(found.object, found.version, 100'000);
}

TEST_F(SegmentStoreOrderTest, no_room_for_a_segment_changes_nothing_and_passes) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  files_.fail_nth(FileCall::preallocate, 1, ENOSPC, FaultyFiles::kEver);
  const auto refused = write(kFirst + 1, 2, 1'040'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_space);
  EXPECT_EQ(segments().size(), 1u);
  EXPECT_EQ(storage_->use().objects, 1u);
  EXPECT_TRUE(persist(kFirst + 2, 3, 16384)) << "there is room in the existing segment";
  files_.clear_faults();
  EXPECT_TRUE(persist(kFirst + 3, 4, 1'040'000));
}

TEST_F(SegmentStoreOrderTest, room_that_drops_are_giving_back_is_waited_for) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1'040'000));
  ASSERT_TRUE(persist(kFirst + 1, 2, 1'040'000));
  storage_->drop(kFirst);
  files_.fail_nth(FileCall::preallocate, 1, ENOSPC);
  EXPECT_EQ(segments().size(), 2u) << "no call has requested it yet";
  EXPECT_TRUE(write(kFirst + 2, 3, 1'040'000));
  EXPECT_EQ(segments().size(), 2u) << "one went, one came";
}

// The thread that reports the end of a transfer also handles the headers and drops of others.
TEST_F(SegmentStoreOrderTest, but_not_where_the_end_of_a_transfer_is_reported) {
  options_.sync_interval = std::chrono::hours(1);
  options_.engine.threads = 1;
  std::atomic<bool> ask{false};
  std::optional<Result<void>> answer;
  const auto done = completions_.done();
  storage_ = open_persistent_storage(
                 files_, clock_, options_,
                 [&](transfer::Token token, const Result<void>& how) {
                   if (ask.exchange(false)) answer = storage_->begin(kFirst + 3, describe(3, 1'040'000));
                   done(token, how);
                 },
                 persisted_.callback())
                 .value();
  ASSERT_TRUE(persist(kFirst, 1, 1'040'000));
  ASSERT_TRUE(persist(kFirst + 1, 2, 20'000));
  storage_->drop(kFirst);
  files_.fail_nth(FileCall::preallocate, 1, ENOSPC);
  ask = true;
  ASSERT_TRUE(write(kFirst + 2, 4, 20'000));
  ASSERT_TRUE(answer.has_value());
  ASSERT_FALSE(*answer);
  EXPECT_EQ(answer->error().code, Errc::no_space);
  while (segments().size() > 1) std::this_thread::yield();  // the drop is carried out, and not in an hour
  EXPECT_TRUE(write(kFirst + 3, 3, 1'040'000)) << "who asks again";
  storage_.reset();  // before the objects that its callback refers to
}

TEST_F(SegmentStoreOrderTest, file_systems_without_preallocation_serve) {
  files_.fail_nth(FileCall::preallocate, 1, EOPNOTSUPP, FaultyFiles::kEver);
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  reopen();
  expect_back(storage_->found().at(0).object, 1, 16384);
}

TEST_F(SegmentStoreOrderTest, memory_is_no_stable_storage) {
  files_.pretend({"tmpfs", true, 1 << 30, 1 << 30});
  const auto refused = try_open(options_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("tmpfs"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(directory_)) << "nothing was made";
  options_.synced = false;
  open();
  EXPECT_EQ(storage_->level(), Durability::process);
  EXPECT_TRUE(persist(kFirst, 1, 16384));
}

TEST_F(SegmentStoreOrderTest, a_flipped_byte_is_named_by_get_and_verify) {
  open();
  ASSERT_TRUE(persist(kFirst, 3, 40'000));
  ASSERT_TRUE(persist(kFirst + 1, 4, 40'000));
  const auto segment = segments().at(0);
  flip(segment, 4096 + 4096 + 20'000);  // in the third block of the first
  Buffer in(40'000);
  for (int restart = 0; restart < 2; ++restart) {
    const ObjectId bad = restart ? storage_->found().at(0).object : kFirst,
                   good = restart ? storage_->found().at(1).object : kFirst + 1;
    const auto got = get(bad, 0, in.data(), 40'000);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, Errc::damaged);
    for (const char* word : {"version 3", "adjoint", "segment-00000001.ebb"}) {
      EXPECT_NE(got.error().message.find(word), std::string::npos) << got.error().message;
    }
    EXPECT_NE(got.error().message.find("offset " + std::to_string(8192 + 16384)), std::string::npos)
        << got.error().message;
    EXPECT_TRUE(get(bad, 0, in.data(), 16384));
    EXPECT_FALSE(get(bad, 20480, in.data(), 4096)) << "in a block that is read for it";
    EXPECT_TRUE(get(bad, 24576, in.data(), 40'000 - 24576));
    EXPECT_EQ(storage_->verify(bad).error().code, Errc::damaged);
    expect_back(good, 4, 40'000);
    EXPECT_TRUE(storage_->verify(good));
    if (!restart) reopen();
  }
  // It is unchanged.
  storage_->abandon(storage_->found().at(0).object);
  EXPECT_EQ(storage_->use().objects, 1u);
  reopen();
  EXPECT_EQ(storage_->found().size(), 2u);
}

TEST_F(SegmentStoreOrderTest, a_flipped_byte_of_a_header_is_found_at_opening_and_left_as_it_is) {
  open();
  for (ObjectId i = 0; i < 3; ++i) ASSERT_TRUE(persist(kFirst + i, static_cast<Version>(i), 40'000));
  const auto segment = segments().at(0);
  storage_.reset();
  std::filesystem::remove(directory_ / kIndexFile);
  const std::uint64_t second = 4096 + 4096 + os::round_up(40'000);
  flip(segment, second + 100);
  for (int restart = 0; restart < 3; ++restart) {
    open();
    EXPECT_EQ(storage_->found().size(), 2u);
    ASSERT_FALSE(storage_->damages().empty());
    EXPECT_EQ(storage_->damages()[0].offset, second);
    storage_.reset();
  }
  flip(segment, second + 100);
  std::filesystem::remove(directory_ / kIndexFile);
  open();
  EXPECT_EQ(storage_->found().size(), 3u);
}

TEST_F(SegmentStoreOrderTest, the_index_goes_before_the_first_change) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 16384));
  storage_.reset();
  EXPECT_TRUE(std::filesystem::exists(directory_ / kIndexFile));
  const std::size_t start = now();
  open();
  EXPECT_FALSE(std::filesystem::exists(directory_ / kIndexFile));
  const auto records = files_.records();
  std::size_t gone = start;
  while (gone < records.size() &&
         (records[gone].call != FileCall::rename || records[gone].path.filename() != kIndexFile))
    ++gone;
  EXPECT_LT(at(FileCall::sync_directory, gone), SIZE_MAX);
  EXPECT_EQ(at(FileCall::write, start), SIZE_MAX);
}

// Drops of what shares blocks take room of their own, which a later batch may find.
TEST_F(SegmentStoreOrderTest, drops_that_find_no_room_are_carried_out_when_there_is_some) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  for (Version version = 0; version < 8; ++version)
    ASSERT_TRUE(write(kFirst + static_cast<ObjectId>(version), version, 300));
  ASSERT_TRUE(persist(kFirst + 8, 8, 300));
  reopen();
  files_.fail_at_rate(FileCall::preallocate, 1, ENOSPC);
  for (const Found& found : storage_->found())
    if (found.version < 3) storage_->drop(found.object);
  while (storage_->drops_done() < 3) storage_->commit();
  EXPECT_NE(storage_->describe().find("3 drops not carried out"), std::string::npos);
  files_.clear_faults();
  settle();
  EXPECT_EQ(storage_->describe().find("not carried out"), std::string::npos);
  const PersistentOptions options = [&] {
    PersistentOptions out = options_;
    out.readonly = true;
    return out;
  }();
  const auto reader = try_open(options).value();
  EXPECT_EQ(reader->found().size(), 6u + 2u);
}

}  // namespace
}  // namespace ebb::storage
