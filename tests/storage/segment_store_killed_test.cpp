// What a killed process left, as the next one finds it, and a loss of power after that.
#include <map>
#include <set>
#include <thread>

#include "storage/admin/collect.hpp"
#include "storage/admin/inspect.hpp"
#include "tests/doubles/power_loss.hpp"
#include "tests/long_form.hpp"
#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

/// Opens the store of a process that was killed at any moment; then the power fails.
class SegmentStoreKilledTest : public ::testing::Test {
 protected:
  using MemoryFiles = doubles::MemoryFiles;
  using PowerLoss = doubles::PowerLoss;

  std::unique_ptr<PersistentStorage> open(MemoryFiles& files, bool readonly = false) {
    auto opened = try_open(files, readonly);
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  Result<std::unique_ptr<PersistentStorage>> try_open(os::Files& files, bool readonly) {
    PersistentOptions options;
    options.synced = synced_;
    options.directory = "/above/store";
    options.capacity = 8 << 20;
    options.segment_bytes = 128 << 10;
    options.block_bytes = 8192;
    options.sync_interval = std::chrono::hours(1);
    options.readonly = readonly;
    options.early_heads = early_;
    options.engine.kind = Kind::threads;
    return open_persistent_storage(files, clock_, options, completions_.done(), persisted_.callback());
  }
  void persist(PersistentStorage& storage, Version version) { ASSERT_TRUE(try_persist(storage, version)); }
  Result<void> try_persist(PersistentStorage& storage, Version version) {
    const ObjectId id = kFirstObject + next_;
    put(storage, version);
    storage.commit();
    return persisted_.of(id);
  }
  /// The running system is the one of this letter.
  static void boot(MemoryFiles& files, char letter) {
    const std::filesystem::path path = "/proc/sys/kernel/random/boot_id";
    for (const char* directory : {"/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random"})
      static_cast<void>(files.make_directory(directory));
    const std::string id(32, letter);
    const auto opened = files.open_write(path);
    const os::File file(files, static_cast<int>(opened.value), "", false);
    ASSERT_TRUE(files.write(file.fd(), id.data(), id.size(), 0));
    ASSERT_TRUE(files.sync(file.fd()));
    for (const char* directory : {"/", "/proc", "/proc/sys", "/proc/sys/kernel", "/proc/sys/kernel/random"})
      ASSERT_TRUE(files.sync_directory(directory));
  }
  /// Of the system 'a': version 1 is durable, and 2 is there by its early head.
  std::unique_ptr<PersistentStorage> with_an_early_head(MemoryFiles& files) {
    early_ = true;
    EXPECT_TRUE(files.make_directory("/above"));
    boot(files, 'a');
    auto storage = open(files);
    if (storage) persist(*storage, 1), put(*storage, 2);
    return storage;
  }
  std::unique_ptr<MemoryFiles> killed_after_an_early_head() {
    MemoryFiles files;
    const auto storage = with_an_early_head(files);
    const PowerLoss run(files.journal());
    storage->stop();
    return run.killed(run.size());
  }
  void put(PersistentStorage& storage, Version version) {
    const ObjectId id = kFirstObject + next_;
    Description description{"adjoint", version, {}};
    description.info.bytes = bytes_;
    description.info.regions.push_back({7, bytes_, 0});
    storage.begin(id, std::make_shared<const Description>(description)).value();
    Buffer out(bytes_);
    out.scramble(seeds_[version] = next_);
    storage.put(next_, id, bytes_, 0, out.data(), bytes_).value();
    completions_.of(next_++).value();
  }
  /// What is offered and can be read.
  static std::set<Version> offered(PersistentStorage& storage) {
    std::set<Version> out;
    for (const Found& found : storage.found()) {
      EXPECT_TRUE(storage.verify(found.object)) << "version " << found.version;
      out.insert(found.version);
    }
    return out;
  }

  /// Three versions by each of two processes that closed it, from 0 and from 10 on.
  void closed_twice(MemoryFiles& files) {
    ASSERT_TRUE(files.make_directory("/above"));
    ASSERT_TRUE(files.sync_directory("/"));
    for (const Version first : {0, 10}) {
      const auto storage = open(files);
      ASSERT_TRUE(storage);
      persist(*storage, first);
      put(*storage, first + 1);  // with the next one, and where they are small in one block
      persist(*storage, first + 2);
      storage->stop();
    }
  }
  /// Versions 0 and 1 by a process that closed it, 10 and 11 by one that did not.
  std::unique_ptr<MemoryFiles> closed_once_and_killed() {
    MemoryFiles files;
    EXPECT_TRUE(files.make_directory("/above"));
    for (const Version first : {0, 10}) {
      const auto storage = open(files);
      for (Version version = first; version < first + 2; ++version) persist(*storage, version);
      if (first == 10) files.note("killed");
      storage->stop();
    }
    const PowerLoss run(files.journal());
    return run.killed(run.all(doubles::Change::Kind::note).at(0));
  }

  os::SteadyClock clock_;
  test::Completions completions_;
  PersistedObjects persisted_;
  std::map<Version, std::uint64_t> seeds_;  // of their bytes
  bool synced_ = true, early_ = false;
  std::size_t bytes_ = 40'000;  // of each
  std::uint64_t next_ = 1;
};

/// The promise holds for checkpoints of either size.
class StoreKilledSizesTest : public SegmentStoreKilledTest, public ::testing::WithParamInterface<std::size_t> {
 protected:
  StoreKilledSizesTest() { bytes_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Bytes, StoreKilledSizesTest, ::testing::Values(40'000, 700));

TEST_P(StoreKilledSizesTest, what_the_next_one_finds_outlives_the_power) {
  MemoryFiles files;
  ASSERT_NO_FATAL_FAILURE(closed_twice(files));
  const PowerLoss run(files.journal());
  for (std::size_t n = 0; n <= run.size(); ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n) + (n ? ": " + doubles::describe(run.change(n)) : ""));
    const auto left = run.killed(n);
    if (n < 2) continue;  // the directory above
    const auto next = open(*left);
    ASSERT_TRUE(next);
    const std::set<Version> found = offered(*next);
    const PowerLoss power(left->journal());
    next->stop();
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const auto after = power.crash(power.size(), seed);
      const auto last = open(*after, true);
      ASSERT_TRUE(last);
      ASSERT_EQ(offered(*last), found);
    }
  }
}

// Drops and reads name a record by its version and sequence, also across a kill.
TEST_F(SegmentStoreKilledTest, a_sequence_is_not_used_again_though_its_segment_is_gone) {
  bytes_ = 100'000;  // a segment each
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  const auto storage = open(files);
  const ObjectId object = kFirstObject + next_;
  persist(*storage, 1);
  const std::uint64_t used = storage->sequence(object);
  files.note("used");
  Description next{"adjoint", 1, {}};
  next.info.bytes = bytes_;
  next.info.regions.push_back({7, bytes_, 0});
  storage->begin(kFirstObject + next_, std::make_shared<const Description>(next)).value();
  storage->drop(object);
  storage->commit();
  while (storage->drops_done() < 1) std::this_thread::yield();
  const PowerLoss run(files.journal());
  const std::size_t end = run.size();
  storage->stop();
  for (std::size_t n = run.all(doubles::Change::Kind::note).at(0); n <= end; ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n) + ": " + doubles::describe(run.change(n)));
    const auto left = run.killed(n);
    const auto again = open(*left);  // and is killed as well: it may have removed a segment that was empty
    ASSERT_TRUE(again);
    EXPECT_GT(again->next_sequence(), used);
    const PowerLoss second(left->journal());
    const auto left_again = second.killed(second.size());
    const auto last = open(*left_again);
    ASSERT_TRUE(last);
    EXPECT_GT(last->next_sequence(), used) << "by the one after it";
  }
}

// Also on a disk that loses all of a block of 4096 bytes when the power fails while it is written.
TEST_F(SegmentStoreKilledTest, drops_take_nothing_from_what_shares_their_blocks) {
  constexpr Version kMany = 160;
  bytes_ = 300;
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  ASSERT_TRUE(files.sync_directory("/"));
  std::set<Version> left;
  {
    const auto storage = open(files);
    for (Version version = 0; version < kMany - 1; ++version) put(*storage, version);
    persist(*storage, kMany - 1);
    for (Version version = 0; version < kMany; ++version) left.insert(version);
    files.note("durable");
    const auto drop = [&](Version version) {
      storage->drop(kFirstObject + static_cast<ObjectId>(version) + 1);
      left.erase(version);
    };
    for (Version version = 0; version < 20; version += 3) {
      drop(version);
      storage->commit();
    }
    for (Version version = 20; version < kMany - 10; ++version)  // more than a sector lists
      if (version % 4) drop(version);
    storage->stop();
  }
  for (int again = 0; again < 2; ++again) {  // what an earlier process wrote
    const auto storage = open(files);
    ASSERT_EQ(offered(*storage), left);
    for (const Found& found : storage->found()) {
      if (found.version % 5 != again) continue;
      storage->drop(found.object);
      left.erase(found.version);
    }
    storage->stop();
  }
  ASSERT_TRUE(collect(files, "/above/store", {.keep_last = 3}));
  const PowerLoss run(files.journal());
  for (std::size_t n = run.all(doubles::Change::Kind::note).at(0); n <= run.size(); ++n) {
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      SCOPED_TRACE("lost at " + std::to_string(n) + ", seed " + std::to_string(seed));
      const auto torn = seed % 2 ? PowerLoss::Torn::blocks : PowerLoss::Torn::sectors;
      const auto after = run.crash(n, seed, torn);
      const auto next = open(*after);
      ASSERT_TRUE(next);
      if (torn == PowerLoss::Torn::sectors) {
        ASSERT_TRUE(next->damages().empty()) << next->damages()[0].what;
      }
      const std::set<Version> found = offered(*next);
      for (const Version version : {kMany - 3, kMany - 2, kMany - 1}) ASSERT_TRUE(found.contains(version));
      if (n == run.size()) {
        ASSERT_EQ(found, (std::set<Version>{kMany - 3, kMany - 2, kMany - 1}));
      }
    }
  }
}

TEST_P(StoreKilledSizesTest, handed_to_the_system_no_wrong_byte_outlives_the_power) {
  synced_ = false;
  MemoryFiles files;
  ASSERT_NO_FATAL_FAILURE(closed_twice(files));
  const PowerLoss run(files.journal());
  std::size_t whole = 0, damaged = 0;
  for (std::size_t n = 2; n <= run.size(); ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n) + ": " + doubles::describe(run.change(n)));
    const auto left = run.killed(n);
    const auto next = open(*left);
    ASSERT_TRUE(next);
    EXPECT_EQ(offered(*next).size(), next->found().size()) << "the machine kept running";
    const PowerLoss power(left->journal());
    next->stop();
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const auto after = power.crash(power.size(), seed);
      auto last = try_open(*after, true);
      if (!last) continue;  // the store's own file is gone
      PersistentStorage& store = **last;
      for (const Found& one : store.found()) {
        Buffer in(bytes_), right(bytes_);
        const std::uint64_t token = next_++;
        auto how = store.get(token, one.object, 0, in.data(), bytes_);
        if (how) how = completions_.of(token);
        right.scramble(seeds_.at(one.version));
        ASSERT_TRUE(!how || std::ranges::equal(in.first(bytes_), right.first(bytes_))) << "version " << one.version;
        ++(how ? whole : damaged);
      }
    }
  }
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(damaged > 0, bytes_ > os::kBlock) << "or nothing was lost that matters; a small one is found whole";
}

// Three of five are written and not synced: a kill loses none of these, and the power takes each as if it never was.
TEST_F(SegmentStoreKilledTest, what_was_written_with_an_early_head_outlives_the_process_and_is_never_half_there) {
  early_ = true;
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  ASSERT_NO_FATAL_FAILURE(boot(files, 'a'));
  const auto storage = open(files);
  ASSERT_TRUE(storage);
  const std::size_t begun = files.changes();
  for (Version version = 1; version <= 5; ++version) {
    const ObjectId id = kFirstObject + next_;
    if (version == 2) {
      persist(*storage, version);
      files.note("durable");
    } else {
      put(*storage, version);
    }
    EXPECT_EQ(storage->surviving(id), static_cast<std::uint64_t>(version));
    files.note("written");
  }
  const std::size_t dropped_from = files.changes();
  storage->drop(kFirstObject + next_ - 1);  // the last one; nothing of it was ever synced
  storage->commit();
  while (storage->drops_done() < 1) std::this_thread::yield();
  const PowerLoss run(files.journal());
  storage->stop();
  for (std::size_t n = begun; n <= run.size(); ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n) + ": " + doubles::describe(run.change(n)));
    const std::vector<std::string> notes = run.notes(n);
    const auto written = static_cast<Version>(std::ranges::count(notes, "written"));
    const bool durable = std::ranges::count(notes, "durable") > 0;
    const auto left = run.killed(n);
    const auto next = open(*left);
    ASSERT_TRUE(next);
    EXPECT_TRUE(next->damages().empty());
    const std::set<Version> found = offered(*next);
    for (Version version = 1; version <= written; ++version) {
      ASSERT_TRUE(found.contains(version) || (version == 5 && n >= dropped_from)) << version;
    }
    ASSERT_TRUE(n < run.size() || found == (std::set<Version>{1, 2, 3, 4}));
    const PowerLoss power(left->journal());
    next->stop();
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const auto settled = power.crash(power.size(), seed);
      boot(*settled, 'b');
      const auto last = open(*settled, true);
      ASSERT_TRUE(last);
      ASSERT_EQ(offered(*last), found);
      const auto lost = run.crash(n, seed);
      boot(*lost, 'b');
      for (const bool readonly : {true, false}) {
        const auto after = open(*lost, readonly);
        ASSERT_TRUE(after);
        EXPECT_TRUE(offered(*after).contains(2) || !durable);
      }
    }
  }
}

// Nobody who reads sees what is not durable, and gc takes nothing of it away.
TEST_F(SegmentStoreKilledTest, what_has_an_early_head_is_not_offered_before_it_is_settled) {
  MemoryFiles files;
  const auto storage = with_an_early_head(files);
  ASSERT_TRUE(storage);
  const auto reader = open(files, true);
  ASSERT_NO_FATAL_FAILURE(boot(files, 'b'));  // or who cannot tell which system runs
  const auto other = open(files, true);
  ASSERT_NO_FATAL_FAILURE(boot(files, 'a'));
  ASSERT_TRUE(reader && other);
  EXPECT_EQ(offered(*reader), std::set<Version>{1});
  EXPECT_EQ(offered(*other), std::set<Version>{1});
  const PowerLoss run(files.journal());
  persist(*storage, 3);
  EXPECT_EQ(reader->refresh().size(), 2u) << "it is looked at again";
  EXPECT_EQ(other->refresh().size(), 2u);
  storage->stop();
  const auto left = run.killed(run.size());
  ASSERT_TRUE(collect(*left, "/above/store", {}));
  const auto last = open(*left, true);
  ASSERT_TRUE(last);
  EXPECT_EQ(offered(*last), (std::set<Version>{1, 2}));
}

TEST_F(SegmentStoreKilledTest, a_small_record_written_twice_leaves_nothing_to_be_warned_of) {
  bytes_ = 300;
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  const auto storage = open(files);
  ASSERT_TRUE(storage);
  persist(*storage, 0);
  const ObjectId first = kFirstObject + next_;
  put(*storage, 1);
  persist(*storage, 2);  // in the same block
  const std::size_t begun = files.changes();
  storage->drop(first);
  persist(*storage, 1);
  const PowerLoss run(files.journal());
  storage->stop();
  for (std::size_t n = begun; n <= run.size(); ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n));
    const auto left = run.killed(n);
    for (int restart = 0; restart < 2; ++restart) {
      const auto next = open(*left);
      ASSERT_TRUE(next);
      for (const Damage& damage : next->damages()) ADD_FAILURE() << damage.what;
      EXPECT_EQ(offered(*next), (std::set<Version>{0, 1, 2}));
      next->stop();
      static_cast<void>(left->remove("/above/store/index"));
    }
  }
}

// Or what was dropped in the meantime would come back.
TEST_F(SegmentStoreKilledTest, an_early_head_is_judged_once) {
  const auto restarted = killed_after_an_early_head();
  boot(*restarted, 'b');
  const auto next = open(*restarted);
  ASSERT_TRUE(next);
  EXPECT_EQ(offered(*next), std::set<Version>{1});
  const PowerLoss power(restarted->journal());
  next->stop();
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const auto after = power.crash(power.size(), seed);
    boot(*after, 'a');
    const auto last = open(*after);
    ASSERT_TRUE(last);
    EXPECT_EQ(offered(*last), std::set<Version>{1});
  }
}

TEST_F(SegmentStoreKilledTest, an_early_head_that_cannot_be_judged_is_no_loss) {
  const auto left = killed_after_an_early_head();

  ASSERT_TRUE(left->remove("/proc/sys/kernel/random/boot_id"));
  const auto refused = try_open(*left, false);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("boot_id"), std::string::npos) << refused.error().message;
  ASSERT_NO_FATAL_FAILURE(boot(*left, 'a'));

  FaultyFiles faulty(*left, 1);
  const std::uint64_t payload = 3 * os::kBlock + os::round_up(bytes_);  // behind the segment's head, 1 and a header
  faulty.make_unreadable("/above/store/segment-00000001.ebb", payload);
  {
    const auto next = try_open(faulty, false);
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(offered(**next), std::set<Version>{1});
    ASSERT_EQ((*next)->damages().size(), 1u);
    EXPECT_TRUE((*next)->damages()[0].unreadable);
    (*next)->stop();
  }
  const auto last = open(*left);
  ASSERT_TRUE(last);
  EXPECT_EQ(offered(*last), (std::set<Version>{1, 2})) << "the disk reads it again";
}

TEST_F(SegmentStoreKilledTest, an_early_head_that_cannot_be_rewritten_costs_no_other_record) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  ASSERT_NO_FATAL_FAILURE(boot(files, 'a'));
  {
    const auto storage = open(files);
    ASSERT_TRUE(storage);
    persist(*storage, 1);
    persist(*storage, 2);
    storage->stop();
  }
  early_ = true;
  const auto storage = open(files);
  ASSERT_TRUE(storage);
  storage->drop(storage->found().at(1).object);
  put(*storage, 2);
  put(*storage, 3);
  const PowerLoss run(files.journal());
  storage->stop();
  const auto left = run.killed(run.size());
  FaultyFiles faulty(*left, 1);
  faulty.fail_nth(FileCall::write, 1, EIO, FaultyFiles::kEver);
  {
    const auto next = try_open(faulty, false);
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(offered(**next), std::set<Version>{1});
    EXPECT_EQ((*next)->damages().size(), 2u);
    (*next)->stop();
  }
  const auto last = open(*left);
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->damages().empty());
  EXPECT_EQ(offered(*last), (std::set<Version>{1, 2, 3}));
}

// Of which the first block was written, at another time than the head that failed next.
TEST_F(SegmentStoreKilledTest, a_torn_early_head_is_withdrawn_with_its_checkpoint) {
  early_ = true;
  bytes_ = 2'000'000;  // with a header of two blocks
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  ASSERT_NO_FATAL_FAILURE(boot(files, 'a'));
  FaultyFiles faulty(files, 1);
  auto opened = try_open(faulty, false);
  ASSERT_TRUE(opened);
  PersistentStorage& storage = **opened;
  persist(storage, 1);
  const std::uint64_t before = faulty.count(FileCall::write);
  const ObjectId second = kFirstObject + next_;
  put(storage, 2);
  const std::uint64_t writes = faulty.count(FileCall::write) - before;  // the last one is that of the early head
  storage.commit();
  ASSERT_TRUE(persisted_.of(second));
  const ObjectId third = kFirstObject + next_;
  faulty.shorten_nth(FileCall::write, writes, 1, os::kBlock);
  faulty.fail_nth(FileCall::write, writes + 1, EIO);
  put(storage, 3);
  ASSERT_EQ(storage.surviving(third), 0u);
  faulty.clear_faults();
  faulty.fail_nth(FileCall::write, 1, EIO);
  storage.commit();
  ASSERT_FALSE(persisted_.of(third));
  const auto scanned = scan_store(files, "/above/store", false).value();
  for (const ScannedSegment& segment : scanned.segments) EXPECT_TRUE(segment.gaps.empty()) << "a head that may count";
}

// The page cache then has bytes that may never reach the disk, and a later sync succeeds.
TEST_F(SegmentStoreKilledTest, what_the_next_one_finds_outlives_the_power_though_a_sync_had_failed) {
  std::size_t lost = 0;
  for (std::uint64_t failing = 1; failing <= 4; ++failing) {  // of two payloads and two headers
    MemoryFiles files;
    ASSERT_TRUE(files.make_directory("/above"));
    ASSERT_TRUE(files.sync_directory("/"));
    const auto storage = open(files);
    ASSERT_TRUE(storage);
    persist(*storage, 1);
    files.fail_sync(failing);
    std::set<Version> told;
    for (Version version = 2; version < 4; ++version) {
      if (try_persist(*storage, version)) continue;
      told.insert(version);
      files.note("told");
    }
    ASSERT_EQ(told.size(), 1u);
    const PowerLoss run(files.journal());
    storage->stop();
    std::size_t n = run.all(doubles::Change::Kind::failed_sync).at(0);
    for (; n <= run.size(); ++n) {
      SCOPED_TRACE("sync " + std::to_string(failing) + ", killed at " + std::to_string(n));
      const auto left = run.killed(n);
      const auto next = open(*left);
      ASSERT_TRUE(next);
      const std::set<Version> found = offered(*next);
      EXPECT_TRUE(found.contains(1));
      EXPECT_FALSE(!run.notes(n).empty() && found.contains(*told.begin())) << "the loss of this one was reported";
      const PowerLoss power(left->journal());
      next->stop();
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        const auto after = power.crash(power.size(), seed);
        const auto last = open(*after, true);
        ASSERT_TRUE(last);
        ASSERT_EQ(offered(*last), found);
      }
    }
    lost += told.size();
  }
  EXPECT_EQ(lost, 4u);
}

// Bytes that a failed sync left in memory would be mistaken for bytes on the disk.
TEST_F(SegmentStoreKilledTest, who_cannot_read_from_the_disk_what_a_killed_process_left_does_not_open_to_write) {
  const auto left = closed_once_and_killed();
  FaultyFiles files(*left, 1);
  for (std::uint64_t segment = 1; segment <= 2; ++segment) {
    files.fail_nth(FileCall::drop_cached, segment, EIO);
    const auto refused = try_open(files, false);
    ASSERT_FALSE(refused) << "segment " << segment;
    EXPECT_EQ(refused.error().code, Errc::io_error);
    EXPECT_NE(refused.error().message.find("segment-0000000"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("EIO"), std::string::npos) << refused.error().message;
    files.clear_faults();
  }
  files.fail_nth(FileCall::drop_cached, 1, EIO, FaultyFiles::kEver);
  EXPECT_TRUE(try_open(files, true)) << "who only reads vouches for nothing";
  files.clear_faults();
  const auto next = try_open(files, false);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(offered(**next), (std::set<Version>{0, 1, 10, 11})) << "a disk that failed once need not do so again";
}

TEST_F(SegmentStoreKilledTest, a_system_that_has_no_such_call_is_not_asked_for_it) {
  for (const int error : {ENOSYS, EOPNOTSUPP, EINVAL}) {
    const auto left = closed_once_and_killed();
    FaultyFiles files(*left, 1);
    files.fail_nth(FileCall::drop_cached, 1, error, FaultyFiles::kEver);
    const auto next = try_open(files, false);
    ASSERT_TRUE(next) << next.error().message;
    EXPECT_EQ(offered(**next), (std::set<Version>{0, 1, 10, 11}));
    EXPECT_GT(files.count(FileCall::drop_cached), 0u);
  }
}

// Segments are removed with their dropped records: only the process that removed them knows that none is missing.
TEST_P(StoreKilledSizesTest, a_process_that_is_killed_while_it_drops_or_collects_leaves_nothing_to_be_warned_of) {
  for (const bool synced : {true, false}) {
    synced_ = synced;
    MemoryFiles files;
    ASSERT_TRUE(files.make_directory("/above"));
    ASSERT_TRUE(files.sync_directory("/"));
    std::size_t removed = 0;
    for (const Version first : {0, 10, 20}) {  // each of two drops all existing versions, and some of its own
      const auto storage = open(files);
      ASSERT_TRUE(storage);
      std::vector<ObjectId> there;
      for (const Found& one : storage->found()) there.push_back(one.object);
      for (Version version = first; version < first + 6; ++version) {
        persist(*storage, version);
        if (!there.empty()) storage->drop(there.back());
        if (!there.empty()) there.pop_back();
      }
      storage->drop(kFirstObject + next_ - 4);
      persist(*storage, first + 6);
      storage->stop();
    }
    const PowerLoss run(files.journal());
    for (const std::size_t n : run.all(doubles::Change::Kind::remove)) {
      removed += segment_number(std::filesystem::path(run.change(n).text).filename()).has_value();
    }
    ASSERT_GT(removed, bytes_ > os::kBlock ? 4u : 1u) << "or this shows nothing";
    // After a power failure a head may be torn, which is damage.
    const auto expect_no_warning = [&](MemoryFiles& left, bool torn = false) {
      const auto expected = [&](const Damage& damage) {
        return torn && damage.what.find("there any more") == std::string::npos;
      };
      auto seen = inspect(left, "/above/store");
      if (!seen && seen.error().code == Errc::not_a_store) return;
      ASSERT_TRUE(seen) << seen.error().message;
      for (const auto& one : seen->damages)
        EXPECT_TRUE(expected(one.damage)) << one.damage.file << ": " << one.damage.what;
      const auto reader = open(left, true), next = open(left);
      ASSERT_TRUE(reader && next);
      for (const auto* one : {&reader, &next}) {
        for (const Damage& damage : (*one)->damages())
          EXPECT_TRUE(expected(damage)) << damage.file << ": " << damage.what;
      }
      next->stop();
    };
    for (std::size_t n = 2; n <= run.size(); ++n) {
      SCOPED_TRACE((synced ? "synced, killed at " : "killed at ") + std::to_string(n) + ": " +
                   doubles::describe(run.change(n)));
      ASSERT_NO_FATAL_FAILURE(expect_no_warning(*run.killed(n)));
      if (synced) {
        for (std::uint64_t seed = 0; seed < (long_form() ? 3 : 1); ++seed)
          ASSERT_NO_FATAL_FAILURE(expect_no_warning(*run.crash(n, seed), true));
      }
      if (n % (long_form() ? 7 : 21) != 0) continue;  // gc of the remaining files, killed as well
      const auto left = run.killed(n);
      const std::size_t before = left->changes();
      if (!collect(*left, "/above/store", {.keep_last = 1})) continue;  // there was no store yet
      const PowerLoss collected(left->journal());
      for (std::size_t m = before; m <= collected.size(); ++m) {
        SCOPED_TRACE("gc killed at " + std::to_string(m));
        ASSERT_NO_FATAL_FAILURE(expect_no_warning(*collected.killed(m)));
      }
      if (HasFailure()) return;
    }
  }
}

// But for the last one, which no process removes before there is a newer one.
TEST_F(SegmentStoreKilledTest, the_last_segment_that_somebody_removed_is_missed) {
  for (const bool restarted : {false, true}) {
    const auto left = closed_once_and_killed();
    std::vector<std::string> names;
    ASSERT_TRUE(left->list("/above/store", names));
    ASSERT_EQ(std::ranges::count_if(names, [](const auto& name) { return segment_number(name).has_value(); }), 2);
    ASSERT_TRUE(left->remove("/above/store/segment-00000002.ebb"));
    EXPECT_TRUE(inspect(*left, "/above/store")->damages.empty())
        << "it was made by the process that was killed: nothing says so";
    ASSERT_TRUE(left->remove("/above/store/segment-00000001.ebb"));
    if (!restarted) {
      auto seen = inspect(*left, "/above/store");
      ASSERT_TRUE(seen);
      ASSERT_EQ(seen->damages.size(), 1u);
      EXPECT_EQ(seen->damages[0].damage.file, "/above/store/segment-00000001.ebb");
      continue;
    }
    for (int opening = 0; opening < 2; ++opening) {  // the second finds an index
      const auto next = open(*left);
      ASSERT_TRUE(next);
      ASSERT_EQ(next->damages().size(), 1u);
      EXPECT_EQ(next->damages()[0].file, "/above/store/segment-00000001.ebb");
      EXPECT_NE(next->damages()[0].what.find("2 checkpoints"), std::string::npos) << next->damages()[0].what;
      next->stop();
    }
  }
}

TEST_F(SegmentStoreKilledTest, what_was_cut_off_is_missed_by_name) {
  const auto left = closed_once_and_killed();
  const auto opened = left->open("/above/store/segment-00000001.ebb", os::Open::write, false);
  const os::File file(*left, static_cast<int>(opened.value), "", false);
  ASSERT_TRUE(left->truncate(file.fd(), 2 * os::kBlock + os::round_up(40'000)));
  const auto next = open(*left);
  ASSERT_TRUE(next);
  EXPECT_EQ(offered(*next), (std::set<Version>{0, 10, 11}));
  ASSERT_EQ(next->damages().size(), 1u);
  EXPECT_NE(next->damages()[0].what.find("version 1 of history 'adjoint'"), std::string::npos)
      << next->damages()[0].what;
}

// Nothing on the disk shows such a head, except the index of the last close.
TEST_F(SegmentStoreKilledTest, a_head_that_became_zeros_is_missed_by_name_and_nothing_behind_it_is_taken_away) {
  constexpr std::uint64_t kRecord = os::kBlock + os::round_up(40'000);
  const std::filesystem::path segment = "/above/store/segment-00000001.ebb";
  for (const std::vector<Version>& gone : {std::vector<Version>{0}, {1}, {0, 1}}) {
    SCOPED_TRACE(testing::PrintToString(gone));
    const auto left = closed_once_and_killed();
    const auto move = [&](bool write, std::uint64_t offset, std::vector<std::byte>& bytes) {
      const auto opened = left->open(segment, os::Open::write, false);
      const os::File file(*left, static_cast<int>(opened.value), "", false);
      ASSERT_TRUE(write ? left->write(file.fd(), bytes.data(), bytes.size(), offset)
                        : left->read(file.fd(), bytes.data(), bytes.size(), offset));
    };
    std::map<Version, std::vector<std::byte>> heads;
    for (const Version version : gone) {
      const std::uint64_t offset = os::kBlock + static_cast<std::uint64_t>(version) * kRecord;
      std::vector<std::byte>& head = heads.emplace(version, std::vector<std::byte>(os::kBlock)).first->second;
      move(false, offset, head);
      std::vector<std::byte> zeros(os::kBlock);
      move(true, offset, zeros);
    }
    for (int restart = 0; restart < 3; ++restart) {  // the second finds an index, the third is killed again
      SCOPED_TRACE(restart);
      const auto next = open(*left);
      ASSERT_TRUE(next);
      EXPECT_EQ(offered(*next).size(), 4 - gone.size());
      const std::vector<Damage> damages = next->damages();
      ASSERT_EQ(damages.size(), gone.size());
      for (std::size_t i = 0; i < gone.size(); ++i) {
        EXPECT_EQ(damages[i].file, segment);
        EXPECT_EQ(damages[i].offset, os::kBlock + static_cast<std::uint64_t>(gone[i]) * kRecord);
        EXPECT_NE(damages[i].what.find("version " + std::to_string(gone[i]) + " of history 'adjoint'"),
                  std::string::npos)
            << damages[i].what;
      }
      next->stop();
      if (restart == 1) {
        ASSERT_TRUE(left->rename("/above/store/index", "/above/store/index.old"));
      }
    }
    auto seen = inspect(*left, "/above/store").value();
    ASSERT_EQ(seen.damages.size(), gone.size());
    EXPECT_EQ(seen.others, std::vector<std::string>());
    ASSERT_TRUE(left->remove("/above/store/index"));
    for (auto& [version, head] : heads) {
      move(true, os::kBlock + static_cast<std::uint64_t>(version) * kRecord, head);
    }
    const auto last = open(*left);
    ASSERT_TRUE(last);
    EXPECT_EQ(offered(*last), (std::set<Version>{0, 1, 10, 11})) << "with its head all of it is back";
  }
}

}  // namespace
}  // namespace ebb::storage
