// A program's calls at random, against full copies of its memory: through the public interface alone.
#include <map>
#include <random>
#include <set>

#include "tests/long_form.hpp"
#include "tests/snapshots/support.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

constexpr std::ptrdiff_t kKeepLast = 6;
constexpr std::size_t kMostKept = 24;

class SnapshotModel : public ::testing::TestWithParam<Durability> {};
INSTANTIATE_TEST_SUITE_P(Stores, SnapshotModel, ::testing::Values(Durability::ephemeral, Durability::process),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

// Memory of two regions, one of which begins and ends within a page.
struct Memory {
  std::vector<std::byte> pages, odd;
  bool operator==(const Memory&) const = default;
  std::vector<Target> targets() { return {{1, pages.data(), pages.size()}, {2, odd.data(), odd.size()}}; }
};

class Program {
 public:
  Program(std::uint64_t seed, const Options& options) : random_(seed), options_(options) {
    store_.emplace(Store::open(options_).value());
    protect();
  }

  void step() {
    SCOPED_TRACE("after version " + std::to_string(last_));
    switch (random_() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: return snapshot();
      case 5: return drop();
      case 6: return restore_difference();
      case 7: return restore_into_protected(random_() % 2 == 0);
      case 8:
        if (random_() % 8 == 0) open_again();
        return;
      default: return write();
    }
  }
  // Everything that is there comes back as it was, and nothing is missing that nobody dropped.
  void check() {
    settle();
    std::set<Version> there;
    for (const Version version : store_->versions().value()) there.insert(version);
    for (const auto& [version, memory] : expected_) {
      if (!there.contains(version)) {
        EXPECT_TRUE(retired_.contains(version)) << "version " << version << " is missing";
        continue;
      }
      Memory found = blank();
      const auto restored = store_->restore(version, found.targets(), {.keep = true});
      EXPECT_TRUE(restored) << restored.error().message;
      EXPECT_TRUE(found == memory) << "version " << version;
      EXPECT_LE(store_->info(version).value().leans_on.size(), 8u);
    }
    std::erase_if(expected_, [&](const auto& one) { return !there.contains(one.first); });
    for (const Version version : there) EXPECT_TRUE(expected_.contains(version)) << "version " << version << " is back";
  }

 private:
  bool kept() const { return options_.durability != Durability::ephemeral; }
  std::span<std::byte> odd() { return std::span(odd_).subspan(24, 70'001); }
  Memory now() { return {pages_.copy(), {odd().begin(), odd().end()}}; }
  Memory blank() {
    return {std::vector<std::byte>(pages_.bytes(), std::byte{9}), std::vector<std::byte>(odd().size(), std::byte{9})};
  }
  void protect() {
    const Track track = random_() % 2 ? Track::faults : Track::automatic;
    store_->protect(1, pages_.data(), pages_.bytes(), {kPage, track}).value();
    store_->protect(2, odd().data(), odd().size(), {kPage, track}).value();
  }
  void write() {
    for (std::size_t times = random_() % 20 == 0 ? 500 : random_() % 12; times > 0; --times) {
      const std::span<std::byte> memory = random_() % 4 == 0 ? odd() : std::span(pages_.data(), pages_.bytes());
      const std::size_t at = random_() % memory.size();
      const std::size_t bytes = std::min<std::size_t>(memory.size() - at, 1 + random_() % 5000);
      std::memset(memory.data() + at, static_cast<int>(random_()), bytes);
    }
  }
  void snapshot() {
    expected_[++last_] = now();
    auto cut = store_->snapshot(last_, {.full = random_() % 20 == 0, .dedup = random_() % 2 == 0});
    ASSERT_TRUE(cut) << cut.error().message;
    in_flight_.push_back(*cut);
    if (expected_.size() > kMostKept) drop();
  }
  void settle() {
    for (const Snapshot& one : in_flight_) {
      const auto waited = one.wait(name_of(*options_.durability));
      ASSERT_TRUE(waited) << waited.error().message;
    }
    in_flight_.clear();
    // One that is not among the newest goes when a later one is durable.
    for (auto one = expected_.begin(); kept() && std::distance(one, expected_.end()) > kKeepLast; ++one)
      retired_.insert(one->first);
  }
  // One that is there.
  std::optional<Version> any() {
    settle();
    const std::vector<Version> there = store_->versions().value();
    if (there.empty()) return {};
    return there[random_() % there.size()];
  }
  void drop() {
    const auto version = any();
    if (!version) return;
    ASSERT_TRUE(store_->drop(*version));
    expected_.erase(*version);
  }
  void restore_difference() {
    const auto version = any(), have = any();
    if (!version || !have) return;
    Memory found = expected_.at(*have);
    const auto restored = store_->restore(*version, found.targets(), {.keep = true, .have = *have});
    ASSERT_TRUE(restored) << restored.error().message;
    ASSERT_TRUE(found == expected_.at(*version)) << "version " << *version << " over " << *have;
  }
  void restore_into_protected(bool keep) {
    const auto version = any();
    if (!version) return;
    const auto restored = store_->restore(
        *version, {{1, pages_.data(), pages_.bytes()}, {2, odd().data(), odd().size()}}, {.keep = keep});
    ASSERT_TRUE(restored) << restored.error().message;
    ASSERT_TRUE(now() == expected_.at(*version)) << "version " << *version;
    if (!keep && !kept()) expected_.erase(*version);
  }
  void open_again() {
    if (!kept()) return;
    settle();
    ASSERT_TRUE(store_->close());
    store_.emplace(Store::open(options_).value());
    protect();
    check();
  }

  std::mt19937_64 random_;
  const Options options_;
  Pages pages_{kMiB};
  std::vector<std::byte> odd_ = std::vector<std::byte>(80'000);
  std::optional<Store> store_;
  Version last_ = 0;
  std::map<Version, Memory> expected_;
  std::set<Version> retired_;
  std::vector<Snapshot> in_flight_;
};

TEST_P(SnapshotModel, EveryVersionComesBackWhateverBecameOfThoseItLeansOn) {
  const std::uint64_t seeds = long_form() ? 10 : 1;
  const int steps = long_form() ? 3000 : 300;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    OwnDirectory directory;
    Options options{.device = "cpu",
                    .directory = directory.path(),
                    .device_cache = 8 * kMiB,
                    .host_cache = 16 * kMiB,
                    .disk = 1024 * kMiB,
                    .durability = GetParam()};
    std::filesystem::create_directories(directory.path());
    if (GetParam() != Durability::ephemeral) options.keep_last = kKeepLast;
    Program program(seed, options);
    for (int step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      program.step();
      if (step % 100 == 99) program.check();
    }
    program.check();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ebb::snapshots
