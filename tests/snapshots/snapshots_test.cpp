// Whatever is written, and however writes are found: every version has the memory as it was at its cut.
#include <map>
#include <random>

#include "storage/format/snapshot_names.hpp"
#include "tests/long_form.hpp"
#include "tests/snapshots/support.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

struct How {
  Track track = Track::automatic;
  bool kept = false;
};
class Snapshots : public ::testing::TestWithParam<How> {};
std::string name_of_how(const ::testing::TestParamInfo<How>& tested) {
  constexpr std::array kNames{"automatic", "faults", "scan", "digest", "declared", "everything"};
  return std::string(kNames[static_cast<std::size_t>(tested.param.track)]) + (tested.param.kept ? "_kept" : "");
}
INSTANTIATE_TEST_SUITE_P(Tracks, Snapshots,
                         ::testing::Values(How{Track::automatic}, How{Track::faults}, How{Track::faults, true},
                                           How{Track::scan}, How{Track::digest}, How{Track::declared},
                                           How{Track::everything}, How{Track::automatic, true}),
                         name_of_how);

// Two regions, of which one begins and ends within a page; versions are dropped, and memory is restored.
TEST_P(Snapshots, EveryVersionIsTheMemoryAsItWasAtItsCut) {
  const Track track = GetParam().track;
  for (std::uint64_t seed = 1; seed <= (long_form() ? 20u : 2u); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    OwnDirectory directory;
    Rig rig(Backend::uring, {.device = 16 * kMiB, .host = 32 * kMiB, .disk = 256 * kMiB});
    std::optional<Store> kept;
    if (GetParam().kept)
      kept.emplace(Store::open({.directory = directory.path(),
                                .device_cache = 16 * kMiB,
                                .host_cache = 32 * kMiB,
                                .durability = Durability::process})
                       .value());
    Store& store = kept ? *kept : rig.store();
    const std::uint64_t zone = seed == 2 ? 16 * kKiB : 4 * kKiB;
    if (!kept) snapshots_of(rig, zone, {.piece_bytes = 8 * zone});

    Pages body(512 * kKiB);
    std::vector<std::byte> odd_memory(150'000);
    const std::span<std::byte> odd = std::span(odd_memory).subspan(16, 140'001);
    store.protect(7, odd.data(), odd.size(), {zone, track}).value();
    store.protect(3, body.data(), body.bytes(), {zone, track}).value();

    const auto write = [&](std::size_t times) {
      for (std::size_t i = 0; i < times; ++i) {
        const bool in_odd = random() % 4 == 0;
        const std::span<std::byte> memory = in_odd ? odd : std::span(body.data(), body.bytes());
        const std::size_t at = random() % memory.size();
        const std::size_t bytes = std::min<std::size_t>(memory.size() - at, 1 + random() % 300);
        std::memset(memory.data() + at, static_cast<int>(random()), bytes);
        if (track == Track::declared) store.touch(in_odd ? 7 : 3, at, bytes).value();
      }
    };
    const auto now = [&] { return std::array{body.copy(), std::vector<std::byte>(odd.begin(), odd.end())}; };
    std::map<Version, std::array<std::vector<std::byte>, 2>> expected;
    std::vector<Snapshot> taken;
    const auto any_version = [&] {
      const auto found = std::next(expected.begin(), static_cast<std::ptrdiff_t>(random() % expected.size()));
      EXPECT_TRUE(taken[static_cast<std::size_t>(found->first - 1)].wait("ephemeral"));
      return found;
    };
    for (Version version = 1; version <= 30; ++version) {
      SCOPED_TRACE("version " + std::to_string(version));
      write(random() % 5 == 0 ? 600 : random() % 20);
      expected[version] = now();
      auto cut = store.snapshot(version, {.metadata = std::to_string(version), .full = random() % 15 == 0});
      ASSERT_TRUE(cut) << cut.error().message;
      taken.push_back(*cut);
      write(random() % 40);  // while it drains, if it has not
      if (random() % 3 == 0) {
        ASSERT_TRUE(cut->wait("copied"));
        EXPECT_TRUE(cut->done("copied"));
      }
      if (random() % 4 == 0) {
        const auto gone = any_version();
        ASSERT_TRUE(store.drop(gone->first));
        expected.erase(gone);
      }
      if (random() % 4 != 0 || expected.empty()) continue;
      const auto back = any_version();
      const auto restored =
          store.restore(back->first, {{3, body.data(), body.bytes()}, {7, odd.data(), odd.size()}}, {.keep = true});
      ASSERT_TRUE(restored) << "version " << back->first << ": " << restored.error().message;
      ASSERT_TRUE(now() == back->second) << "version " << back->first;
    }
    for (const Snapshot& one : taken) EXPECT_FALSE(one.error()) << one.error()->message;
    ASSERT_TRUE(taken.back().wait("ephemeral"));
    const auto check = [&](Store& in) {
      for (const auto& [version, memory] : expected) {
        EXPECT_EQ(in.info(version).value().metadata, std::to_string(version));
        EXPECT_TRUE(stored(in, version, 3) == memory[0]) << "version " << version;
        EXPECT_TRUE(stored(in, version, 7) == memory[1]) << "version " << version;
      }
    };
    check(store);
    if (!kept) continue;
    ASSERT_TRUE(store.close());
    kept.reset();
    Store again = Store::open({.directory = directory.path(), .durability = Durability::process}).value();
    check(again);
    EXPECT_EQ(again.latest().value(), expected.rbegin()->first);
  }
}

TEST_P(Snapshots, AnIncrementStoresTheZonesThatWereWritten) {
  const Track track = GetParam().track;
  Rig rig(Backend::uring, {.device = 192 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  Pages memory(16 * kMiB);  // smaller, and the requests of a restore would weigh more than its bytes
  store.protect(0, memory.data(), memory.bytes(), {4 * kKiB, track}).value();
  std::uint64_t before = 0;
  for (Version version = 0; version < 10; ++version) {
    for (const std::size_t zone : {5, 6, 100}) {
      memory.data()[(zone + static_cast<std::size_t>(version)) * 4096 + 77] = static_cast<std::byte>(version + 1);
      if (track == Track::declared) store.touch(0, (zone + static_cast<std::size_t>(version)) * 4096 + 77, 1).value();
    }
    ASSERT_TRUE(store.snapshot(version).value().wait("ephemeral"));
    const std::uint64_t gathered = store.snapshot_stats().bytes_gathered;
    const bool whole = version == 0 || track == Track::everything;
    if (version < 8) {  // later ones may store some sources again
      EXPECT_EQ(gathered - before, whole ? memory.bytes() : 3 * 4096) << "version " << version;
    }
    EXPECT_LE(store.info(version).value().leans_on.size(), 8u);
    before = gathered;
  }
}

TEST(Deduplication, StoresEqualZonesOfASnapshotOnce) {
  Rig rig(Backend::uring, {.device = 64 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  snapshots_of(rig, kPage, {.piece_bytes = 16 * kPage});
  Pages memory(4 * kMiB);
  const std::size_t zones = memory.bytes() / kPage;
  for (std::size_t zone = zones / 2; zone < zones; ++zone)
    std::memset(memory.data() + zone * kPage, static_cast<int>(zone % 5) + 1, kPage);
  store.protect(0, memory.data(), memory.bytes() - 100, {kPage, Track::declared}).value();
  ASSERT_TRUE(store.snapshot(1, {.dedup = true}).value().wait("ephemeral"));
  const auto in_pieces = [&] {
    std::uint64_t bytes = 0;
    for (const std::string& name : rig.engine().histories().names(storage::PieceName::prefix("")).value())
      bytes += rig.engine().view(name).info(storage::kPieceVersion).value().bytes;
    return bytes;
  };
  EXPECT_EQ(in_pieces(), (1 + 5 + 1) * kPage) << "zeros, five others, and the edge";
  EXPECT_LE(store.info(1).value().bytes, in_pieces() + 64 * zones) << "with the map";
  ASSERT_TRUE(store.snapshot(2, {.full = true}).value().wait("ephemeral"));
  EXPECT_EQ(in_pieces(), (1 + 5 + 1) * kPage + memory.bytes());
  auto expected = memory.copy();
  expected.resize(memory.bytes() - 100);
  EXPECT_TRUE(stored(store, 1, 0) == expected);
  EXPECT_TRUE(stored(store, 2, 0) == expected);
}

// Zones that go back to what they were, or take each other's places, are not stored again; their sources stay though
// their versions are dropped, and a full snapshot leans on nothing.
TEST(Deduplication, FindsTheZonesOfOlderSnapshots) {
  Rig rig(Backend::uring, {.device = 64 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  snapshots_of(rig, kPage, {.piece_bytes = 16 * kPage});
  Pages memory(256 * kPage);
  std::mt19937_64 random(5);
  for (std::size_t i = 0; i < memory.bytes(); i += 8) {
    const std::uint64_t word = random();
    std::memcpy(memory.data() + i, &word, 8);
  }
  store.protect(0, memory.data(), memory.bytes(), {kPage, Track::declared}).value();
  std::map<Version, std::vector<std::byte>> expected;
  const auto take = [&](Version version, SnapshotOptions options = {.dedup = true}) {
    EXPECT_TRUE(store.snapshot(version, options).value().wait("ephemeral"));
    expected[version] = memory.copy();
    return store.info(version).value().bytes;
  };
  const std::uint64_t whole = take(0);
  for (Version version = 1; version < 30; ++version) {
    for (int i = 0; i < 20; ++i) {  // of each pair one with new bytes, and one with those of another zone
      const std::size_t to = random() % 256, from = random() % 256;
      if (i % 4 == 0) memory.data()[to * kPage] ^= std::byte{1};
      std::memcpy(memory.data() + from * kPage, memory.data() + random() % 256 * kPage, kPage);
      store.touch(0, to * kPage, kPage).value();
      store.touch(0, from * kPage, kPage).value();
    }
    take(version);
    EXPECT_LE(store.info(version).value().leans_on.size(), 8u);
    if (version % 3 == 0) store.drop(version - 2).value(), expected.erase(version - 2);
  }
  const std::vector<std::byte> now = memory.copy();
  store.touch(0, 0, memory.bytes()).value();
  EXPECT_LT(take(30), whole / 2) << "nothing has changed";
  take(31, {.full = true, .dedup = true});
  EXPECT_TRUE(store.info(31).value().leans_on.empty());
  for (const auto& [version, bytes] : expected) EXPECT_TRUE(stored(store, version, 0) == bytes) << version;
  EXPECT_TRUE(memory.copy() == now);
}

// What a process leaves behind when it ends before the map is written: pieces that nothing names.
TEST(SnapshotPieces, OfAnotherProcessGoWhenNoMapNamesThem) {
  OwnDirectory directory;
  const Options options{.directory = directory.path(), .durability = Durability::process};
  const std::string orphan = storage::PieceName{"", {5, 6}, 0}.text();
  Pages memory(kMiB);
  std::memset(memory.data(), 1, memory.bytes());
  {
    Store store = Store::open(options).value();
    store.protect(0, memory.data(), memory.bytes()).value();
    ASSERT_TRUE(store.snapshot(1).value().wait("process"));
    ASSERT_TRUE(store.close());
  }
  const auto engine_of = [&](Rig& rig) {
    rig.setup().directory = directory.path();
    rig.setup().durability = Durability::process;
    return rig.engine().shared_from_this();
  };
  Rig rig(Backend::uring, {.device = 4 * kMiB, .host = 0, .disk = 256 * kMiB});
  const auto engine = engine_of(rig);
  ASSERT_TRUE(write(*std::make_unique<History>(engine->view(orphan)), storage::kPieceVersion, 100));
  ASSERT_EQ(engine->histories().names(orphan).value().size(), 1u);
  const std::size_t pieces = engine->histories().names(storage::PieceName::prefix("")).value().size();
  rig.store().protect(0, memory.data(), memory.bytes()).value();
  EXPECT_EQ(engine->histories().names(orphan).value().size(), 0u);
  EXPECT_EQ(engine->histories().names(storage::PieceName::prefix("")).value().size(), pieces - 1);
  EXPECT_TRUE(stored(rig.store(), 1, 0) == memory.copy());
  ASSERT_TRUE(rig.store().drop(1));
  ASSERT_TRUE(rig.store().snapshot(2).value().wait("process"));
  ASSERT_TRUE(rig.store().snapshot(3).value().wait("process"));  // by now it has been tidied up
  EXPECT_TRUE(stored(rig.store(), 3, 0) == memory.copy());
}

// Faults of several writers, while cuts drain.
TEST(SnapshotsOfSeveralWriters, EveryVersionIsTheMemoryAsItWasAtItsCut) {
  Rig rig(Backend::uring, {.device = 16 * kMiB, .host = 32 * kMiB, .disk = 256 * kMiB});
  Store& store = rig.store();
  snapshots_of(rig, 4 * kKiB, {.piece_bytes = 64 * kKiB});
  Pages memory(2 * kMiB);
  store.protect(0, memory.data(), memory.bytes(), {4 * kKiB, Track::faults}).value();
  std::mt19937_64 random(5);
  std::map<Version, std::vector<std::byte>> expected;
  for (Version version = 1; version <= 25; ++version) {
    expected[version] = memory.copy();
    auto cut = store.snapshot(version);
    ASSERT_TRUE(cut) << cut.error().message;
    std::vector<std::thread> writers;
    for (std::size_t w = 0; w < 3; ++w)
      writers.emplace_back([&, w, seed = random()] {
        std::mt19937_64 mine(seed);
        for (int i = 0; i < 100; ++i)
          std::memset(memory.data() + (mine() % 170 * 3 + w) * 4096, static_cast<int>(mine()), 4096);
      });
    for (std::thread& one : writers) one.join();
  }
  ASSERT_TRUE(store.snapshot(26).value().wait("ephemeral"));
  for (const auto& [version, bytes] : expected) ASSERT_TRUE(stored(store, version, 0) == bytes) << version;
  EXPECT_GT(store.snapshot_stats().faults, 0u);
}

// 20 MiB are stored in a cache of 4: the pieces that nothing leans on any more go.
TEST(SnapshotPieces, GoWithTheLastMapThatNamesThem) {
  Rig rig(Backend::uring, {.device = 4 * kMiB, .host = 0, .disk = 0});
  Store& store = rig.store();
  snapshots_of(rig, 4 * kKiB, {.piece_bytes = 64 * kKiB});
  Pages memory(kMiB);
  store.protect(0, memory.data(), memory.bytes(), {4 * kKiB, Track::declared}).value();
  for (Version version = 0; version < 160; ++version) {
    const auto at = static_cast<std::size_t>(version) % 8 * 128 * kKiB;
    std::memset(memory.data() + at, static_cast<int>(version + 1), 128 * kKiB);
    store.touch(0, at, 128 * kKiB).value();
    auto cut = store.snapshot(version);
    ASSERT_TRUE(cut) << cut.error().message;
    ASSERT_TRUE(cut->wait("ephemeral")) << "version " << version << ": " << cut->error()->message;
    ASSERT_TRUE(stored(store, version, 0) == memory.copy()) << "version " << version;
    ASSERT_TRUE(store.drop(version));
  }
}

}  // namespace
}  // namespace ebb::snapshots
