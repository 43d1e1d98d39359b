// What one process kept, the next one has: all of it, bit for bit, wherever it wants it.
#include "kept_rig.hpp"

namespace ebb::store {
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
  options.tuning.direct_io = false;
  options.log.emplace(lines.sink());
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

TEST(KeptRestart, IntoOtherSizesOfTheTiersAndOtherChunks) {
  constexpr std::array<std::size_t, 6> sizes = {1, 4095, 4096, 16 * kKiB, 40 * kKiB, 100 * kKiB + 1};
  KeptRig rig;
  {
    Store& store = rig.open();
    for (std::size_t i = 0; i < sizes.size(); ++i) keep(store, static_cast<Version>(i), sizes[i]);
    ASSERT_TRUE(store.close());
  }
  for (const Sizes& other :
       {Sizes{.chunk = 4 * kKiB}, Sizes{.host = 0}, Sizes{.device = 0}, Sizes{.device = 0, .host = 0},
        Sizes{.device = 16 * kKiB, .host = 32 * kKiB, .disk = 16 * kKiB, .chunk = 8 * kKiB}}) {
    rig.resize(other);
    Store& store = rig.open();
    for (std::size_t i = sizes.size(); i-- > 0;) expect_restored(store, static_cast<Version>(i), sizes[i]);
    EXPECT_EQ(store.latest().value(), 5);
  }
}

TEST(KeptRestart, HistoriesByNameWithTheirRegionsAndMetadata) {
  KeptRig rig;
  const std::vector<std::string> names = {"adjoint", "../..", std::string("odd\0\xff", 5), std::string(300, 'x')};
  {
    Store& store = rig.open();
    Version v = -3;
    for (const std::string& name : names) {
      History history = store.history(name);
      const auto a = bytes_of(v, 1000), b = bytes_of(v + 100, 5000);
      ASSERT_TRUE(
          history.checkpoint(v, {{9, a.data(), a.size()}, {2, b.data(), b.size()}}, {.metadata = "of " + name}));
      ++v;
    }
    ASSERT_TRUE(store.close());
  }
  Store& store = rig.open();
  EXPECT_TRUE(store.versions().value().empty());
  Version v = -3;
  for (const std::string& name : names) {
    History history = store.history(name);
    EXPECT_EQ(history.versions(), std::vector<Version>{v});
    const CheckpointInfo info = history.info(v).value();
    EXPECT_EQ(info.metadata, "of " + name);
    ASSERT_EQ(info.regions.size(), 2u);
    EXPECT_EQ(info.regions[0].id, 9u);
    EXPECT_EQ(info.regions[1].bytes, 5000u);
    std::vector<std::byte> a(1000), b(5000), wrong(999);
    EXPECT_EQ(code_of(history.restore(v, {{2, b.data(), b.size()}, {9, wrong.data(), wrong.size()}})),
              Errc::size_mismatch);
    ASSERT_TRUE(history.restore(v, {{2, b.data(), b.size()}, {9, a.data(), a.size()}}));
    EXPECT_TRUE(a == bytes_of(v, 1000) && b == bytes_of(v + 100, 5000));
    ++v;
  }
}

TEST(KeptRestart, WhatHoldsNoBytesIsKeptToo) {
  KeptRig rig;
  {
    Store& store = rig.open();
    const Future future = store.checkpoint(1, {{4, nullptr, 0}}, {.metadata = "a mark"}).value();
    ASSERT_TRUE(future.wait("storage", Seconds(60)));
    EXPECT_TRUE(future.done("storage"));
    Reservation reserved = store.reserve(2, std::span<const Source>{}).value();
    ASSERT_TRUE(reserved.commit());
    ASSERT_TRUE(store.checkpoint(3, std::initializer_list<Source>{}));
    ASSERT_TRUE(store.drop(3));
    ASSERT_TRUE(store.checkpoint(4, std::initializer_list<Source>{}));
    ASSERT_TRUE(store.drop(4));
    ASSERT_TRUE(store.checkpoint(4, std::initializer_list<Source>{}, {.metadata = "anew"}));
    ASSERT_TRUE(store.close());
  }
  Store& store = rig.open();
  EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2, 4}));
  EXPECT_EQ(store.latest().value(), 4);
  EXPECT_EQ(store.info(1).value().metadata, "a mark");
  EXPECT_EQ(store.info(4).value().metadata, "anew");
  EXPECT_TRUE(store.restore(1, {{4, nullptr, 0}}));
  EXPECT_TRUE(store.restore(2, std::initializer_list<Target>{}));
}

TEST(KeptRestart, ConsumingGivesTheCachesBackAndNotTheFile) {
  KeptRig rig;
  {
    Store& store = rig.open();
    rig.files().hold(doubles::FileCall::write);
    ASSERT_TRUE(write(store, 1, kSize));
    expect_restored(store, 1, kSize);  // before any of it was on the disk
    rig.files().release(doubles::FileCall::write);
    EXPECT_TRUE(store.wait(1, "storage", Seconds(60))) << "its flush is not dropped";
    expect_restored(store, 1, kSize);
    EXPECT_EQ(code_of(write(store, 1, kSize)), Errc::version_exists);
    EXPECT_EQ(store.latest().value(), 1);
    ASSERT_TRUE(store.close());
  }
  Store& store = rig.open();
  EXPECT_EQ(store.latest().value(), 1);
  for (int again = 0; again < 2; ++again) expect_restored(store, 1, kSize);
}

TEST(KeptRestart, AVersionThatIsDroppedCanBeWrittenAnew) {
  KeptRig rig;
  {
    Store& store = rig.open();
    keep(store, 1, kSize);
    ASSERT_TRUE(store.drop(1));
    EXPECT_EQ(code_of(store.restore(1, std::span<const Target>{})), Errc::unknown_version);
    EXPECT_EQ(store.latest().value(), std::nullopt);
    keep(store, 1, kSize / 2);
    ASSERT_TRUE(store.close());
  }
  {
    Store& store = rig.open();
    EXPECT_EQ(store.versions(), std::vector<Version>{1});
    expect_restored(store, 1, kSize / 2);
    ASSERT_TRUE(store.drop());
    keep(store, 2, kSize);
    ASSERT_TRUE(store.close());
  }
  EXPECT_EQ(rig.open().versions(), std::vector<Version>{2});
}

TEST(KeptRestart, HintsOfWhatAnEarlierProcessLeftArePrefetched) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v = 0; v < 5; ++v) keep(store, v);
    ASSERT_TRUE(store.close());
  }
  Store& store = rig.open();
  ASSERT_TRUE(store.hint({4, 3, 2, 1, 0, 7}));
  ASSERT_TRUE(store.start_prefetch());
  for (Version v = 5; v-- > 0;) {
    const Loan loan = store.borrow(v).value();
    EXPECT_EQ(std::memcmp(loan.data(), bytes_of(v, kSize).data(), kSize), 0);
  }
  ASSERT_TRUE(write(store, 7, kSize));
  expect_restored(store, 7, kSize);
}

TEST(KeptRestart, WithoutItsIndexAllOfItIsFound) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v = 0; v < 20; ++v) keep(store, v, 1000);
    ASSERT_TRUE(store.close());
  }
  ASSERT_TRUE(std::filesystem::remove(rig.path() / "index"));
  Store& store = rig.open();
  EXPECT_EQ(store.versions().value().size(), 20u);
  EXPECT_EQ(store.latest().value(), 19);
  expect_restored(store, 0, 1000);
}

}  // namespace
}  // namespace ebb::store
