// Memory that was restored is clean against the version that it came from: the next snapshot leans on that one.
#include "tests/snapshots/support.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

class RestoredMemory : public ::testing::TestWithParam<Track> {
 protected:
  void write(Store& store, std::size_t zone, int value) {
    memory_.data()[zone * kPage + 5] = static_cast<std::byte>(value);
    if (GetParam() == Track::declared) store.touch(0, zone * kPage + 5, 1).value();
  }
  void restore(Store& store, Version version, const RestoreOptions& options) {
    store.restore(version, {{0, memory_.data(), memory_.bytes()}}, options).value();
  }
  // How many zones it stored.
  std::size_t take(Store& store, Version version) {
    const std::uint64_t before = store.snapshot_stats().bytes_gathered;
    EXPECT_TRUE(store.snapshot(version).value().wait("ephemeral"));
    expected_[version] = memory_.copy();
    return (store.snapshot_stats().bytes_gathered - before) / kPage;
  }
  void check(Store& store) {
    for (const auto& [version, bytes] : expected_) EXPECT_TRUE(stored(store, version, 0) == bytes) << version;
  }
  Pages memory_{16 * kMiB};
  std::map<Version, std::vector<std::byte>> expected_;
};
INSTANTIATE_TEST_SUITE_P(Tracks, RestoredMemory,
                         ::testing::Values(Track::automatic, Track::faults, Track::scan, Track::digest,
                                           Track::declared));

TEST_P(RestoredMemory, IsNotStoredAgain) {
  Rig rig(Backend::uring, {.device = 256 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  store.protect(0, memory_.data(), memory_.bytes(), {kPage, GetParam()}).value();
  EXPECT_EQ(take(store, 0), 4096u);
  for (std::size_t zone = 0; zone < 20; ++zone) write(store, zone * 7, 1);
  EXPECT_EQ(take(store, 1), 20u);
  for (std::size_t zone = 0; zone < 20; ++zone) write(store, zone * 7, 2);
  EXPECT_EQ(take(store, 2), 20u);

  write(store, 4000, 9);
  write(store, 7, 9);
  restore(store, 1, {.keep = true});
  write(store, 100, 3);
  EXPECT_EQ(take(store, 3), 1u);
  EXPECT_EQ(store.info(3).value().leans_on, (std::vector<Version>{0, 1}));
  check(store);

  // What differs is moved, and the rest is as it was.
  restore(store, 2, {.keep = true, .have = 3});
  EXPECT_EQ(memory_.copy(), expected_[2]);
  write(store, 200, 4);
  EXPECT_EQ(take(store, 4), 1u);
  check(store);

  // One that is consumed leaves its bytes to what leans on it.
  expected_.erase(2);
  restore(store, 2, {});
  EXPECT_EQ(take(store, 5), 0u);
  for (const Version gone : {0, 1}) {
    store.drop(gone).value();
    expected_.erase(gone);
  }
  write(store, 300, 5);
  EXPECT_EQ(take(store, 6), 1u);
  check(store);
}

TEST_P(RestoredMemory, OfAnotherProcessIsNotStoredAgain) {
  const OwnDirectory directory;
  const auto open = [&] {
    return Store::open({.directory = directory.path(),
                        .device_cache = 256 * kMiB,
                        .host_cache = 0,
                        .durability = Durability::process})
        .value();
  };
  {
    Store store = open();
    store.protect(0, memory_.data(), memory_.bytes(), {kPage, GetParam()}).value();
    take(store, 0);
    write(store, 9, 1);
    take(store, 1);
    store.close().value();
  }
  Store store = open();
  store.protect(0, memory_.data(), memory_.bytes(), {kPage, GetParam()}).value();
  write(store, 9, 2);
  restore(store, 1, {});
  expected_.erase(1);
  write(store, 10, 3);
  EXPECT_EQ(take(store, 2), 1u);
  check(store);
}

// What cannot be known to be the version's is stored.
TEST_P(RestoredMemory, OfAnotherShapeIsStored) {
  Rig rig(Backend::uring, {.device = 256 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  store.protect(0, memory_.data(), memory_.bytes() / 2, {kPage, GetParam()}).value();
  store.protect(1, memory_.data() + memory_.bytes() / 2, memory_.bytes() / 2, {kPage, GetParam()}).value();
  ASSERT_TRUE(store.snapshot(0).value().wait("ephemeral"));
  write(store, 3, 1);
  const auto [first, second] = std::pair(memory_.data(), memory_.data() + memory_.bytes() / 2);
  // Each to the other's place.
  store.restore(0, {{0, second, memory_.bytes() / 2}, {1, first, memory_.bytes() / 2}}, {.keep = true}).value();
  const auto now = memory_.copy();
  ASSERT_TRUE(store.snapshot(1).value().wait("ephemeral"));
  EXPECT_TRUE(stored(store, 1, 0) ==
              std::vector(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(now.size() / 2)));
}

}  // namespace
}  // namespace ebb::snapshots
