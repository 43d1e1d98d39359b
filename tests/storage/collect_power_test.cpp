// gc and power failures: the state at every moment, and that each of its syncs is necessary.
#include <algorithm>
#include <optional>

#include "storage/scan/store_directory.hpp"
#include "tests/storage/collect_fixture.hpp"

namespace ebb::storage {
namespace {

// In every state after a power failure: records that stay are there bit for bit; removed ones are there bit for bit or
// not; nothing older comes back; nothing is called damaged.
std::string violation(MemoryFiles& files, const Contents& before, const Contents& kept) {
  for (const auto& [name, bytes] : offered(files)) {
    const auto was = before.find(name);
    const std::string text = name.first + "/" + std::to_string(name.second);
    if (was == before.end()) return text + " came back";
    if (was->second != bytes) return text + " is not what it was";
  }
  const Contents now = offered(files);
  for (const auto& [name, bytes] : kept) {
    if (!now.contains(name)) return name.first + "/" + std::to_string(name.second) + " is gone";
  }
  auto seen = inspect(files, test::kStore);
  if (!seen) return seen.error().message;
  if (!seen->damages.empty()) return seen->damages[0].damage.file.string() + ": " + seen->damages[0].damage.what;
  return {};
}

const std::set<std::string> kWritten{segment_name(1), segment_name(2), segment_name(3)};  // of busy()

// That opening a store for writing makes, of directories: why is its own tests' business.
std::size_t opening_syncs() {
  MemoryFiles memory;
  put_image(memory, busy());
  FaultyFiles files(memory, 1);
  EXPECT_TRUE(open_store_directory(files, test::kStore, {}));
  EXPECT_EQ(files.count(FileCall::sync), 0u);
  return files.count(FileCall::sync_directory);
}

struct Trial {
  /// `failed`: one was tried before, and its own first sync of this kind was refused.
  explicit Trial(std::optional<FileCall> failed = {}, const StoreImage& image = busy()) {
    MemoryFiles files;
    put_image(files, image);
    before = offered(files);
    if (failed) {
      FaultyFiles faulty(files, 1);
      if (*failed == FileCall::sync)
        files.fail_sync(1);
      else
        faulty.fail_nth(*failed, opening_syncs() + 1, EIO);
      EXPECT_FALSE(collect(faulty, test::kStore, kLast));
    }
    first = files.changes();
    EXPECT_TRUE(collect(files, test::kStore, kLast));
    kept = offered(files);
    journal = files.journal();
  }
  std::string crash(const PowerLoss& power, std::size_t n, std::uint64_t seed) const {
    return violation(*power.crash(n, seed), before, kept);
  }
  Contents before, kept;
  std::size_t first = 0;
  doubles::Journal journal;
};

class CollectPower : public ::testing::TestWithParam<std::optional<FileCall>> {};
INSTANTIATE_TEST_SUITE_P(AfterOneThatFailed, CollectPower,
                         ::testing::Values(std::nullopt, FileCall::sync, FileCall::sync_directory));

TEST_P(CollectPower, LosesNothingThatStays) {
  const Trial trial(GetParam());
  const PowerLoss power(trial.journal);
  for (std::size_t n = trial.first; n <= power.size(); ++n) {
    const auto files = power.prefix(n);
    ASSERT_EQ(violation(*files, trial.before, trial.kept), "") << "prefix " << n;
    for (std::uint64_t seed = 0; seed < 15; ++seed) {
      ASSERT_EQ(trial.crash(power, n, seed), "") << "crash " << n << ", seed " << seed;
    }
    auto again = collect(*files, test::kStore, kLast);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(offered(*files), trial.kept) << "once more after " << n;
  }
}

// Its drop is in an earlier file, of which nothing stays.
TEST(Collect, WhatADropHidesIsGoneBeforeTheDropGoes) {
  StoreImage image;
  image.add(2, describe("e", 1, {2000}));
  image.drop(image.add(1, describe("e", 1, {2500})));
  image.add(2, describe("a", 1, {3000}));
  const Trial trial({}, image);
  EXPECT_EQ(trial.before.size(), 1u);
  EXPECT_EQ(trial.kept, trial.before);
  const PowerLoss power(trial.journal);
  os::FileStatus status;
  EXPECT_TRUE(power.prefix(trial.first)->status(segment_path(test::kStore, 1), status));
  EXPECT_FALSE(power.prefix(power.size())->status(segment_path(test::kStore, 1), status));
  for (std::size_t n = trial.first; n <= power.size(); ++n) {
    ASSERT_EQ(violation(*power.prefix(n), trial.before, trial.kept), "") << "prefix " << n;
    for (std::uint64_t seed = 0; seed < 15; ++seed)
      ASSERT_EQ(trial.crash(power, n, seed), "") << "crash " << n << ", seed " << seed;
  }
}

// Each is necessary: without it some state is wrong. Except the last one, of the index's name: for the next
// opening to be quick. Where there was no index any more, each segment is synced first: see CollectKilled. This tests
// the tests above, so that a sanitizer would find nothing new in it.
#if !defined(__SANITIZE_ADDRESS__)
TEST_P(CollectPower, WithoutItsSyncsItWould) {
  const Trial trial(GetParam());
  const PowerLoss power(trial.journal);
  std::vector<std::size_t> syncs = power.syncs(), needless;
  syncs.erase(syncs.begin(),
              std::ranges::upper_bound(syncs, trial.first) + static_cast<std::ptrdiff_t>(opening_syncs()));
  if (GetParam()) syncs.erase(syncs.begin(), syncs.begin() + static_cast<std::ptrdiff_t>(kWritten.size()));
  for (const std::size_t number : syncs) {
    const PowerLoss without = power.without({number});
    bool red = false;
    for (std::size_t n = trial.first; n <= power.size() && !red; ++n) {
      for (std::uint64_t seed = 0; seed < 30 && !red; ++seed) red = !trial.crash(without, n, seed).empty();
    }
    if (!red) needless.push_back(number);
  }
  EXPECT_EQ(needless, std::vector<std::size_t>{syncs.back()});
}
#endif

// A store whose writer was killed: its writes are in memory, and there is no index.
StoreImage killed() {
  StoreImage image = busy();
  image.files.erase("index");
  return image;
}

// Whoever opens it next believes the index and syncs nothing.
TEST(CollectKilled, WhatStaysIsOnTheDiskWhenTheIndexSaysSo) {
  MemoryFiles files;
  put_image(files, killed(), kWritten);
  const std::size_t first = files.changes();
  ASSERT_TRUE(collect(files, test::kStore, {}));
  ASSERT_TRUE(scan_store(files, test::kStore, true)->from_index);
  const Contents kept = offered(files);
  const PowerLoss power(files.journal());
  const auto red = [&](const PowerLoss& one) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      if (const std::string what = violation(*one.crash(one.size(), seed), kept, kept); !what.empty()) return what;
    }
    return std::string();
  };
  EXPECT_EQ(red(power), "");
  std::set<std::string> needed;
  for (const std::size_t number : power.all(doubles::Change::Kind::sync)) {
    if (number > first && !red(power.without({number})).empty()) {
      needed.insert(std::filesystem::path(power.change(number).text).filename());
    }
  }
  for (const std::string& name : kWritten) EXPECT_TRUE(needed.contains(name)) << name << " may as well not be synced";
}

// At every moment there is a version of the history that is as it was written.
TEST(CollectKilled, NothingGoesBeforeWhatIsNewerIsOnTheDisk) {
  StoreImage image;
  image.add(1, describe("a", 1, {5000}));
  image.add(2, describe("a", 2, {9000}));
  MemoryFiles files;
  put_image(files, image, {segment_name(2)});
  const Contents before = offered(files);
  const std::size_t first = files.changes();
  ASSERT_TRUE(collect(files, test::kStore, kLast));
  ASSERT_EQ(offered(files).size(), 1u);
  const PowerLoss power(files.journal());
  for (std::size_t n = first; n <= power.size(); ++n) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      const Contents now = offered(*power.crash(n, seed));
      ASSERT_TRUE(std::ranges::any_of(now, [&](const auto& one) { return before.at(one.first) == one.second; }))
          << n << ", seed " << seed;
    }
  }
}

TEST(CollectKilled, ASyncThatFailsEndsItBeforeAnythingIsChanged) {
  MemoryFiles memory;
  put_image(memory, killed());
  for (std::uint64_t nth = 1; nth <= 3; ++nth) {
    FaultyFiles files(memory, 1);
    files.fail_nth(FileCall::sync, nth, EIO);
    const std::size_t before = memory.changes();
    const auto refused = collect(files, test::kStore, kLast);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::io_error);
    EXPECT_NE(refused.error().message.find("syncing it"), std::string::npos) << refused.error().message;
    const auto journal = memory.journal();
    for (std::size_t i = before; i < journal.changes.size(); ++i) {
      using Change = doubles::Change;
      const auto kind = journal.changes[i].kind;
      const bool of_lock = journal.changes[i].text.find("/lock") != std::string::npos;
      EXPECT_TRUE(of_lock || kind == Change::Kind::sync || kind == Change::Kind::sync_directory)
          << describe(journal.changes[i]);
    }
  }
}

}  // namespace
}  // namespace ebb::storage
