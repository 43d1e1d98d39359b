// A store looked at while another process writes it. (The other process is another store object here: the two share
// nothing but the directory.)
#include <atomic>
#include <thread>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// A writer and, beside it, a reader of the same directory.
struct Beside {
  KeptRig writer;
  Rig reader{Backend::threads, {.device = 64 * kKiB, .host = 128 * kKiB}};
  Lines lines;
  Store& write_side() { return writer.rig().store(); }
  Store& read_side() {
    reader.setup().directory = writer.path();
    reader.setup().readonly = true;
    reader.setup().machine.ephemeral = false;
    reader.setup().log = lines.sink();
    return reader.store();
  }
};

TEST(KeptReadonly, WhatIsAddedMeanwhileIsSeen) {
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1);
  Store& reader = both.read_side();
  EXPECT_EQ(reader.latest().value(), 1);
  expect_restored(reader, 1, kSize);
  for (Version v = 2; v < 8; ++v) {
    keep(writer, v);
    expect_restored(reader, v, kSize);  // asked for by name: looked for
    EXPECT_EQ(reader.latest().value(), v);
    EXPECT_EQ(reader.versions().value().size(), static_cast<std::size_t>(v));
  }
  History other = both.write_side().history("other");
  keep(other, 5);
  History seen = reader.history("other");
  EXPECT_EQ(seen.latest().value(), 5);
  EXPECT_EQ(both.lines.starting("warning: ").size(), 0u);
}

TEST(KeptReadonly, NothingCanBeWritten) {
  Beside both;
  keep(both.write_side(), 1);
  Store& reader = both.read_side();
  EXPECT_EQ(code_of(write(reader, 2, kSize)), Errc::unsupported);
  EXPECT_EQ(code_of(reader.drop(1)), Errc::unsupported);
  EXPECT_EQ(code_of(reader.drop()), Errc::unsupported);
  const Source room{0, nullptr, kSize};
  EXPECT_EQ(code_of(reader.reserve(2, std::span(&room, 1))), Errc::unsupported);
  EXPECT_TRUE(reader.wait("storage", Seconds(60))) << "all that it sees is kept";
  expect_restored(reader, 1, kSize);
  expect_restored(reader, 1, kSize);
  ASSERT_TRUE(reader.close());
  EXPECT_EQ(both.write_side().versions(), std::vector<Version>{1});
}

TEST(KeptReadonly, WhatIsDroppedMeanwhileIsSaidToBe) {
  Beside both;
  Store& writer = both.write_side();
  for (Version v : {1, 2, 3}) keep(writer, v);
  Store& reader = both.read_side();
  expect_restored(reader, 2, kSize, {.keep = true});  // its regions are known
  ASSERT_TRUE(writer.drop(2));
  ASSERT_TRUE(writer.drop(3));
  keep(writer, 4);
  keep(writer, 5);  // the drops before it are carried out
  EXPECT_EQ(code_of(reader.info(3)), Errc::unknown_version);
  EXPECT_EQ(reader.latest(3).value(), 1);
  EXPECT_EQ(reader.latest().value(), 5);
  EXPECT_EQ(both.lines.starting("warning: ").size(), 0u) << "a drop is no damage";
}

TEST(KeptReadonly, WhatIsDroppedAndWrittenAnewIsSeenAsItIs) {
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1, 2 * kSize);
  Store& reader = both.read_side();
  EXPECT_EQ(reader.info(1).value().bytes, 2 * kSize);
  ASSERT_TRUE(writer.drop(1));
  keep(writer, 1, kSize);
  keep(writer, 2);
  EXPECT_EQ(reader.latest().value(), 2);
  EXPECT_EQ(reader.info(1).value().bytes, kSize);
  expect_restored(reader, 1, kSize);
}

// Drops version 1, and writes it anew with the bytes that another version would have.
void replace(Store& writer, Version turn, std::size_t size = kSize) {
  ASSERT_TRUE(writer.drop(1));
  auto bytes = bytes_of(turn, size);
  const auto written = writer.checkpoint(1, {{0, bytes.data(), bytes.size()}}, {.timeout = Seconds(60)});
  ASSERT_TRUE(written);
  ASSERT_TRUE(Result<Future>(written).value().wait("storage", Seconds(60)));
}

void expect_replaced(Store& reader, Version turn, std::size_t size = kSize) {
  std::vector<std::byte> bytes(size);
  const auto restored = reader.restore(1, {{0, bytes.data(), size}});
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_TRUE(bytes == bytes_of(turn, size)) << "other bytes than those of turn " << turn;
}

TEST(KeptReadonly, WhatIsInACacheIsGivenOnlyWhileItIsWhatIsDurable) {
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1);
  Store& reader = both.read_side();
  expect_restored(reader, 1, kSize);
  for (Version turn = 2; turn < 20; ++turn) {
    static_cast<void>(reader.borrow(1).value().release(true));
    const std::size_t before = both.reader.files().records().size();
    expect_replaced(reader, turn - 1);
    EXPECT_EQ(both.reader.files().records().size() - before, 3u) << "from memory";
    replace(writer, turn);
    expect_replaced(reader, turn);
  }
  replace(writer, 30);
  const Loan loan = reader.borrow(1).value();
  const auto right = bytes_of(30, kSize);
  EXPECT_TRUE(std::ranges::equal(right, loan.region(0)));
  ASSERT_TRUE(writer.drop(1));
  keep(writer, 2);
  keep(writer, 3);  // the drop is carried out
  EXPECT_EQ(code_of(reader.info(1)), Errc::unknown_version);
  EXPECT_EQ(reader.latest(1).value(), std::nullopt);
  EXPECT_EQ(both.lines.starting("warning: ").size(), 0u);
}

TEST(KeptReadonly, WhatIsReplacedWhileItIsReadIsReadAnew) {
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1);
  Store& reader = both.read_side();
  ASSERT_TRUE(reader.info(1));
  both.reader.files().hold(doubles::FileCall::read);
  std::thread late([&] { expect_replaced(reader, 2); });
  both.reader.files().await_held(doubles::FileCall::read, 1);
  replace(writer, 2);
  keep(writer, 3);
  both.reader.files().release(doubles::FileCall::read);
  late.join();
}

// Several threads of one reader: nothing older than what was reported before the call, and never that there is nothing.
TEST(KeptReadonly, WhatWasReplacedBeforeACallIsNotGiven) {
  constexpr Version kTurns = 60;
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1);
  Store& reader = both.read_side();
  std::atomic<Version> begun{1}, durable{1};
  const auto read = [&] {
    std::vector<std::byte> bytes(kSize);
    while (durable < kTurns) {
      const Version before = durable;
      const auto restored = reader.restore(1, {{0, bytes.data(), kSize}});
      const Version after = begun;
      if (!restored && restored.error().code == Errc::unknown_version) {
        EXPECT_LT(before, after) << "it was there all the time";  // between a drop and what was written anew
        continue;
      }
      ASSERT_TRUE(restored) << restored.error().message;
      bool right = false;
      for (Version turn = before; turn <= after; ++turn) right = right || bytes == bytes_of(turn, kSize);
      ASSERT_TRUE(right) << "not what was durable from turn " << before << " to " << after;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(read);
  for (Version turn = 2; turn <= kTurns; ++turn) {
    begun = turn;
    replace(writer, turn);
    durable = turn;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(both.lines.starting("warning: ").size(), 0u);
}

// All but reads of segments.
std::size_t other_calls(const std::vector<doubles::FileRecord>& records, std::size_t from) {
  return static_cast<std::size_t>(
      std::count_if(records.begin() + static_cast<std::ptrdiff_t>(from), records.end(), [](const auto& one) {
        return one.call != doubles::FileCall::read || !storage::segment_number(one.path.filename());
      }));
}

TEST(KeptReadonly, ARestoreWhereNothingHasChangedAsksForTwoStatusesAndReadsALine) {
  Beside both;
  Store& writer = both.write_side();
  for (Version v = 0; v < 50; ++v) keep(writer, v);
  Store& reader = both.read_side();
  expect_restored(reader, 7, kSize, {.keep = true});
  expect_restored(reader, 7, kSize, {.keep = true});
  const std::size_t before = both.reader.files().records().size();
  expect_restored(reader, 7, kSize, {.keep = true});
  EXPECT_EQ(other_calls(both.reader.files().records(), before), 3u);
}

}  // namespace
}  // namespace ebb::store
