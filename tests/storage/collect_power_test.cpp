// gc and a loss of power: what it leaves at every moment, and that no sync of it can be spared.
#include <algorithm>
#include <optional>

#include "storage/store_directory.hpp"
#include "tests/storage/collect_fixture.hpp"

namespace ebb::storage {
namespace {

// Of every state that the machine may come back to: what stays is there bit for bit; what goes is there bit for bit or
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
  explicit Trial(std::optional<FileCall> failed = {}) {
    MemoryFiles files;
    put_image(files, busy());
    before = offered(files);
    if (failed) {
      FaultyFiles faulty(files, 1);
      faulty.fail_nth(*failed, *failed == FileCall::sync_directory ? opening_syncs() + 1 : 1, EIO);
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
  platform::testing::Journal journal;
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

// Each is there for a reason: without it some state is wrong. But for the last one, of the index's name: for the next
// opening to be quick.
TEST_P(CollectPower, WithoutItsSyncsItWould) {
  const Trial trial(GetParam());
  const PowerLoss power(trial.journal);
  std::vector<std::size_t> syncs = power.syncs(), needless;
  syncs.erase(syncs.begin(), std::ranges::upper_bound(syncs, trial.first) + static_cast<std::ptrdiff_t>(opening_syncs()));
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

}  // namespace
}  // namespace ebb::storage
