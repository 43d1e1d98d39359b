// Freeing space: removed records, remaining records, and the state after failed calls.
#include <algorithm>
#include <gmock/gmock.h>
#include <random>

#include "tests/storage/collect_fixture.hpp"

namespace ebb::storage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Collect, WhatIsToGoGoes) {
  MemoryFiles files;
  put_image(files, busy());
  const Contents before = offered(files);
  ASSERT_EQ(before.size(), 6u);
  auto done = collect(files, test::kStore, kLast);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->removals.size(), 4u);
  EXPECT_EQ(done->segments, std::vector<std::filesystem::path>{"/store/segment-00000002.ebb"});
  EXPECT_LT(done->allocated_after, done->allocated_before);
  Contents kept;
  for (const Name& name : {Name{"a", 9}, Name{"b", 1}, Name{"c", 1}}) kept[name] = before.at(name);
  EXPECT_EQ(offered(files), kept);
  auto seen = inspect(files, test::kStore);
  ASSERT_TRUE(seen);
  EXPECT_THAT(seen->damages, IsEmpty());
  EXPECT_TRUE(seen->index);
  EXPECT_TRUE(scan_store(files, test::kStore, true).value().from_index);
  EXPECT_EQ(files.open_files(), 0u);
}

TEST(Collect, ADryRunChangesNothing) {
  MemoryFiles files;
  put_image(files, busy());
  const std::size_t before = files.changes();
  auto dry = collect(files, test::kStore, {.keep_last = 1, .damaged = true, .dry_run = true});
  ASSERT_TRUE(dry);
  EXPECT_EQ(files.changes(), before);
  auto done = collect(files, test::kStore, {.keep_last = 1, .damaged = true});
  ASSERT_TRUE(done);
  EXPECT_EQ(dry->removals.size(), done->removals.size());
  EXPECT_EQ(dry->segments, done->segments);
  EXPECT_GE(dry->allocated_after, done->allocated_after);
}

TEST(Collect, EndsBeforeAnythingIsChanged) {
  MemoryFiles files;
  put_image(files, busy());
  const Contents before = offered(files);
  const auto done =
      collect(files, test::kStore, {.keep_last = 1, .progress = [](std::uint64_t) { return false; }}).value();
  EXPECT_TRUE(done.ended);
  EXPECT_EQ(offered(files), before);
}

TEST(Collect, WhatIsNoStoreIsNotMadeOne) {
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/empty"));
  const auto done = collect(files, "/empty", {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::not_a_store);
  std::vector<std::string> names;
  ASSERT_TRUE(files.list("/empty", names));
  EXPECT_THAT(names, IsEmpty());
}

TEST(Collect, WhereThisUserMayNotWriteIsSaid) {
  MemoryFiles memory;
  put_image(memory, busy());
  FaultyFiles files(memory, 1);
  files.fail_nth(FileCall::lock, 1, EACCES);
  const auto done = collect(files, test::kStore, {});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::not_permitted);
  EXPECT_THAT(done.error().message, HasSubstr("/store/lock"));
  EXPECT_TRUE(collect(memory, test::kStore, {.dry_run = true}));
}

TEST(Collect, SequencesAreNotGivenAgain) {
  StoreImage image;
  image.add(1, describe("a", 1, {100}));
  for (Version version = 2; version < 6; ++version) image.add(2, describe("a", version, {100}));
  image.add(3, describe("a", 6, {100}));
  MemoryFiles files;
  put_image(files, image);
  ASSERT_TRUE(collect(files, test::kStore, {.keep_last = 1}));
  EXPECT_EQ(scan_store(files, test::kStore, true).value().next_sequence, image.sequence);
}

// What is offered and whole, of a store that may be hurt.
Contents whole(MemoryFiles& files) {
  Contents out = offered(files);
  std::erase_if(out, [](const auto& one) { return one.second == Bytes(1, std::byte{0xEE}); });
  return out;
}

TEST(Collect, WhereverTheDamageIsItStaysOrGoesAndNothingElseDoes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    StoreImage image = busy();
    for (std::uint64_t flips = random() % 3 + 1; flips > 0; --flips) {
      auto file = std::next(image.files.begin(), static_cast<std::ptrdiff_t>(random() % image.files.size()));
      if (file->first == "store") continue;  // nothing can be done without it
      // Half of them where heads are.
      const std::size_t at = random() % file->second.size();
      file->second[random() % 2 ? at : at / 4096 * 4096 + at % 512] ^= static_cast<std::byte>(1 << random() % 8);
    }
    for (const bool damaged : {false, true}) {
      MemoryFiles files;
      put_image(files, image);
      auto seen = inspect(files, test::kStore);
      ASSERT_TRUE(seen) << seed;
      const Contents before = [&] {  // by the segments only: the index is rewritten
        MemoryFiles plain;
        StoreImage bare = image;
        bare.files.erase("index");
        put_image(plain, bare);
        return whole(plain);
      }();
      auto done = collect(files, test::kStore, {.damaged = damaged});
      ASSERT_TRUE(done) << seed << ": " << done.error().message;
      ASSERT_EQ(whole(files), before) << seed;
      auto after = inspect(files, test::kStore);
      ASSERT_TRUE(after) << seed;
      if (!damaged) {
        std::size_t lasting = 0;
        for (const InspectedDamage& one : seen->damages) lasting += one.damage.file != "/store/index";
        ASSERT_EQ(after->damages.size(), lasting) << seed;
        continue;
      }
      ASSERT_THAT(after->damages, IsEmpty()) << seed << ": " << after->damages[0].damage.what;
      ASSERT_EQ(offered(files), before) << seed << ": every offered version is complete";
    }
  }
}

// Bytes may be in memory only: the system forgets bytes that a failed sync did not write.
TEST(Collect, WhatAnEarlierOneCouldNotSyncIsWrittenAgainAndSyncedBeforeItIsPunched) {
  for (std::uint64_t nth = 1;; ++nth) {
    MemoryFiles memory;
    put_image(memory, busy());
    {
      FaultyFiles files(memory, 1);
      files.fail_nth(FileCall::sync, nth, EIO);
      if (collect(files, test::kStore, kLast)) {
        EXPECT_GT(nth, 2u);
        break;
      }
    }
    FaultyFiles files(memory, 1);
    ASSERT_TRUE(collect(files, test::kStore, kLast));
    const auto records = files.records();
    std::size_t punches = 0;
    for (auto punch = records.begin(); punch != records.end(); ++punch) {
      if (punch->call != FileCall::punch) continue;
      ++punches;
      const auto head = std::find_if(records.begin(), punch, [&](const auto& one) {
        return one.call == FileCall::write && one.path == punch->path && one.offset == punch->offset - os::kBlock;
      });
      EXPECT_NE(head, punch) << punch->path << ": the head at " << punch->offset - os::kBlock << " is not written";
      EXPECT_TRUE(std::any_of(head, punch,
                              [&](const auto& one) { return one.call == FileCall::sync && one.path == punch->path; }))
          << punch->path << ": no sync between the head and the hole at " << punch->offset;
    }
    EXPECT_GE(punches, 2u) << nth;
  }
}

// After an unreadable head nothing is known to be waste, and only the unreadable bytes are lost.
TEST(Collect, WhatCannotBeReadStaysAsItIsOrGoesAlone) {
  StoreImage image;
  image.add(1, describe("a", 1, {5000}));
  const RecordHead hurt = image.add(1, describe("a", 2, {5000}));
  image.add(1, describe("a", 3, {5000}));
  for (const std::uint64_t offset : {std::uint64_t{0}, hurt.place.offset}) {
    for (const bool damaged : {false, true}) {
      std::uint64_t nth = 0;
      {
        MemoryFiles memory;
        put_image(memory, image);
        FaultyFiles files(memory, 1);
        ASSERT_TRUE(collect(files, test::kStore, {.damaged = damaged}));
        for (const auto& record : files.records()) {
          if (record.call != FileCall::read) continue;
          ++nth;
          if (record.offset == offset && segment_number(record.path.filename())) break;
        }
      }
      MemoryFiles memory;
      put_image(memory, image);
      Contents before = offered(memory);
      FaultyFiles files(memory, 1);
      files.fail_nth(FileCall::read, nth, EIO, offset == 0 ? 1 : 3);
      auto done = collect(files, test::kStore, {.damaged = damaged});
      ASSERT_TRUE(done) << done.error().message;
      if (!damaged) {
        ASSERT_EQ(done->damages.size(), 1u);
        EXPECT_EQ(done->damages[0].damage.offset, offset);
        EXPECT_THAT(done->damages[0].damage.what, HasSubstr("EIO"));
        EXPECT_THAT(done->removals, IsEmpty());
      } else {
        EXPECT_THAT(done->damages, IsEmpty());
        if (offset != 0) before.erase({"a", 2});
        const auto records = files.records();
        EXPECT_TRUE(std::ranges::any_of(records, [&](const auto& one) {
          return one.call == FileCall::write && one.offset == offset && one.bytes == os::kBlock &&
                 segment_number(one.path.filename());
        })) << "a part of a block that cannot be read cannot be written";
      }
      EXPECT_EQ(offered(memory), before);
    }
  }
}

// It may hide an unreadable record.
TEST(Collect, ASegmentOfDropsStaysWhileSomethingCannotBeRead) {
  StoreImage image;
  const RecordHead old = image.add(1, describe("a", 1, {5000}));
  image.drop(image.add(2, describe("a", 1, {6000})));
  image.add(3, describe("b", 1, {100}));
  MemoryFiles memory;
  put_image(memory, image);
  FaultyFiles files(memory, 1);
  files.make_unreadable(segment_path(test::kStore, 1), old.place.offset);
  auto done = collect(files, test::kStore, {});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(done->segments, IsEmpty());
  files.clear_faults();
  EXPECT_EQ(offered(memory).size(), 1u) << "the older one is hidden still";
  done = collect(files, test::kStore, {});
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(done->removals.size(), 1u);
  EXPECT_EQ(done->removals[0].why, admin::Removal::Why::superseded);
  EXPECT_EQ(done->segments.size(), 2u) << "nothing is left to be hidden";
  EXPECT_EQ(offered(memory).size(), 1u);
}

TEST(Collect, AFailureOfAnyCallIsAnErrorThatLosesNothing) {
  for (const FileCall call : {FileCall::open, FileCall::write, FileCall::sync, FileCall::sync_directory,
                              FileCall::remove, FileCall::rename, FileCall::truncate, FileCall::list}) {
    std::uint64_t calls = 1;
    for (std::uint64_t nth = 1; nth <= calls; ++nth) {
      MemoryFiles memory;
      put_image(memory, busy());
      const Contents before = offered(memory);
      FaultyFiles files(memory, 1);
      files.fail_nth(call, nth, EIO);
      auto done = collect(files, test::kStore, kLast);
      if (done) {
        const auto records = files.records();
        const bool lock_text = std::ranges::any_of(records, [](const auto& one) {  // for other processes
          return one.result.error == EIO && one.call == FileCall::write && one.path.filename() == kLockFile;
        });
        EXPECT_TRUE(lock_text || done->damages.size() == 1) << static_cast<int>(call) << " " << nth << " of " << calls;
      } else {
        EXPECT_THAT(done.error().message, HasSubstr("EIO"));
        EXPECT_THAT(done.error().message, HasSubstr("/store"));
      }
      const Contents now = offered(memory);
      for (const auto& [name, bytes] : now) EXPECT_EQ(before.at(name), bytes);
      for (const Name& name : {Name{"a", 9}, Name{"b", 1}, Name{"c", 1}}) EXPECT_TRUE(now.contains(name));
      EXPECT_EQ(files.open_files(), 0u);
      FaultyFiles counted(memory, 1);
      ASSERT_TRUE(collect(counted, test::kStore, kLast)) << "once more, and well";
      if (nth == 1) {
        MemoryFiles fresh;
        put_image(fresh, busy());
        FaultyFiles all(fresh, 1);
        ASSERT_TRUE(collect(all, test::kStore, kLast));
        calls = all.count(call);
        EXPECT_GE(calls, 1u);
      }
    }
  }
}

// A power loss, or decay, may take any sectors of blocks that records share.
TEST(Collect, WhateverSectorsOfSharedBlocksAreGoneTheOthersStayAndNothingIsWrongAfterwards) {
  StoreImage image;
  std::vector<RecordHead> heads;
  for (Version block = 0; block < 3; ++block) {
    std::vector<std::pair<Description, Bytes>> small;
    for (Version i = 0; i < 4; ++i)
      small.emplace_back(describe("a", 4 * block + i, {500}), test::random_bytes(500, 4 * block + i));
    for (const RecordHead& head : image.add_block(1, small)) heads.push_back(head);
  }
  const std::size_t end = os::kBlock * 4;
  for (std::size_t from = os::kBlock; from < end; from += kSector) {
    for (std::size_t to = from + kSector; to <= end; to += kSector) {
      for (const bool zeros : {true, false}) {
        SCOPED_TRACE(std::to_string(from) + " to " + std::to_string(to) + (zeros ? " zeros" : " flipped"));
        StoreImage hit = image;
        Bytes& bytes = hit.segment(1);
        std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from), bytes.begin() + static_cast<std::ptrdiff_t>(to),
                  std::byte{});
        for (std::size_t at = from; at < to && !zeros; at += kSector) {
          std::copy_n(image.segment(1).begin() + static_cast<std::ptrdiff_t>(at), kSector,
                      bytes.begin() + static_cast<std::ptrdiff_t>(at));
          bytes[at + 100] ^= std::byte{1};
        }
        MemoryFiles plain;
        put_image(plain, hit);
        const Contents before = offered(plain);
        std::size_t whole = 0;
        for (const RecordHead& head : heads)
          whole += head.place.offset >= to || head.place.offset + head.header_bytes <= from;
        ASSERT_EQ(before.size(), whole);
        for (const bool damaged : {false, true}) {
          MemoryFiles files;
          put_image(files, hit);
          const std::size_t wrong = inspect(files, test::kStore).value().damages.size();
          ASSERT_TRUE(collect(files, test::kStore, {.damaged = damaged}));
          const auto after = inspect(files, test::kStore).value();
          ASSERT_EQ(after.damages.size(), damaged ? 0 : wrong) << after.damages[0].damage.what;
          ASSERT_EQ(offered(files), before);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ebb::storage
