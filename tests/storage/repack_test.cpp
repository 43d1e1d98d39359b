// Ended snapshots of which live ones need little are packed anew: live ones restore what they did, also after a power
// failure at any moment, and the bytes go.
#include "storage/admin/repack.hpp"

#include <algorithm>
#include <gtest/gtest.h>

#include "storage/admin/collect.hpp"
#include "storage/admin/inspect.hpp"
#include "storage/admin/snapshot_pieces.hpp"
#include "storage/admin/snapshot_record.hpp"
#include "storage/format/snapshot_names.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/power_loss.hpp"
#include "tests/storage/memory_store.hpp"
#include "tests/storage/zone_map_samples.hpp"

namespace ebb::storage {
namespace {

using doubles::MemoryFiles;
using doubles::PowerLoss;
using test::Bytes;

constexpr std::uint64_t kPiece = 65'536;

// Snapshots of a small memory in a store's image: maps of the live ones, and every piece of all.
class Story {
 public:
  using Regions = std::vector<ZoneMap::Region>;
  // Zones are packed at multiples of 4096, so those of another size must fill their region to be in one piece each.
  explicit Story(std::uint64_t seed)
      : model(seed % 2 == 0 ? Regions{{200'000, 4096}, {30'000, 4096}, {100, 4096}}
                            : Regions{{25 * 8192, 8192}, {4 * 8192, 8192}},
              seed) {
    model.snapshots_.reserve(8);
    model.cut(0, nullptr);
    for (Version version = 1; version < 8; ++version) {
      model.write();
      model.cut(version, &model.snapshots_.back());
    }
    for (const auto& snapshot : model.snapshots_) {
      const ZoneMap::Source& own = snapshot.map.own();
      const Bytes& packed = model.packed_.at({own.id.cut, own.id.random});
      for (std::uint64_t at = 0; at < packed.size(); at += kPiece) {
        const std::uint64_t end = std::min<std::uint64_t>(packed.size(), at + kPiece);
        add(PieceName{"", own.id, at / kPiece}.text(), 0,
            {Bytes(packed.begin() + long(at), packed.begin() + long(end))});
      }
    }
  }
  void keep(Version version) {
    const auto& snapshot = model.snapshots_[static_cast<std::size_t>(version)];
    SnapshotLayout layout;
    std::uint32_t region = 0;
    for ([[maybe_unused]] const auto& one : snapshot.map.regions) layout.parts.push_back({region++, 0});
    layout.piece_bytes.assign(snapshot.map.sources.size(), kPiece);
    add("", version, {encode(snapshot.map), encode(layout)}, {kMapRegion, kLayoutRegion});
    live.push_back(version);
  }
  Bytes memory(Version version) const {
    Bytes out;
    for (const Bytes& region : model.snapshots_[static_cast<std::size_t>(version)].memory)
      out.insert(out.end(), region.begin(), region.end());
    return out;
  }

  test::SnapshotModel model;
  test::StoreImage image;
  std::vector<Version> live;

 private:
  void add(const std::string& history, Version version, const std::vector<Bytes>& regions,
           std::vector<std::uint32_t> ids = {0}) {
    Description description{history, version, {}};
    Bytes payload;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      payload.resize(os::round_up(payload.size()));
      description.info.regions.push_back({ids[i], regions[i].size(), payload.size()});
      payload.insert(payload.end(), regions[i].begin(), regions[i].end());
    }
    description.info.bytes = payload.size();
    image.add(1 + description.info.bytes % 3, description, payload);
  }
};

// The memory that a live snapshot restores, or what is wrong with it.
Result<Bytes> restored(MemoryFiles& files, const Inspection& store, Version version) {
  HeadsByHistory pieces;
  const RecordHead* head = nullptr;
  for (const Inspected& one : store.records) {
    if (one.superseded) continue;
    if (is_snapshot_piece(one)) pieces.emplace(one.history, PlacedHead{test::kStore, one.head});
    if (one.history.empty() && one.head.version == version) head = &one.head;
  }
  if (head == nullptr) return Error{Errc::unknown_version, "its map is not there"};
  RecordReader reader(files, test::kStore, *head);
  if (auto opened = reader.open(); !opened) return opened.error();
  auto snapshot = read_snapshot(reader);
  if (!snapshot) return snapshot.error();
  SnapshotContent content(files, "", std::move(**snapshot), pieces);
  Bytes out;
  for (;;) {
    const auto next = content.next();
    if (!next) return next.error();
    if (next->empty()) return out;
    out.insert(out.end(), next->begin(), next->end());
  }
}

std::string violation(MemoryFiles& files, const Story& story) {
  const auto store = inspect(files, test::kStore);
  if (!store) return store.error().message;
  for (const Version version : story.live) {
    const auto bytes = restored(files, *store, version);
    if (!bytes) return "version " + std::to_string(version) + ": " + bytes.error().message;
    if (*bytes != story.memory(version)) return "version " + std::to_string(version) + " is not what it was";
  }
  return {};
}

std::uint64_t piece_bytes(MemoryFiles& files) {
  std::uint64_t bytes = 0;
  const auto store = inspect(files, test::kStore).value();
  for (const Inspected& one : store.records)
    if (!one.superseded && is_snapshot_piece(one)) bytes += one.head.payload_bytes;
  return bytes;
}

class RepackTest : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  os::SteadyClock clock_;
};
INSTANTIATE_TEST_SUITE_P(Seeds, RepackTest, ::testing::Values(2, 3, 5));

TEST_P(RepackTest, LiveSnapshotsRestoreWhatTheyDidAndTheRestGoes) {
  Story story(GetParam());
  for (const Version version : {4, 6, 7}) story.keep(version);
  MemoryFiles files;
  put_image(files, story.image);
  ASSERT_TRUE(collect(files, test::kStore, {}));
  const std::uint64_t before = piece_bytes(files);
  const auto would = repack_snapshots(files, clock_, test::kStore, true).value();
  ASSERT_FALSE(would.empty());
  EXPECT_EQ(piece_bytes(files), before);
  const auto done = repack_snapshots(files, clock_, test::kStore, false).value();
  ASSERT_TRUE(collect(files, test::kStore, {}));
  ASSERT_EQ(violation(files, story), "");
  ASSERT_EQ(done.size(), would.size());
  std::uint64_t gone = 0;
  for (const admin::Repacked& one : done) {
    EXPECT_EQ(one.failed, "");
    gone += one.bytes_before - one.bytes_after;
  }
  EXPECT_EQ(piece_bytes(files), before - gone);
  EXPECT_TRUE(repack_snapshots(files, clock_, test::kStore, true)->empty());
}

TEST_P(RepackTest, APowerFailureAtAnyMomentLosesNothing) {
  Story story(GetParam());
  for (const Version version : {4, 6, 7}) story.keep(version);
  MemoryFiles files;
  put_image(files, story.image);
  ASSERT_TRUE(collect(files, test::kStore, {}));
  const std::size_t first = files.changes();
  ASSERT_FALSE(repack_snapshots(files, clock_, test::kStore, false)->empty());
  const PowerLoss power(files.journal());
  for (std::size_t n = first; n <= power.size(); ++n) {
    ASSERT_EQ(violation(*power.prefix(n), story), "") << "prefix " << n;
    for (std::uint64_t seed = 0; seed < 3; ++seed)
      ASSERT_EQ(violation(*power.crash(n, seed), story), "") << "crash " << n << ", seed " << seed;
  }
}

// The disk is full, or fails, at any write: nothing is lost, and the next run does the rest.
TEST_P(RepackTest, AWriteThatFailsLosesNothing) {
  Story story(GetParam());
  for (const Version version : {4, 6, 7}) story.keep(version);
  for (std::uint64_t nth = 1; nth < 12; ++nth) {
    MemoryFiles files;
    put_image(files, story.image);
    ASSERT_TRUE(collect(files, test::kStore, {}));
    doubles::FaultyFiles faulty(files, 1);
    faulty.fail_nth(doubles::FileCall::write, nth, ENOSPC, 3);
    static_cast<void>(static_cast<bool>(repack_snapshots(faulty, clock_, test::kStore, false)));
    ASSERT_EQ(violation(files, story), "") << nth;
    ASSERT_TRUE(collect(files, test::kStore, {}));
    ASSERT_EQ(violation(files, story), "") << nth;
    for (const admin::Repacked& one : repack_snapshots(files, clock_, test::kStore, false).value())
      EXPECT_EQ(one.failed, "") << nth;
    ASSERT_EQ(violation(files, story), "") << nth;
    EXPECT_TRUE(repack_snapshots(files, clock_, test::kStore, true)->empty()) << nth;
  }
}

TEST(Repack, WhatIsDamagedStaysAndIsNamed) {
  for (std::uint64_t seed = 1;; ++seed) {
    ASSERT_LT(seed, 50u) << "no story with anything to pack anew";
    Story story(seed);
    story.keep(7);
    MemoryFiles files;
    put_image(files, story.image);
    ASSERT_TRUE(collect(files, test::kStore, {}));
    os::SteadyClock clock;
    const auto would = repack_snapshots(files, clock, test::kStore, true).value();
    if (would.empty()) continue;
    const SnapshotId id = story.model.snapshots_[static_cast<std::size_t>(would[0].version)].map.own().id;
    const auto store = inspect(files, test::kStore).value();
    for (const Inspected& one : store.records) {
      const auto piece = parse_piece_name(one.history);
      if (!piece || piece->id != id) continue;
      const auto path = segment_path(test::kStore, one.head.place.segment);
      const os::File file(files, static_cast<int>(files.open(path, os::Open::write, false).value), path.string(),
                          false);
      const Bytes wrong(one.head.payload_bytes, std::byte{0x5a});
      ASSERT_TRUE(write_whole(files, file.fd(), wrong, one.head.place.offset + one.head.header_bytes));
    }
    const auto pieces = [&] {
      std::uint64_t count = 0;
      const auto now = inspect(files, test::kStore).value();
      for (const Inspected& one : now.records) {
        const auto piece = parse_piece_name(one.history);
        count += piece && piece->id == id && !one.superseded;
      }
      return count;
    };
    const std::uint64_t before = pieces();
    ASSERT_GT(before, 0u);
    const auto done = repack_snapshots(files, clock, test::kStore, false).value();
    ASSERT_FALSE(done.empty());
    EXPECT_NE(done[0].failed.find("checksum"), std::string::npos) << done[0].failed;
    EXPECT_EQ(pieces(), before);
    return;
  }
}

}  // namespace
}  // namespace ebb::storage
