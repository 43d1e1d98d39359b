// A tier more below the shared directory: a storage in memory, to which the store is no stranger than to any other.
#include "shared_rig.hpp"
#include "tests/doubles/kept_memory.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// A SharedRig with an archive below the shared directory.
class ArchiveRig : public SharedRig {
 public:
  explicit ArchiveRig(SharedSizes sizes = {}) : SharedRig(sizes) {
    planner::Machine& machine = setup().machine;
    const std::uint64_t chunk = machine.links.front().chunk;
    machine.tiers.push_back({"archive", planner::Medium::file, 64 * 1024 * kKiB, 4096});
    planner::connect(machine, 4);
    for (auto& link : machine.links) link.chunk = chunk;
    kept().rig().seams().storages[index()] = [kept = records_](storage::Done done, storage::Persisted persisted) {
      return std::make_unique<doubles::KeptMemory>(kept, std::move(done), std::move(persisted));
    };
  }
  planner::TierIndex index() { return static_cast<planner::TierIndex>(setup().machine.tiers.size() - 1); }
  std::size_t archived() const {
    const std::lock_guard lock(records_->mutex);
    return records_->records.size();
  }
  void await_archived(std::size_t count) const {
    while (archived() < count) std::this_thread::yield();
  }

 private:
  std::shared_ptr<doubles::KeptRecords> records_ = std::make_shared<doubles::KeptRecords>();
};

TEST(FourthTier, WhatNoDirectoryHasAnyMoreIsFoundAndRestoredFromThere) {
  ArchiveRig rig;
  Store& store = rig.open();
  for (Version version = 1; version <= 4; ++version) send(store, version);
  rig.await_archived(4);
  EXPECT_EQ(store.stats().tiers.back().name, "archive");
  rig.close();
  rig.delete_local();
  std::filesystem::remove_all(rig.shared().path());
  Store& elsewhere = rig.open();
  EXPECT_EQ(elsewhere.versions().value(), (std::vector<Version>{1, 2, 3, 4}));
  for (Version version = 4; version >= 1; --version) expect_restored(elsewhere, version, kSize, {.keep = true});
  EXPECT_EQ(elsewhere.latest().value(), 4);
}

TEST(FourthTier, TheDirectoriesAboveAreCachesOfIt) {
  ArchiveRig rig({.local = 4 * kSize, .shared = 6 * kSize});
  Store& store = rig.open();
  for (Version version = 1; version <= 20; ++version) {
    const auto written = write(store, version, kSize, {.timeout = Seconds(60)});
    ASSERT_TRUE(written) << written.error().message;
  }
  rig.await_archived(20);
  for (Version version = 20; version >= 1; --version) expect_restored(store, version, kSize, {.keep = true});
}

TEST(FourthTier, ADropIsADropThereToo) {
  ArchiveRig rig;
  Store& store = rig.open();
  for (Version version = 1; version <= 3; ++version) send(store, version);
  rig.await_archived(3);
  store.drop(2).value();
  send(store, 3 + 1);
  rig.close();
  Store& next = rig.open();
  EXPECT_EQ(next.versions().value(), (std::vector<Version>{1, 3, 4}));
}

}  // namespace
}  // namespace ebb::store
