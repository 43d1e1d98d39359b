// Both directories of a store looked at while another process writes them. (The other process is another store object
// here: the two share nothing but the directories.)
#include <map>
#include <random>

#include "shared_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// A writer and, beside it, a reader of both directories.
struct Beside {
  explicit Beside(SharedSizes sizes = {}) : writer(sizes) {}
  SharedRig writer;
  Rig reader{Backend::threads, {.device = 64 * kKiB, .host = 128 * kKiB}};
  Lines lines;
  void prepare() {
    options::EngineSetup& setup = reader.setup();
    setup.readonly = true;
    setup.machine = writer.setup().machine;
    setup.machine.retention = {};
    setup.machine.tiers.back().every = planner::kNothingComes;
    setup.machine.tiers.back().retention = {};
    setup.directory = writer.setup().directory;
    setup.shared = writer.setup().shared;
    setup.log = lines.sink();
  }
  Store& read_side() {
    prepare();
    return reader.store();
  }
};

TEST(SharedReadonly, AVersionIsFoundInEitherDirectory) {
  Beside both({.local = 4 * kSize});
  Store& writer = both.writer.open();
  for (Version version = 1; version <= 10; ++version) send(writer, version);
  both.writer.files().fail_writes(EIO);
  keep(writer, 11);  // in the local directory alone; some of the others are in the shared one alone
  Store& reader = both.read_side();
  EXPECT_EQ(reader.versions().value(), writer.versions().value());
  EXPECT_EQ(reader.latest().value(), 11);
  for (Version version = 1; version <= 11; ++version) expect_restored(reader, version, kSize, {.keep = true});
  const Stats stats = reader.stats();
  EXPECT_LT(stats.tiers[stats.tiers.size() - 2].replicas, 11u);
  EXPECT_EQ(stats.tiers.back().replicas, 10u);
  EXPECT_EQ(both.lines.starting("warning: "), std::vector<std::string>{});
  both.writer.files().fail_writes(0);
}

TEST(SharedReadonly, NothingIsWritten) {
  Beside both;
  both.writer.setup().durability = Durability::storage;
  both.writer.setup().close_timeout = Seconds(60);
  Store& writer = both.writer.open();
  both.writer.files().fail_writes(EIO);
  keep(writer, 1);
  both.writer.close();
  both.writer.files().fail_writes(0);
  Store& reader = both.read_side();
  expect_restored(reader, 1, kSize, {.keep = true});
  EXPECT_EQ(code_of(write(reader, 2, kSize)), Errc::unsupported);
  EXPECT_TRUE(reader.wait("storage", Seconds(60))) << "all that it sees is kept";
  EXPECT_EQ(code_of(reader.wait("shared", Seconds(60))), Errc::unsupported) << "it is not, and nothing sends it";
  EXPECT_EQ(code_of(reader.wait(1, "shared", Seconds(60))), Errc::unsupported);
  ASSERT_TRUE(reader.close());
  EXPECT_EQ(both.writer.shared().segments().size(), 0u);
}

TEST(SharedReadonly, DirectoriesThatDoNotBelongTogetherAreRefused) {
  Beside both, other;
  send(both.writer.open(), 1);
  send(other.writer.open(), 1);
  both.prepare();
  both.reader.setup().shared = other.writer.setup().shared;
  const auto refused = Engine::open(both.reader.seams(), both.reader.setup());
  ASSERT_EQ(code_of(refused), Errc::invalid_argument);
  EXPECT_NE(refused.error().message.find("do not belong together"), std::string::npos) << refused.error().message;
}

TEST(SharedReadonly, WhatIsDroppedAndWrittenAnewIsSeenAsItIs) {
  Beside both;
  Store& writer = both.writer.open();
  send(writer, 1, 2 * kSize);
  Store& reader = both.read_side();
  expect_restored(reader, 1, 2 * kSize, {.keep = true});
  ASSERT_TRUE(writer.drop(1));
  send(writer, 1);
  send(writer, 2);  // the drops before it are carried out
  EXPECT_EQ(reader.info(1).value().bytes, kSize);
  expect_restored(reader, 1, kSize, {.keep = true});
}

// The local directory has room for a few versions: they go on down, and leave it, while the reader has them open.
TEST(SharedReadonly, WhatTheReaderSeesIsWhatTheWriterHasMadeDurable) {
  for (unsigned seed = 1; seed <= 2; ++seed) {
    Beside both({.local = 6 * kSize});
    Store& writer = both.writer.open();
    send(writer, 0);
    Store& reader = both.read_side();
    std::mt19937 random(seed);
    std::map<Version, std::size_t> there{{0, kSize}};
    for (int turn = 0; turn < 30; ++turn) {
      const Version version = random() % 8;
      if (there.contains(version)) {
        ASSERT_TRUE(writer.drop(version));
        there.erase(version);
      }
      if (random() % 4 != 0) {
        const std::size_t size = kSize - 4096 * (random() % 4);
        random() % 2 == 0 ? send(writer, version, size) : keep(writer, version, size);
        there[version] = size;
      }
      keep(writer, 1000 + turn, 4096);  // drops before it are carried out
      for (const auto& [one, size] : there) {
        const auto info = reader.info(one);
        ASSERT_TRUE(info) << "seed " << seed << ", turn " << turn << ": " << info.error().message;
        ASSERT_EQ(info->bytes, size) << "seed " << seed << ", turn " << turn;
        expect_restored(reader, one, size, {.keep = random() % 2 == 0});
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", turn " << turn;
    }
    EXPECT_EQ(both.lines.starting("warning: "), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace ebb::store
