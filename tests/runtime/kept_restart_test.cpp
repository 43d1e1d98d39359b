// What one process kept, the next one has: all of it, bit for bit, wherever it wants it.
#include "kept_rig.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;

TEST(KeptRestart, WhatWasKeptComesBack) {
  for (const Backend backend : {Backend::uring, Backend::threads, Backend::fake, Backend::gpu}) {
    KeptRig rig(backend);
    {
      Store& store = rig.open();
      EXPECT_EQ(store.latest().value(), std::nullopt);
      for (Version v : {1, 2, 3}) ASSERT_TRUE(write(store, v, kSize));
      ASSERT_TRUE(store.wait("storage", Seconds(60)));
      ASSERT_TRUE(store.close());
    }
    Store& store = rig.open();
    EXPECT_EQ(store.latest().value(), 3);
    EXPECT_EQ(store.latest(2).value(), 2);
    EXPECT_EQ(store.latest(0).value(), std::nullopt);
    EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2, 3}));
    for (Version v : {2, 3, 1, 2}) expect_restored(store, v, kSize);
    EXPECT_EQ(code_of(write(store, 2, kSize)), Errc::version_exists);
    ASSERT_TRUE(write(store, 4, kSize));
    ASSERT_TRUE(store.close());
  }
}

// By the public calls alone, as a program would.
TEST(KeptRestart, ByThePublicCalls) {
  OwnDirectory at;
  Lines lines;
  ebb::Options options{.device = "cpu", .directory = at.path(), .device_cache = 1 << 20, .host_cache = 1 << 20};
  options.durability = Durability::storage;
  options.direct_io = false;
  options.log = lines.sink();
  {
    Store store = Store::open(options).value();
    const Future future = write(store, 7, kSize, {.metadata = "of step 7"}).value();
    ASSERT_TRUE(future.wait("storage"));
    EXPECT_TRUE(future.done("storage"));
    ASSERT_TRUE(store.close());
  }
  options.host_cache = 0;
  Store store = Store::open(options).value();
  const CheckpointInfo info = store.info(7).value();
  EXPECT_EQ(info.metadata, "of step 7");
  EXPECT_EQ(info.bytes, kSize);
  ASSERT_EQ(info.regions.size(), 1u);
  EXPECT_EQ(info.regions[0].bytes, kSize);
  expect_restored(store, store.latest().value().value(), kSize);
}

}  // namespace
}  // namespace ebb::runtime
