// A store that is used for days: what it remembers of each call does not grow for ever.
#include <malloc.h>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

TEST(LongUse, OfEachRestoreTheNewestAreRemembered) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, 8));
  std::byte bytes[8];
  const std::size_t many = 2 * Stats::kNewest + 100;
  for (std::size_t i = 0; i < many; ++i) ASSERT_TRUE(store.restore(1, {{0, bytes, 8}}, {.keep = true}));
  const Stats stats = store.stats();
  EXPECT_EQ(stats.restores, many);
  EXPECT_GE(stats.found_on.size(), Stats::kNewest);
  EXPECT_LE(stats.found_on.size(), 2 * Stats::kNewest);
  EXPECT_EQ(stats.prefetch_distance.size(), stats.found_on.size());
}

TEST(LongUse, AConsumedVersionIsStillToldFromOneThatNeverWas) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  for (Version v = 0; v < 100; ++v) {
    if (v % 10 == 5) continue;
    ASSERT_TRUE(write(store, v, 8));
    expect_restored(store, v, 8);
  }
  std::byte bytes[8];
  for (Version v = -1; v <= 100; ++v) {
    const bool was = v >= 0 && v < 100 && v % 10 != 5;
    EXPECT_EQ(code_of(store.restore(v, {{0, bytes, 8}})), was ? Errc::consumed : Errc::unknown_version) << v;
  }
  ASSERT_TRUE(store.drop(31));
  EXPECT_EQ(code_of(store.restore(31, {{0, bytes, 8}})), Errc::unknown_version);
  ASSERT_TRUE(write(store, 31, 8));
  expect_restored(store, 31, 8);
  EXPECT_EQ(code_of(store.restore(31, {{0, bytes, 8}})), Errc::consumed);
}

// Bytes of the heap in use. Under a sanitizer, whose heap this does not see, always 0.
std::size_t in_use() { return ::mallinfo2().uordblks; }

// What a program does that makes a history a shot, for days.
void shots(Store& store, int from, int to, bool kept) {
  for (int shot = from; shot < to; ++shot) {
    History history = store.history("shot " + std::to_string(shot), Order::reverse);
    for (Version v = 0; v < 2; ++v) {
      ASSERT_TRUE(write(history, v, 8));
    }
    if (kept) {
      ASSERT_TRUE(history.wait("storage", Seconds(60)));
    }
    if (shot % 2) expect_restored(history, 1, 8);
    ASSERT_TRUE(history.drop());
  }
}

TEST(LongUse, AHistoryThatWasDroppedLeavesNothing) {
  for (const bool kept : {false, true}) {
    OwnDirectory at;  // without doubles: they remember each call
    Options options{.device = "cpu", .directory = at.path(), .device_cache = 1 << 20, .host_cache = 1 << 20};
    options.disk = kept ? 16 << 20 : 0;
    options.durability = kept ? Durability::storage : Durability::ephemeral;
    if (!kept) options.directory = ::testing::TempDir();
    Store store = Store::open(options).value();
    const int warm = kept ? 400 : 1000, many = kept ? 1000 : 20'000;
    shots(store, 0, warm, kept);
    const std::size_t before = in_use();
    shots(store, warm, many, kept);
    const std::size_t after = in_use();
    EXPECT_LT(after, before + 128 * static_cast<std::size_t>(many - warm)) << (kept ? "kept" : "ephemeral");
  }
}

TEST(LongUse, AHistoryIsForgottenOnlyWhenItWasDroppedAndNothingNamesItAnyMore) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  const auto make_many = [&] {
    for (int i = 0; i < 1000; ++i) store.history("other " + std::to_string(i));
  };
  History held = store.history("held", Order::reverse);
  ASSERT_TRUE(write(held, 1, 8));
  ASSERT_TRUE(held.drop());
  {
    History left = store.history("left");
    ASSERT_TRUE(write(left, 1, 8));
    History consumed = store.history("consumed");
    ASSERT_TRUE(write(consumed, 1, 8));
    expect_restored(consumed, 1, 8);
    ASSERT_TRUE(store.history("hinted").hint({1}));
  }
  const Future future = [&] {
    History gone = store.history("gone");
    const Future written = write(gone, 1, 8).value();
    EXPECT_TRUE(gone.drop());
    return written;
  }();
  Reservation reservation = [&] {
    History reserved = store.history("reserved");
    const Source region{0, nullptr, 8};
    Reservation made = reserved.reserve(1, std::span(&region, 1)).value();
    EXPECT_TRUE(reserved.drop());
    return made;
  }();
  make_many();
  ASSERT_TRUE(write(held, 2, 8));
  EXPECT_EQ(store.history("held").versions(), std::vector<Version>{2});
  EXPECT_EQ(store.history("left").versions(), std::vector<Version>{1});
  std::byte bytes[8];
  EXPECT_EQ(code_of(store.history("consumed").restore(1, {{0, bytes, 8}})), Errc::consumed);
  const std::string of_future = future.wait("device").error().message, of_hold = reservation.commit().error().message;
  EXPECT_NE(of_future.find("\"gone\""), std::string::npos) << of_future;
  EXPECT_NE(of_hold.find("\"reserved\""), std::string::npos) << of_hold;
}

// Whether it has been forgotten yet makes no difference to who comes again with its name.
TEST(LongUse, AHistoryThatWasDroppedBeginsAnew) {
  for (const int others : {0, 1000}) {
    Rig rig(Backend::threads, {.disk = 0});
    Store& store = rig.store();
    {
      History first = store.history("x", Order::reverse);
      ASSERT_TRUE(write(first, 1, 8));
      ASSERT_TRUE(first.drop());
    }
    for (int i = 0; i < others; ++i) store.history("other " + std::to_string(i));
    History again = store.history("x");
    for (Version v : {1, 2}) ASSERT_TRUE(write(again, v, 8));
    expect_restored(again, 2, 8);
    std::byte bytes[8];
    EXPECT_EQ(code_of(again.restore(2, {{0, bytes, 8}})), Errc::consumed);
    expect_restored(again, 1, 8);
    EXPECT_EQ(store.stats().prefetch_distance, (std::vector<std::uint32_t>{0, 0})) << "nothing was hinted";
  }
}

}  // namespace
}  // namespace ebb::store
