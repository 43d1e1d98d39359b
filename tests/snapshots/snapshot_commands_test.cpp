// What `ebbtide ls`, `verify`, `export` and `gc` do with snapshots.
#include <fstream>
#include <set>

#include "ebbtide/admin.hpp"
#include "storage/format/snapshot_names.hpp"
#include "tests/snapshots/support.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

// Of 8 versions each stores an eighth of the memory again.
class SnapshotCommands : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = kMiB - 100;  // it ends within a page

  SnapshotCommands() {
    Store store = open();
    store.protect(0, memory_.data(), kBytes, {kPage, Track::declared}).value();
    for (Version version = 0; version < 8; ++version) {
      const auto at = static_cast<std::size_t>(version) * memory_.bytes() / 8;
      std::memset(memory_.data() + at, static_cast<int>(version) + 1, memory_.bytes() / 8);
      store.touch(0, at, std::min(memory_.bytes() / 8, kBytes - at)).value();
      expected_.push_back(memory_.copy());
      expected_.back().resize(kBytes);
      store.snapshot(version).value().wait("process").value();
    }
    store.close().value();
  }
  Store open() { return Store::open({.directory = directory_.path(), .durability = Durability::process}).value(); }
  // By another process, which was killed before it wrote the map.
  void leave_a_piece() {
    Rig rig(Backend::uring, {.device = 4 * kMiB, .host = 0, .disk = 256 * kMiB});
    rig.setup().directory = directory_.path();
    rig.setup().durability = Durability::process;
    History history = rig.engine().view(storage::PieceName{"", {5, 6}, 0}.text());
    ASSERT_TRUE(write(history, storage::kPieceVersion, 100));
  }
  std::size_t pieces() {
    std::size_t count = 0;
    for (const admin::Checkpoint& one : admin::ls(directory_.path()).value().checkpoints)
      count += !one.superseded && storage::parse_piece_name(one.history).has_value();
    return count;
  }
  // These versions are there, as they were, and no others.
  void expect(const std::vector<Version>& versions) {
    Store store = open();
    EXPECT_EQ(store.versions().value(), versions);
    for (const Version version : versions)
      EXPECT_TRUE(stored(store, version, 0) == expected_[static_cast<std::size_t>(version)]) << version;
  }

  // A byte of its payload.
  void damage(const admin::Checkpoint& one, std::uint64_t byte) {
    std::fstream file(directory_.path() / one.file, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(one.offset + os::kBlock + byte);
    file.seekg(at);
    const char was = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(was ^ 1));
  }

  OwnDirectory directory_;
  Pages memory_{kMiB};
  std::vector<std::vector<std::byte>> expected_;
};

TEST_F(SnapshotCommands, ReadGivesWhatARestoreDoes) {
  const admin::Listing listing = admin::ls(directory_.path()).value();
  std::size_t maps = 0;
  for (std::size_t i = 0; i < listing.checkpoints.size(); ++i) {
    auto reader = admin::read(listing, i).value();
    EXPECT_EQ(reader.is_snapshot(), listing.checkpoints[i].history.empty());
    if (!reader.is_snapshot()) continue;
    ++maps;
    const auto version = static_cast<std::size_t>(listing.checkpoints[i].version);
    ASSERT_EQ(reader.info().regions.size(), 1u);
    EXPECT_EQ(reader.info().regions[0].bytes, kBytes);
    EXPECT_EQ(reader.info().leans_on, open().info(listing.checkpoints[i].version).value().leans_on);
    std::vector<std::byte> all;
    for (auto part = reader.next().value(); !part.empty(); part = reader.next().value())
      all.insert(all.end(), part.begin(), part.end());
    EXPECT_TRUE(all == expected_[version]) << version;
  }
  EXPECT_EQ(maps, 8u);
}

TEST_F(SnapshotCommands, VerifyNamesEachSnapshotThatNeedsADamagedPiece) {
  const auto listing = admin::ls(directory_.path()).value();
  for (const admin::Verdict& verdict : admin::verify(listing))
    EXPECT_EQ(verdict.kind, admin::Verdict::Kind::intact) << verdict.damage.what;
  for (const admin::Checkpoint& one : listing.checkpoints) {
    if (one.history.empty()) continue;
    damage(one, 4096 * 3);
    break;
  }
  const auto verdicts = admin::verify(listing);
  Store store = open();
  std::size_t damaged = 0;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (!listing.checkpoints[i].history.empty()) continue;
    const Version version = listing.checkpoints[i].version;
    std::vector<std::byte> found(kBytes);
    const auto restored = store.restore(version, {{0, found.data(), found.size()}}, {.keep = true});
    const bool bad = verdicts[i].kind == admin::Verdict::Kind::damaged;
    EXPECT_EQ(code_of(restored), bad ? Errc::damaged : Errc::ok) << version;
    auto reader = admin::read(listing, i).value();
    auto part = reader.next();
    while (part && !part->empty()) part = reader.next();
    EXPECT_EQ(code_of(part), bad ? Errc::damaged : Errc::ok) << version;
    damaged += bad;
  }
  EXPECT_GE(damaged, 1u);
  EXPECT_LT(damaged, 8u);
}

TEST_F(SnapshotCommands, GcRemovesPiecesThatNoMapNamesAndNoOthers) {
  const std::size_t before = pieces();
  leave_a_piece();
  ASSERT_EQ(pieces(), before + 1);
  const auto done = admin::gc(directory_.path()).value();
  ASSERT_EQ(done.removals.size(), 1u);
  EXPECT_EQ(done.removals[0].why, admin::Removal::Why::unfinished);
  EXPECT_EQ(pieces(), before);
  expect({0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_F(SnapshotCommands, GcRemovesWhatOnlyRetiredOnesNeed) {
  std::set<Version> needed{6, 7};
  {
    Store store = open();
    for (const Version version : {6, 7})
      for (const Version source : store.info(version).value().leans_on) needed.insert(source);
  }
  const std::size_t before = pieces();
  const std::size_t after = needed.size() + 2;  // a piece each, and the edges of those that stay
  ASSERT_LT(after, before);
  const auto done = admin::gc(directory_.path(), {.keep_last = 2}).value();
  EXPECT_EQ(pieces(), after);
  EXPECT_EQ(done.removals.size(), 6 + before - after);
  expect({6, 7});
}

TEST_F(SnapshotCommands, GcKeepsAllPiecesWhereAMapIsDamaged) {
  leave_a_piece();
  const std::size_t before = pieces();
  for (const admin::Checkpoint& one : admin::ls(directory_.path()).value().checkpoints)
    if (one.history.empty() && one.version == 3) damage(one, 40);
  static_cast<void>(admin::gc(directory_.path()).value());
  EXPECT_EQ(pieces(), before);
  static_cast<void>(admin::gc(directory_.path(), {.damaged = true}).value());
  EXPECT_LT(pieces(), before);
  expect({0, 1, 2, 4, 5, 6, 7});
}

}  // namespace
}  // namespace ebb::snapshots
