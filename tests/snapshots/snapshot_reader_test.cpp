// Snapshots come back as they were cut, from pieces that are shared, dropped, damaged or missing.
#include "snapshots/snapshot_reader.hpp"

#include <gmock/gmock.h>

#include "tests/snapshots/snapshot_model.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using Memory = SnapshotModel::Memory;
using Written = SnapshotModel::Written;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A store with snapshots in it, and what each has.
class Chain {
 public:
  Chain(Engine& engine, SnapshotModel& model) : engine_(&engine), model_(model) {}
  void reopened(Engine& engine) { engine_ = &engine; }

  const Written& snapshot(Version version, std::optional<Version> parent) {
    Memory memory = parent ? live_.at(*parent).memory : model_.blank();
    const auto dirty = parent ? model_.some() : model_.all();
    for (const auto& zone : dirty) {
      if (model_.random()() % 4 == 0 && parent) continue;  // written with what was there
      for (std::uint32_t i = 0; i < zone.count; ++i) model_.write_zone(memory, {zone.region, zone.first + i, 1});
    }
    auto made = model_.make(version, parent ? &live_.at(*parent) : nullptr, dirty, std::move(memory));
    SnapshotModel::store(*engine_, made);
    return live_[version] = std::move(made.written);
  }
  /// As the writer does after each snapshot: pieces that no live map names.
  void drop_unnamed() {
    std::set<std::string> named;
    for (const auto& [version, one] : live_) {
      for (const auto& source : one.map.sources) named.insert(storage::PieceName{"", source.id, 0}.text());
    }
    for (const std::string& name : engine_->histories().names(storage::PieceName::prefix("")).value()) {
      storage::PieceName piece = storage::parse_piece_name(name).value();
      piece.piece = 0;
      if (!named.contains(piece.text())) engine_->view(name).drop().value();
    }
  }
  std::map<Version, Written>& live() { return live_; }

 private:
  Engine* engine_;
  SnapshotModel& model_;
  std::map<Version, Written> live_;
};

void expect_version(History& store, const Written& as, RestoreOptions options = {.keep = true}) {
  Memory memory = as.memory;
  for (auto& [region, bytes] : memory) std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
  const auto done = store.restore(as.map.own().version, SnapshotModel::targets(memory), options);
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_TRUE(memory == as.memory) << "version " << as.map.own().version << " came back with other bytes";
}

// What `wanted` and `have` both have is filled with something else: it must not be touched, and all else must come.
void expect_only_the_difference(History& store, const Written& wanted, const Written& have, bool keep) {
  Memory memory = wanted.memory;
  for (auto& [region, bytes] : memory) std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
  Memory expected = memory;
  Memory from = wanted.memory;
  for (const auto& range : storage::differing_zones(wanted.map, have.map)) {
    for (std::uint32_t i = 0; i < range.count; ++i) {
      const auto bytes = SnapshotModel::zone(from, range.region, range.first + i);
      std::ranges::copy(bytes, SnapshotModel::zone(expected, range.region, range.first + i).begin());
    }
  }
  const auto done = store.restore(wanted.map.own().version, SnapshotModel::targets(memory),
                                  {.keep = keep, .have = have.map.own().version});
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_TRUE(memory == expected);
}

// Snapshots in any order on any parent, restores that keep and that consume, and drops: each version that is there is
// exact, whatever became of those that it leans on.
void random_chain(Rig& rig, const std::function<void()>& reopen, bool persistent, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  SnapshotModel model(seed);
  Chain chain(rig.engine(), model);
  auto& live = chain.live();
  auto& random = model.random();
  const auto any = [&] { return std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size())); };
  Version next = 0;
  for (int step = 0; step < 60 && !::testing::Test::HasFatalFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const auto action = live.empty() ? 0 : random() % 10;
    if (action < 3) {
      const bool full = live.empty() || random() % 8 == 0;
      chain.snapshot(next++, full ? std::nullopt : std::optional(any()->first));
      chain.drop_unnamed();
    } else if (action < 5) {
      expect_version(rig.store(), any()->second);
    } else if (action < 7) {
      expect_only_the_difference(rig.store(), any()->second, any()->second, true);
    } else if (action < 8) {
      const auto one = any();
      expect_version(rig.store(), one->second, {});
      if (!persistent) live.erase(one);
      chain.drop_unnamed();
    } else if (action < 9) {
      const auto one = any();
      rig.store().drop(one->first).value();
      live.erase(one);
      chain.drop_unnamed();
    } else if (persistent) {
      reopen();
      chain.reopened(rig.engine());
      const auto latest = rig.store().latest();
      ASSERT_TRUE(latest) << latest.error().message;
      ASSERT_EQ(*latest, std::optional(live.rbegin()->first));
    }
    std::vector<Version> versions;
    for (const auto& [version, one] : live) versions.push_back(version);
    ASSERT_EQ(rig.store().versions().value(), versions);
  }
  for (const auto& [version, one] : live) expect_version(rig.store(), one);
}

TEST(SnapshotReader, EveryVersionIsExactWhileTheStoreIsEphemeral) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Rig rig(seed % 2 == 0 ? Backend::uring : Backend::threads, kSmall);
    random_chain(rig, {}, false, seed);
  }
}

TEST(SnapshotReader, EveryVersionIsExactOnAGpu) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    Rig rig(Backend::gpu, {.device = 128 * kKiB, .host = 256 * kKiB, .disk = 16384 * kKiB, .chunk = 4 * kKiB});
    random_chain(rig, {}, false, seed);
  }
}

TEST(SnapshotReader, EveryVersionIsExactInAStoreThatIsKept) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    KeptRig kept(Backend::threads, kSmall);
    kept.open();
    random_chain(kept.rig(), [&] { kept.open(); }, true, seed);
  }
}

class SnapshotReading : public ::testing::Test {
 protected:
  Engine& engine() { return kept_.rig().engine(); }
  Store& store() { return kept_.rig().store(); }
  Result<void> restore(Version version, RestoreOptions options = {.keep = true}) {
    return store().restore(version, SnapshotModel::targets(memory_), options);
  }

  KeptRig kept_{Backend::threads, kSmall};
  SnapshotModel model_{1};
  Chain chain_{engine(), model_};
  Memory memory_ = model_.filled(std::byte{0x55});
};

TEST_F(SnapshotReading, InfoSaysWhatTheProgramGave) {
  chain_.snapshot(3, {});
  const Written second = chain_.snapshot(5, 3);
  for (int round = 0; round < 2; ++round) {
    const auto info = store().info(5).value();
    EXPECT_EQ(info.metadata, "m");
    ASSERT_EQ(info.regions.size(), 3);
    for (const RegionInfo& region : info.regions) EXPECT_EQ(region.bytes, second.memory.at(region.id).size());
    EXPECT_GE(info.bytes, second.map.own().packed_bytes);
    EXPECT_THAT(info.leans_on, ElementsAre(3));
    EXPECT_THAT(store().info(3).value().leans_on, ElementsAre());
    kept_.open();
  }
}

// Reading a map removes no hint of the program's: two hints, two restores.
TEST(SnapshotReader, AVersionIsConsumedWithItsLastHint) {
  Rig rig(Backend::uring, kSmall);
  SnapshotModel model(4);
  Chain chain(rig.engine(), model);
  const Written one = chain.snapshot(1, {});
  Store& store = rig.store();
  store.hint({1, 1}).value();
  static_cast<void>(store.info(1).value());
  expect_version(store, one, {});
  expect_version(store, one, {});
  EXPECT_EQ(code_of(store.info(1)), Errc::consumed);
  EXPECT_EQ(code_of(store.restore(1, {})), Errc::consumed);
}

TEST(SnapshotReader, WithoutAHintItIsConsumedAtOnceAndNotOnAnError) {
  Rig rig(Backend::uring, kSmall);
  SnapshotModel model(5);
  Chain chain(rig.engine(), model);
  const Written one = chain.snapshot(1, {});
  Memory memory = model.blank();
  memory[2].pop_back();
  const auto wrong = rig.store().restore(1, SnapshotModel::targets(memory));
  EXPECT_EQ(code_of(wrong), Errc::size_mismatch);
  EXPECT_THAT(wrong.error().message, HasSubstr("version 1: region 2"));
  expect_version(rig.store(), one, {});
  EXPECT_EQ(code_of(rig.store().info(1)), Errc::consumed);
}

TEST(SnapshotPrefetch, BringsThePiecesOfTheOneThatIsRestoredNext) {
  KeptRig kept(Backend::threads, {.device = 1024 * kKiB, .host = 1024 * kKiB, .disk = 16384 * kKiB, .chunk = 4 * kKiB});
  SnapshotModel model(6);
  Chain chain(kept.rig().engine(), model);
  for (Version version = 0; version < 4; ++version)
    chain.snapshot(version, version == 2 ? std::optional<Version>(1) : std::nullopt);
  kept.open();  // nothing is in the caches
  Store& store = kept.rig().store();
  store.hint({3, 2, 1}).value();
  expect_version(store, chain.live().at(3));
  for (const Version version : {2, 1}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // there is nothing to be told of
    const std::uint64_t misses = store.stats().misses;
    expect_version(store, chain.live().at(version));
    EXPECT_EQ(store.stats().misses, misses) << version;
  }
}

TEST_F(SnapshotReading, WhatCannotBeComparedIsReadWhole) {
  const Written one = chain_.snapshot(1, {});
  write(store(), 2, kSize, {.timeout = Seconds(60)}).value();
  for (const Version have : {2, 99}) {
    expect_version(store(), one, {.keep = true, .have = have});
  }
}

TEST_F(SnapshotReading, CallsThatCannotReadASnapshotSaySo) {
  chain_.snapshot(1, {});
  for (const auto& error :
       {store().restore_async(1, SnapshotModel::targets(memory_)).error(), store().borrow(1).error()}) {
    EXPECT_EQ(error.code, Errc::unsupported);
    EXPECT_THAT(error.message, HasSubstr("version 1 is a snapshot: restore() reads it"));
  }
  EXPECT_TRUE(restore(1));
}

TEST_F(SnapshotReading, NamesAndRegionsOfTheStoreAreRefused) {
  const std::vector<Source> both{{storage::kLayoutRegion, &memory_, 8}, {storage::kMapRegion, &memory_, 8}};
  EXPECT_EQ(code_of(store().checkpoint(1, both)), Errc::invalid_argument);
  EXPECT_EQ(code_of(store().reserve(1, both)), Errc::invalid_argument);
  EXPECT_TRUE(store().checkpoint(1, {both[0]}, {.timeout = Seconds(60)}));
  History hidden = store().history(storage::PieceName{"a", {1, 2}, 3}.text());
  const auto refused = hidden.checkpoint(0, {{0, &memory_, 8}});
  EXPECT_EQ(code_of(refused), Errc::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("snapshots"));
}

// A piece is damaged: each version that needs it says so, and which it is; others are whole, and one of them is the
// latest.
TEST_F(SnapshotReading, ADamagedPieceDamagesEachVersionThatNeedsIt) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Version first = static_cast<Version>(seed) * 10;
    for (Version version = first; version < first + 5; ++version) {
      chain_.snapshot(version, version == first ? std::nullopt : std::optional(version - 1));
    }
    kept_.open();
    const auto source = static_cast<std::size_t>(model_.random()() % chain_.live().at(first + 4).map.sources.size());
    const Written& last = chain_.live().at(first + 4);
    const auto id = last.map.sources[source].id;
    const auto plan = storage::plan_restore(last.map);
    const auto chunks = storage::zones_by_piece({last.map, last.layout, {}}, plan);
    const auto hit = std::ranges::find(chunks, source, &storage::ZonesInPiece::source);
    const auto [segment, offset] = kept_.payload_of(0, storage::PieceName{"", id, hit->piece}.text());
    OwnDirectory::flip(segment, offset + hit->zones.offset);
    std::optional<Version> newest;
    for (const auto& [version, one] : chain_.live()) {
      bool needs = false;
      for (const auto& chunk : storage::zones_by_piece({one.map, one.layout, {}}, storage::plan_restore(one.map))) {
        needs = needs || (one.map.sources[chunk.source].id == id && chunk.piece == hit->piece);
      }
      if (!needs) newest = version;
      if (!needs) {
        expect_version(store(), one);
        continue;
      }
      const auto wrong = restore(version);
      ASSERT_EQ(code_of(wrong), Errc::damaged);
      EXPECT_THAT(wrong.error().message,
                  AllOf(HasSubstr("version " + std::to_string(version) + " is damaged: zone "),
                        HasSubstr("which version " + std::to_string(last.map.sources[source].version) + " stored")));
    }
    kept_.open();
    EXPECT_EQ(store().latest().value(), newest);
    const std::string passed = "warning: version " + std::to_string(first + 4) + " is passed over: ";
    EXPECT_EQ(kept_.lines().starting(passed).size(), 1);
    EXPECT_EQ(code_of(restore(first + 4)), Errc::damaged);
    for (Version version = first; version < first + 5; ++version) {
      static_cast<void>(static_cast<bool>(store().drop(version)));
      chain_.live().erase(version);
    }
    chain_.reopened(engine());
  }
}

TEST_F(SnapshotReading, AMissingPieceIsLost) {
  const Written first = chain_.snapshot(1, {});
  chain_.snapshot(2, {});
  engine().view(SnapshotModel::name(chain_.live().at(2), 0, 0)).drop().value();
  EXPECT_EQ(code_of(restore(2)), Errc::lost);
  kept_.open();
  EXPECT_EQ(store().latest().value(), std::optional<Version>(1));
  EXPECT_EQ(code_of(restore(2)), Errc::lost);
  expect_version(store(), first);
}

// Its file's checksums match, and the zone's does not: nothing of that zone reaches the target.
TEST_F(SnapshotReading, AZoneIsCheckedBeforeItIsCopied) {
  auto made = model_.make(1, nullptr, model_.all(), model_.blank());
  made.packed[0] ^= std::byte{1};
  SnapshotModel::store(engine(), made);
  const auto wrong = restore(1, {});
  ASSERT_EQ(code_of(wrong), Errc::damaged);
  EXPECT_THAT(wrong.error().message, HasSubstr("does not match its checksum"));
  for (const auto& [region, bytes] : memory_) {
    for (const std::byte byte : bytes) ASSERT_TRUE(byte == std::byte{0} || byte == std::byte{0x55});
  }
  EXPECT_THAT(store().versions().value(), ElementsAre(1));
}

TEST_F(SnapshotReading, MapsAndLayoutsThatAreWrongAreDamaged) {
  const auto made = model_.make(1, nullptr, model_.all(), model_.blank());
  SnapshotModel::store_pieces(engine(), made);
  const auto map = storage::encode(made.written.map), layout = encode(made.written.layout);
  Version version = 10;
  const auto refused = [&](const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
    SnapshotModel::store_map(engine(), ++version, a, b);
    EXPECT_EQ(code_of(store().info(version)), Errc::damaged);
    const auto wrong = restore(version);
    EXPECT_EQ(code_of(wrong), Errc::damaged);
    EXPECT_THAT(wrong.error().message, HasSubstr("version " + std::to_string(version) + " is damaged: "));
  };
  const auto with = [&](auto&& change) {
    storage::SnapshotLayout other = made.written.layout;
    change(other);
    return encode(other);
  };
  refused({}, {});
  refused(map, {});
  refused({map.begin(), map.end() - 1}, layout);
  refused(layout, map);
  refused(map, with([](auto& it) { it.parts[2].at += 1; }));
  refused(map, with([](auto& it) { it.parts.pop_back(); }));
  refused(map, with([](auto& it) { it.piece_bytes[0] = 0; }));
  refused(map, with([](auto& it) { it.piece_bytes.clear(); }));
  // Pieces that are smaller than those that are there, or larger: other bytes, or their ends.
  const std::uint64_t bytes = made.written.layout.piece_bytes[0];
  SnapshotModel::store_map(engine(), 1, map, with([&](auto& it) { it.piece_bytes[0] = bytes * 2; }));
  EXPECT_EQ(code_of(restore(1)), Errc::damaged);
  kept_.open();
  EXPECT_EQ(store().latest().value(), std::optional<Version>());
}

// At each look another 10 ms have passed.
class HurriedClock final : public os::Clock {
 public:
  std::int64_t now() const noexcept override { return now_ += 10'000'000; }

 private:
  mutable std::atomic<std::int64_t> now_{0};
};

// Pieces that are in the cache never wait, so the reader asks between them; what it has read by then stays.
TEST(SnapshotReader, TheCallerIsAskedAndItsTimeIsKeptBetweenPieces) {
  Rig rig(Backend::uring, {.device = 4096 * kKiB, .host = 0, .disk = 0, .chunk = 4 * kKiB});
  rig.seams().clock = std::make_shared<HurriedClock>();
  SnapshotModel model(2);  // pieces of one zone
  Chain chain(rig.engine(), model);
  const Written one = chain.snapshot(1, {});
  Memory memory = model.filled(std::byte{0x55});
  int asked = 0;
  const auto left =
      rig.store().restore(1, SnapshotModel::targets(memory), {.interrupted = [&] { return ++asked == 3; }});
  EXPECT_EQ(code_of(left), Errc::timed_out);
  EXPECT_THAT(left.error().message, HasSubstr("version 1"));
  EXPECT_EQ(asked, 3);
  const auto late = rig.store().restore(1, SnapshotModel::targets(memory), {.timeout = Seconds(0.2)});
  EXPECT_EQ(code_of(late), Errc::timed_out);
  for (auto& [region, bytes] : memory) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
      ASSERT_TRUE(bytes[i] == std::byte{0x55} || bytes[i] == one.memory.at(region)[i]);
  }
  expect_version(rig.store(), one, {.timeout = Seconds(1e6), .interrupted = [] { return false; }});
}

// Beside the process that writes: what that adds and drops is seen, and what it drops is an error of the version.
TEST_F(SnapshotReading, AnotherProcessMayReadBesideTheWriter) {
  Rig beside(Backend::threads, kSmall);
  beside.setup().directory = kept_.path();
  beside.setup().readonly = true;
  chain_.snapshot(1, {});
  chain_.snapshot(2, 1);
  store().wait("storage", Seconds(60)).value();
  History& reader = beside.store();
  expect_version(reader, chain_.live().at(1));
  EXPECT_EQ(reader.latest().value(), std::optional<Version>(2));
  store().drop(1).value();
  chain_.live().erase(1);
  chain_.drop_unnamed();
  keep(store(), 5);
  keep(store(), 6);  // the drops before it are carried out
  EXPECT_EQ(code_of(reader.restore(1, SnapshotModel::targets(memory_))), Errc::unknown_version);
  expect_version(reader, chain_.live().at(2));
}

TEST_F(SnapshotReading, StreamOrderIsRefused) {
  chain_.snapshot(1, {});
  EXPECT_EQ(code_of(restore(1, {.stream = StreamHandle{1}})), Errc::unsupported);
}

class Ending : public Attached {
 public:
  explicit Ending(std::function<Result<void>(const Interrupt&)> end) : end_(std::move(end)) {}
  Result<void> settle(std::optional<Version> version, std::optional<Seconds>, const Interrupt&) override {
    asked.push_back(version.value_or(-1));
    return {};
  }
  void dropped(std::optional<Version>) override {}
  bool in_flight(Version) override { return false; }
  Result<void> restore(Version, std::span<const Target>, const RestoreOptions&) override { return {}; }
  Result<void> end(const Interrupt& interrupted) override { return end_(interrupted); }
  std::vector<Version> asked{};  // -1: all

 private:
  std::function<Result<void>(const Interrupt&)> end_;
};

TEST_F(SnapshotReading, WhatIsAttachedIsAwaitedByTheCallsThatNeedIt) {
  write(store(), 1, kSize).value();
  History other = store().history("h");
  write(other, 1, kSize).value();
  auto one = std::make_shared<Ending>([](auto&) { return Result<void>(); });
  ASSERT_TRUE(engine().attach(one));
  EXPECT_TRUE(store().info(1));
  EXPECT_TRUE(store().wait(1, "device"));
  EXPECT_TRUE(store().wait("device"));
  store().borrow(1, {.keep = true}).value();
  EXPECT_TRUE(store().drop(1));
  EXPECT_EQ(one->asked, (std::vector<Version>{1, 1, -1, 1, 1}));
  EXPECT_TRUE(other.info(1)) << "which has no snapshots";
  EXPECT_EQ(one->asked.size(), 5u);
}

TEST_F(SnapshotReading, WhatIsAttachedEndsBeforeTheStoreCloses) {
  int ended = 0;
  auto one = std::make_shared<Ending>([&](const Interrupt& interrupted) -> Result<void> {
    ++ended;
    if (interrupted()) return Error{Errc::timed_out, "interrupted"};
    return write(store(), 1, kSize, {.timeout = Seconds(60)}) ? Result<void>() : Error{Errc::closed, "too late"};
  });
  EXPECT_EQ(engine().attached(), nullptr);
  EXPECT_EQ(engine().attach(one).value(), one);
  EXPECT_EQ(engine().attach(std::make_shared<Ending>([](auto&) { return Result<void>(); })).value(), one);
  EXPECT_EQ(code_of(store().close([] { return true; })), Errc::timed_out);
  EXPECT_EQ(engine().attached(), one);
  EXPECT_TRUE(store().versions());  // open still
  EXPECT_TRUE(store().close());
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(engine().attached(), nullptr);
  EXPECT_EQ(code_of(engine().attach(one)), Errc::closed);
  EXPECT_EQ(one.use_count(), 1);
  kept_.open();
  EXPECT_EQ(store().versions().value(), std::vector<Version>{1});
}

TEST_F(SnapshotReading, HowWhatIsAttachedFailedIsToldByClose) {
  engine().attach(std::make_shared<Ending>([](auto&) { return Error{Errc::no_space, "it had no room"}; })).value();
  const auto closed = store().close();
  EXPECT_EQ(code_of(closed), Errc::no_space);
  EXPECT_EQ(code_of(store().versions()), Errc::closed);
}

}  // namespace
}  // namespace ebb::store
