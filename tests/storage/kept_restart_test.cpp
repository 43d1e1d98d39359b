// What a process may believe of what an earlier one left: numbers that were used, syncs that failed or were never made.
#include <cerrno>
#include <set>

#include "platform/testing/power_loss.hpp"
#include "storage/inspect.hpp"
#include "tests/storage/kept_fixture.hpp"

namespace ebb::storage {
namespace {

class KeptRestartTest : public KeptFixture {
 protected:
  /// As after a process that was killed: what it would have written at its close is not there.
  void without_index() { std::filesystem::remove(directory_ / kIndexFile); }
  std::unique_ptr<KeptStorage> reader() {
    KeptOptions readonly = options_;
    readonly.readonly = true;
    return try_open(readonly).value();
  }
  Errc read_error(KeptStorage& from, ObjectId id) {
    auto read = from.read(id);
    return read ? Errc::closed : read.error().code;
  }
};

TEST_F(KeptRestartTest, a_segment_number_is_never_used_again) {
  for (const bool clean : {true, false}) {
    SCOPED_TRACE(clean);
    const ObjectId first = kFirst + (clean ? 0 : 10);
    open();
    ASSERT_TRUE(keep(first, 0, 16384));
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
    ASSERT_TRUE(keep(first + 1, 7, 16384));
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

TEST_F(KeptRestartTest, the_last_segment_takes_no_room_when_nothing_lives_in_it) {
  open();
  ASSERT_TRUE(keep(kFirst, 0, 500'000));
  storage_->drop(kFirst);
  storage_.reset();
  without_index();
  EXPECT_LE(allocated(), 3 * platform::kBlock);
  // Killed while it was the one that is written.
  std::filesystem::resize_file(segments().back(), 1 << 20);
  open();
  EXPECT_EQ(std::filesystem::file_size(segments().back()), 2 * platform::kBlock + platform::round_up(500'000));
}

TEST_F(KeptRestartTest, what_a_killed_process_did_not_sync_is_synced_or_the_opening_fails) {
  open();
  ASSERT_TRUE(keep(kFirst, 1, 16384));
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

TEST_F(KeptRestartTest, the_removal_of_the_index_is_synced_though_an_earlier_opening_failed_at_that) {
  for (const bool synced : {true, false}) {
    SCOPED_TRACE(synced);
    options_.synced = synced;
    open();
    ASSERT_TRUE(keep(kFirst, 1, 16384));
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
    EXPECT_TRUE(std::any_of(records.begin() + static_cast<std::ptrdiff_t>(start), records.end(), [&](const FileRecord& one) {
      return one.call == FileCall::sync_directory && one.path == directory_;
    }));
    storage_.reset();
    std::filesystem::remove_all(directory_);
  }
}

TEST_F(KeptRestartTest, an_index_that_is_made_anew_does_not_speak_of_the_old_ones_damage) {
  open();
  ASSERT_TRUE(keep(kFirst, 1, 16384));
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

TEST_F(KeptRestartTest, what_lies_behind_a_head_that_became_zeros_is_told_of_and_left_alone) {
  constexpr std::uint64_t kRecord = platform::kBlock + platform::round_up(40'000);
  const auto store = [&](std::uint64_t offset, std::vector<std::byte>& sector) {  // exchanges them
    const auto opened = files_.open(segments().at(0), platform::Open::write, false);
    const platform::File file(files_, static_cast<int>(opened.value), "", false);
    std::vector<std::byte> now(sector.size());
    ASSERT_TRUE(files_.read(file.fd(), now.data(), now.size(), offset));
    ASSERT_TRUE(files_.write(file.fd(), sector.data(), sector.size(), offset));
    ASSERT_TRUE(files_.sync(file.fd()));
    sector = now;
  };
  ObjectId id = kFirst;
  for (const std::vector<std::uint64_t>& gone : {std::vector<std::uint64_t>{1}, {2}, {0, 1, 2}}) {  // between, last, all
    SCOPED_TRACE(gone.front());
    open();
    for (Version version = 0; version < 3; ++version) ASSERT_TRUE(keep(id++, version, 40'000));
    storage_.reset();
    without_index();
    std::map<std::uint64_t, std::vector<std::byte>> sectors;
    for (const std::uint64_t which : gone) {
      store(platform::kBlock + which * kRecord, sectors.emplace(which, std::vector<std::byte>(512)).first->second);
    }
    for (int restart = 0; restart < 2; ++restart) {
      open();
      EXPECT_EQ(storage_->found().size(), restart ? 0 : 3 - gone.size());
      ASSERT_EQ(storage_->damages().size(), 1u);
      EXPECT_EQ(storage_->damages()[0].offset, platform::kBlock + gone.front() * kRecord);
      for (const Found& found : storage_->found()) storage_->drop(found.object);
      storage_.reset();
    }
    without_index();
    for (auto& [which, sector] : sectors) store(platform::kBlock + which * kRecord, sector);
    open();
    ASSERT_EQ(storage_->found().size(), gone.size());
    for (const Found& found : storage_->found()) expect_back(found.object, found.version, 40'000);
    storage_.reset();
    std::filesystem::remove_all(directory_);
  }
}

/// Opens what a process left that was killed at any moment; then the power goes.
class KeptKilledTest : public ::testing::Test {
 protected:
  using MemoryFiles = platform::testing::MemoryFiles;
  using PowerLoss = platform::testing::PowerLoss;

  std::unique_ptr<KeptStorage> open(MemoryFiles& files, bool readonly = false) {
    auto opened = try_open(files, readonly);
    if (!opened) ADD_FAILURE() << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  Result<std::unique_ptr<KeptStorage>> try_open(MemoryFiles& files, bool readonly) {
    KeptOptions options;
    options.synced = synced_;
    options.directory = "/above/store";
    options.capacity = 8 << 20;
    options.segment_bytes = 128 << 10;
    options.block_bytes = 8192;
    options.sync_interval = std::chrono::hours(1);
    options.readonly = readonly;
    options.engine.kind = Kind::threads;
    return open_kept_storage(files, clock_, options, completions_.done(), kept_.kept());
  }
  void keep(KeptStorage& storage, Version version) { ASSERT_TRUE(try_keep(storage, version)); }
  Result<void> try_keep(KeptStorage& storage, Version version) {
    const ObjectId id = kFirstObject + next_;
    Description description{"adjoint", version, {}};
    description.info.bytes = 40'000;
    description.info.regions.push_back({7, 40'000, 0});
    storage.begin(id, std::make_shared<const Description>(description)).value();
    Buffer out(40'000);
    out.scramble(seeds_[version] = next_);
    storage.put(next_, id, 40'000, 0, out.data(), 40'000).value();
    completions_.of(next_++).value();
    storage.commit();
    return kept_.of(id);
  }
  /// What is offered and can be read.
  static std::set<Version> offered(KeptStorage& storage) {
    std::set<Version> out;
    for (const Found& found : storage.found()) {
      EXPECT_TRUE(storage.verify(found.object)) << "version " << found.version;
      out.insert(found.version);
    }
    return out;
  }

  platform::SteadyClock clock_;
  test::Completions completions_;
  KeptOnes kept_;
  std::map<Version, std::uint64_t> seeds_;   // of their bytes
  bool synced_ = true;
  std::uint64_t next_ = 1;
};

TEST_F(KeptKilledTest, what_the_next_one_finds_outlives_the_power) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  ASSERT_TRUE(files.sync_directory("/"));
  for (const Version first : {0, 10}) {
    const auto storage = open(files);
    ASSERT_TRUE(storage);
    for (Version version = first; version < first + 3; ++version) keep(*storage, version);
    storage->stop();
  }
  const PowerLoss run(files.journal());
  for (std::size_t n = 0; n <= run.size(); ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n) + (n ? ": " + platform::testing::describe(run.change(n)) : ""));
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

TEST_F(KeptKilledTest, handed_to_the_system_no_wrong_byte_outlives_the_power) {
  synced_ = false;
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  ASSERT_TRUE(files.sync_directory("/"));
  for (const Version first : {0, 10}) {
    const auto storage = open(files);
    ASSERT_TRUE(storage);
    for (Version version = first; version < first + 3; ++version) keep(*storage, version);
    storage->stop();
  }
  const PowerLoss run(files.journal());
  std::size_t whole = 0, damaged = 0;
  for (std::size_t n = 2; n <= run.size(); ++n) {
    SCOPED_TRACE("killed at " + std::to_string(n) + ": " + platform::testing::describe(run.change(n)));
    const auto left = run.killed(n);
    const auto next = open(*left);
    ASSERT_TRUE(next);
    EXPECT_EQ(offered(*next).size(), next->found().size()) << "the machine went on";
    const PowerLoss power(left->journal());
    next->stop();
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const auto after = power.crash(power.size(), seed);
      auto last = try_open(*after, true);
      if (!last) continue;  // the store's own file is gone
      KeptStorage& store = **last;
      for (const Found& one : store.found()) {
        Buffer in(40'000), right(40'000);
        const std::uint64_t token = next_++;
        auto how = store.get(token, one.object, 0, in.data(), 40'000);
        if (how) how = completions_.of(token);
        right.scramble(seeds_.at(one.version));
        ASSERT_TRUE(!how || std::ranges::equal(in.first(40'000), right.first(40'000))) << "version " << one.version;
        ++(how ? whole : damaged);
      }
    }
  }
  EXPECT_GT(whole, 0u);
  EXPECT_GT(damaged, 0u) << "or nothing was lost that matters";
}

// The system then has in memory what the disk may never get, and calls a later sync good.
TEST_F(KeptKilledTest, what_the_next_one_finds_outlives_the_power_though_a_sync_had_failed) {
  std::size_t lost = 0;
  for (std::uint64_t failing = 1; failing <= 4; ++failing) {  // of two payloads and two headers
    MemoryFiles files;
    ASSERT_TRUE(files.make_directory("/above"));
    ASSERT_TRUE(files.sync_directory("/"));
    const auto storage = open(files);
    ASSERT_TRUE(storage);
    keep(*storage, 1);
    files.fail_sync(failing);
    std::set<Version> told;
    for (Version version = 2; version < 4; ++version) {
      if (try_keep(*storage, version)) continue;
      told.insert(version);
      files.note("told");
    }
    ASSERT_EQ(told.size(), 1u);
    const PowerLoss run(files.journal());
    storage->stop();
    std::size_t n = run.all(platform::testing::Change::Kind::failed_sync).at(0);
    for (; n <= run.size(); ++n) {
      SCOPED_TRACE("sync " + std::to_string(failing) + ", killed at " + std::to_string(n));
      const auto left = run.killed(n);
      const auto next = open(*left);
      ASSERT_TRUE(next);
      const std::set<Version> found = offered(*next);
      EXPECT_TRUE(found.contains(1));
      EXPECT_FALSE(!run.notes(n).empty() && found.contains(*told.begin())) << "it was told that this one is lost";
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

// Of such a head nothing is left that says so, but what the store knew when it was closed last.
TEST_F(KeptKilledTest, a_head_that_became_zeros_is_missed_by_name_and_nothing_behind_it_is_taken_away) {
  constexpr std::uint64_t kRecord = platform::kBlock + platform::round_up(40'000);
  const std::filesystem::path segment = "/above/store/segment-00000001.ebb";
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/above"));
  for (const Version first : {0, 10}) {  // one is closed, one is killed
    const auto storage = open(files);
    ASSERT_TRUE(storage);
    for (Version version = first; version < first + 2; ++version) keep(*storage, version);
    if (first == 0) storage->stop();
    else files.note("killed");
  }
  const PowerLoss run(files.journal());
  const std::size_t end = run.all(platform::testing::Change::Kind::note).at(0);
  for (const std::vector<Version>& gone : {std::vector<Version>{0}, {1}, {0, 1}}) {
    SCOPED_TRACE(testing::PrintToString(gone));
    const auto left = run.killed(end);
    const auto move = [&](bool write, std::uint64_t offset, std::vector<std::byte>& bytes) {
      const auto opened = left->open(segment, platform::Open::write, false);
      const platform::File file(*left, static_cast<int>(opened.value), "", false);
      ASSERT_TRUE(write ? left->write(file.fd(), bytes.data(), bytes.size(), offset)
                        : left->read(file.fd(), bytes.data(), bytes.size(), offset));
    };
    std::map<Version, std::vector<std::byte>> heads;
    for (const Version version : gone) {
      const std::uint64_t offset = platform::kBlock + static_cast<std::uint64_t>(version) * kRecord;
      std::vector<std::byte>& head = heads.emplace(version, std::vector<std::byte>(platform::kBlock)).first->second;
      move(false, offset, head);
      std::vector<std::byte> zeros(platform::kBlock);
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
        EXPECT_EQ(damages[i].offset, platform::kBlock + static_cast<std::uint64_t>(gone[i]) * kRecord);
        EXPECT_NE(damages[i].what.find("version " + std::to_string(gone[i]) + " of history 'adjoint'"), std::string::npos)
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
      move(true, platform::kBlock + static_cast<std::uint64_t>(version) * kRecord, head);
    }
    const auto last = open(*left);
    ASSERT_TRUE(last);
    EXPECT_EQ(offered(*last), (std::set<Version>{0, 1, 10, 11})) << "with its head all of it is back";
  }
}

}  // namespace
}  // namespace ebb::storage
