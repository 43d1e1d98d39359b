// keep_last and keep_every: what goes, what stays, and that nothing goes before something newer is safe.
#include <fstream>
#include <sstream>

#include "kept_rig.hpp"
#include "trace/event_text.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FaultyFiles;
using doubles::FileCall;

using Versions = std::vector<Version>;

TEST(KeptRetention, TheNewestStayAndWhoseTurnItIs) {
  KeptRig rig;
  rig.setup().machine.retention.keep_last = 2;
  rig.setup().machine.retention.keep_every = 3;
  {
    Store& store = rig.open();
    History other = store.history("other");
    for (Version v = 1; v <= 8; ++v) keep(store, v);
    keep(other, 1);
    EXPECT_EQ(store.versions(), (Versions{3, 6, 7, 8}));
    EXPECT_EQ(other.versions(), Versions{1});
    EXPECT_EQ(code_of(store.restore(5, std::span<const Target>{})), Errc::unknown_version);
    ASSERT_TRUE(store.close());
  }
  {
    Store& store = rig.open();
    EXPECT_EQ(store.versions(), (Versions{3, 6, 7, 8}));
    keep(store, 9);
    EXPECT_EQ(store.versions(), (Versions{3, 6, 8, 9}));
    for (Version v : {3, 6, 8, 9}) expect_restored(store, v, kSize);
  }
  Store& store = rig.open();
  EXPECT_EQ(store.versions(), (Versions{3, 6, 8, 9}));
}

TEST(KeptRetention, ARunThatBeginsBelowAnEarlierOneIsToldWhatToDo) {
  KeptRig rig;
  rig.setup().machine.retention.keep_last = 2;
  const auto told = [&] { return rig.lines().starting("warning: " + rig.path().string() + " has "); };
  {
    Store& store = rig.open();
    for (Version v = 10; v <= 12; ++v) keep(store, v);
    History other = store.history("other");
    keep(other, 5);
    EXPECT_TRUE(told().empty()) << "nothing was there";
  }
  {
    Store& store = rig.open();
    keep(store, 13);
    keep(store, 4);
    EXPECT_TRUE(told().empty()) << "a run that continues may go back";
    History other = store.history("other");
    keep(other, 1);
    keep(other, 2);
    ASSERT_EQ(told().size(), 1u) << "once";
    EXPECT_NE(told()[0].find("version 5 of history \"other\" of an earlier run, and this one writes version 1"),
              std::string::npos)
        << told()[0];
  }
  Store& store = rig.open();
  for (const Version v : store.versions().value()) store.drop(v).value();
  keep(store, 1);
  EXPECT_TRUE(told().empty()) << "the earlier run's are gone";
}

TEST(KeptRetention, NothingGoesWhileTheNewestIsNotSafe) {
  KeptRig rig;
  rig.setup().machine.retention.keep_last = 1;
  Store& store = rig.open();
  keep(store, 1);
  rig.files().fail_nth(FileCall::sync, 1, EIO, FaultyFiles::kEver);
  for (Version v : {2, 3}) {
    const Future future = write(store, v, kSize).value();
    EXPECT_EQ(code_of(future.wait("storage", Seconds(60))), Errc::io_error);
  }
  EXPECT_EQ(store.versions(), (Versions{1, 2, 3}));
  rig.files().clear_faults();
  keep(store, 4);
  EXPECT_EQ(store.versions(), (Versions{2, 3, 4})) << "what never was safe is not counted, and not dropped";
  EXPECT_EQ(code_of(store.close()), Errc::io_error);
  rig.close();
  Store& next = rig.open();
  EXPECT_EQ(next.versions(), Versions{4});
}

TEST(KeptRetention, AfterARestartNothingGoesBeforeANewOneIsSafe) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v = 1; v <= 4; ++v) keep(store, v);
    ASSERT_TRUE(store.close());
  }
  rig.setup().machine.retention.keep_last = 2;
  Store& store = rig.open();
  EXPECT_EQ(store.versions(), (Versions{1, 2, 3, 4}));
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(store, 5, kSize));
  rig.files().await_held(FileCall::write, 1);
  EXPECT_EQ(store.versions(), (Versions{1, 2, 3, 4, 5}));
  rig.files().release(FileCall::write);
  ASSERT_TRUE(store.wait("storage", Seconds(60)));
  EXPECT_EQ(store.versions(), (Versions{4, 5}));
}

void keep_and_damage_last(KeptRig& rig, std::initializer_list<Version> versions) {
  Store& store = rig.open();
  for (const Version v : versions) keep(store, v);
  ASSERT_TRUE(store.close());
  rig.close();
  const auto [file, offset] = rig.payload_of(std::rbegin(versions)[0]);
  OwnDirectory::flip(file, offset);
}

TEST(KeptRetention, ADamagedNewerOneIsNoReasonForAnythingToGo) {
  KeptRig rig;
  keep_and_damage_last(rig, {1, 9});
  rig.setup().machine.retention.keep_last = 1;
  Store& store = rig.open();
  keep(store, 2);  // the program went back: 9 is newer by name, and nothing has read it
  EXPECT_EQ(store.versions(), (Versions{2, 9}));
  expect_restored(store, 2, kSize);
  EXPECT_EQ(store.latest().value(), 2);
  keep(store, 3);
  EXPECT_EQ(store.versions(), Versions{3});
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// One on the disk and one that comes: each waits for the one before it, and asks for that to be committed.
TEST(KeptRetention, ADiskOfTheNewestAndOneMoreIsEnough) {
  const std::filesystem::path log = ::testing::TempDir() + "ebbtide-window-" + std::to_string(::getpid());
  KeptRig rig(Backend::threads, {.device = 64 * kKiB, .host = 64 * kKiB, .disk = 80 * kKiB});
  rig.setup().machine.retention.keep_last = 1;
  rig.setup().event_log = log;
  Store& store = rig.open();
  for (Version v = 0; v < 40; ++v) {
    const auto written = write(store, v, kSize);
    ASSERT_TRUE(written) << written.error().message;
  }
  ASSERT_TRUE(store.close());
  rig.close();
  const std::string text = text_of(log);
  std::filesystem::remove(log);
  const trace::Replay replayed = trace::replay(text).value();
  EXPECT_FALSE(replayed.difference) << *replayed.difference;
  for (const char* line : {"\ns 4\n", "\nr 0 0\n", "\nr 0 38\n", " durable "}) {
    EXPECT_NE(text.find(line), text.npos) << line;
  }
  rig.setup().event_log.reset();
  Store& next = rig.open();
  EXPECT_EQ(next.versions(), Versions{39});
  expect_restored(next, 39, kSize);
}

// What has no memory to wait in waits for the sync that makes its room; what no room is ever left for is refused.
TEST(KeptRetention, WhatIsWrittenStraightToTheDiskWaitsForRoomToo) {
  KeptRig rig(Backend::threads, {.device = 0, .host = 0, .disk = 80 * kKiB});
  rig.setup().machine.retention.keep_last = 1;
  Store& store = rig.open();
  for (Version v = 0; v < 10; ++v) {
    const auto written = write(store, v, kSize);
    ASSERT_TRUE(written) << written.error().message;
    const auto refused = write(store, 100, 44 * kKiB);
    ASSERT_EQ(code_of(refused), Errc::no_space);
    EXPECT_NE(refused.error().message.find(std::to_string(84 * kKiB) + " bytes are needed"), std::string::npos)
        << refused.error().message;
  }
  ASSERT_TRUE(store.close());
  EXPECT_EQ(rig.open().versions(), Versions{9});
}

TEST(KeptRetention, WhatAKilledProcessLeftMakesRoom) {
  KeptRig rig(Backend::threads, {.device = 64 * kKiB, .host = 0, .disk = 400 * kKiB});
  {
    Store& store = rig.open();
    for (Version v = 1; v <= 6; ++v) keep(store, v);
    ASSERT_TRUE(store.close());
  }
  rig.close();
  const auto [file, offset] = rig.payload_of(6);
  OwnDirectory::flip(file, offset);
  rig.resize({.device = 64 * kKiB, .host = 0, .disk = 160 * kKiB});
  rig.setup().machine.retention.keep_last = 2;
  Store& store = rig.open();
  EXPECT_EQ(store.versions(), (Versions{1, 2, 3, 4, 5, 6})) << "nothing is dropped while its room is not needed";
  keep(store, 7);
  EXPECT_EQ(store.versions(), (Versions{5, 7})) << "6 is damaged: 4 and 5 made room";
  for (Version v : {5, 7}) expect_restored(store, v, kSize);
}

TEST(KeptRetention, WhatIsFoundDamagedIsNotCounted) {
  KeptRig rig;
  keep_and_damage_last(rig, {1, 2});
  rig.setup().machine.retention.keep_last = 2;
  Store& store = rig.open();
  EXPECT_EQ(store.latest().value(), 1);
  keep(store, 3);
  EXPECT_EQ(store.versions(), (Versions{1, 3})) << "two that can be restored";
}

}  // namespace
}  // namespace ebb::store
