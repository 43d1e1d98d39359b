// keep_last and keep_every: what goes, what stays, and that nothing goes before something newer is safe.
#include "kept_rig.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;
using platform::testing::FileCall;
using platform::testing::FaultyFiles;

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

TEST(KeptRetention, ADamagedNewerOneIsNoReasonForAnythingToGo) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v : {1, 9}) keep(store, v);
    ASSERT_TRUE(store.close());
    rig.close();
    const auto [file, offset] = rig.payload_of(9);
    OwnDirectory::flip(file, offset);
  }
  rig.setup().machine.retention.keep_last = 1;
  Store& store = rig.open();
  keep(store, 2);  // the program went back: 9 is newer by name, and nobody has read it
  EXPECT_EQ(store.versions(), (Versions{2, 9}));
  expect_restored(store, 2, kSize);
  EXPECT_EQ(store.latest().value(), 2);
  keep(store, 3);
  EXPECT_EQ(store.versions(), Versions{3});
}

TEST(KeptRetention, WhatIsFoundDamagedIsNotCounted) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v : {1, 2}) keep(store, v);
    ASSERT_TRUE(store.close());
    rig.close();
    const auto [file, offset] = rig.payload_of(2);
    OwnDirectory::flip(file, offset);
  }
  rig.setup().machine.retention.keep_last = 2;
  Store& store = rig.open();
  EXPECT_EQ(store.latest().value(), 1);
  keep(store, 3);
  EXPECT_EQ(store.versions(), (Versions{1, 3})) << "two that can be restored";
}

}  // namespace
}  // namespace ebb::runtime
