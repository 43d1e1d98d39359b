// Giving room back: what goes, what stays, and what a loss of power in the middle leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "platform/testing/faulty_files.hpp"
#include "platform/testing/power_loss.hpp"
#include "storage/collect.hpp"
#include "storage/record_reader.hpp"
#include "storage/store_directory.hpp"
#include "tests/storage/memory_store.hpp"

namespace ebb::storage {
namespace {

using platform::testing::FaultyFiles;
using platform::testing::FileCall;
using platform::testing::MemoryFiles;
using platform::testing::PowerLoss;
using test::Bytes;
using test::describe;
using test::StoreImage;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Name = std::pair<std::string, Version>;
using Contents = std::map<Name, Bytes>;

// What a store that is opened now offers, with its bytes. Nothing it offers may be damaged.
Contents offered(MemoryFiles& files) {
  Contents out;
  auto scanned = scan_store(files, test::kStore, true);
  if (!scanned) {
    ADD_FAILURE() << scanned.error().message;
    return out;
  }
  std::map<Name, const ScannedRecord*> newest;
  for (const ScannedSegment& segment : scanned->segments) {
    for (const ScannedRecord& record : segment.records) {
      const ScannedRecord*& at = newest[{record.history, record.head.version}];
      if (at == nullptr || at->head.sequence < record.head.sequence) at = &record;
    }
  }
  for (const auto& [name, record] : newest) {
    RecordReader reader(files, test::kStore, record->head);
    Bytes& bytes = out[name];
    auto opened = reader.open();
    if (!opened) {
      bytes = Bytes(1, std::byte{0xEE});  // like nothing that was written
      continue;
    }
    for (;;) {
      auto piece = reader.next();
      if (!piece) {
        bytes = Bytes(1, std::byte{0xEE});
        break;
      }
      if (piece->empty()) break;
      bytes.insert(bytes.end(), piece->begin(), piece->end());
    }
  }
  return out;
}

// An older record of a/1 lies in a later file than the one that counts; a/1 to a/3 go, a/9, b and c stay.
StoreImage busy() {
  StoreImage image;
  image.add(3, describe("a", 1, {7000}));
  image.add(1, describe("a", 1, {5000}));
  image.add(1, describe("b", 1, {3000}));
  image.add(1, describe("a", 2, {9000}));
  image.drop(image.add(3, describe("a", 5, {9000})));
  image.leave(1, 4, std::byte{0x22});
  image.add(1, describe("a", 9, {12'000}));
  image.leave(1, 6, std::byte{0x33});
  image.add(2, describe("a", 3, {6000}));
  image.add(3, describe("c", 1, {100}));
  image.files["index"] = encode_index(test::scan(image.files).value());
  return image;
}

const CollectOptions kLast{.keep_last = 1};

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
  const auto done = collect(files, test::kStore, {.keep_last = 1, .progress = [](std::uint64_t) { return false; }}).value();
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
  std::uint64_t lock = 0;
  {
    MemoryFiles another;
    put_image(another, busy());
    FaultyFiles files(another, 1);
    ASSERT_TRUE(collect(files, test::kStore, {}));
    for (const auto& record : files.records()) {
      if (record.call != FileCall::open) continue;
      ++lock;
      if (record.path.filename() == "lock") break;
    }
  }
  FaultyFiles files(memory, 1);
  files.fail_nth(FileCall::open, lock, EACCES);
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
      const Contents before = [&] {  // by the segments alone: an index is made anew
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
      ASSERT_EQ(offered(files), before) << seed << ": what is offered is whole";
    }
  }
}

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

// What is in memory may be there alone: the system forgets what a sync that failed could not write.
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
        return one.call == FileCall::write && one.path == punch->path && one.offset == punch->offset - platform::kBlock;
      });
      EXPECT_NE(head, punch) << punch->path << ": the head at " << punch->offset - platform::kBlock << " is not written";
      EXPECT_TRUE(std::any_of(head, punch, [&](const auto& one) {
        return one.call == FileCall::sync && one.path == punch->path;
      })) << punch->path << ": no sync between the head and the hole at " << punch->offset;
    }
    EXPECT_GE(punches, 2u) << nth;
  }
}

// Where a head cannot be read nothing is known to be waste, and with it nothing is lost but what cannot be read.
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
          return one.call == FileCall::write && one.offset == offset && one.bytes == platform::kBlock &&
                 segment_number(one.path.filename());
        })) << "a part of a block that cannot be read cannot be written";
      }
      EXPECT_EQ(offered(memory), before);
    }
  }
}

TEST(Collect, AFailureOfAnyCallIsAnErrorThatLosesNothing) {
  for (const FileCall call : {FileCall::open, FileCall::write, FileCall::sync, FileCall::sync_directory, FileCall::remove,
                              FileCall::rename, FileCall::truncate, FileCall::list}) {
    std::uint64_t calls = 1;
    for (std::uint64_t nth = 1; nth <= calls; ++nth) {
      MemoryFiles memory;
      put_image(memory, busy());
      const Contents before = offered(memory);
      FaultyFiles files(memory, 1);
      files.fail_nth(call, nth, EIO);
      auto done = collect(files, test::kStore, kLast);
      if (done) {
        const bool lock_text = call == FileCall::write && nth == 1;  // for a person
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

}  // namespace
}  // namespace ebb::storage
