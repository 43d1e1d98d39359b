// What a future says of the checkpoint that it was given for: durable once and for all, or why it never will be.
#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

Errc refusal_of(const Future& future, std::string_view level) {
  try {
    return future.done(level) ? Errc::ok : Errc::timed_out;  // timed_out: not yet
  } catch (const BadResult& refused) {
    return refused.error().code;
  }
}

TEST(KeptFuture, WhatWasDurableStaysSoWhateverBecomesOfIt) {
  KeptRig rig;
  rig.setup().machine.retention.keep_last = 1;
  Store& store = rig.open();
  const Future first = write(store, 1, kSize).value();
  ASSERT_TRUE(first.wait("storage", Seconds(60)));
  keep(store, 2);
  ASSERT_EQ(store.versions(), std::vector<Version>{2});
  EXPECT_EQ(refusal_of(first, "storage"), Errc::ok);
  EXPECT_TRUE(first.wait("storage", Seconds(0)));
  EXPECT_TRUE(first.wait("process", Seconds(0)));
  EXPECT_EQ(code_of(first.wait("node")), Errc::unsupported);
  ASSERT_TRUE(store.close());
  EXPECT_EQ(refusal_of(first, "storage"), Errc::ok);
  EXPECT_TRUE(first.wait("storage"));
}

TEST(KeptFuture, WhatWasDroppedBeforeIsNotCalledDurable) {
  KeptRig rig;
  Store& store = rig.open();
  rig.files().hold(FileCall::write);
  const Future future = write(store, 1, kSize).value();
  rig.files().await_held(FileCall::write, 1);
  EXPECT_EQ(refusal_of(future, "storage"), Errc::timed_out);
  ASSERT_TRUE(store.drop(1));
  EXPECT_EQ(refusal_of(future, "storage"), Errc::dropped);
  rig.files().release(FileCall::write);
}

TEST(KeptFuture, LatestReadsWhatThisProcessWroteWhenItIsNoLongerInMemory) {
  KeptRig rig(Backend::threads, {.device = 32 * kKiB, .host = 0, .chunk = 4 * kKiB});
  Store& store = rig.open();
  keep(store, 1, 16 * kKiB);
  keep(store, 5, 16 * kKiB);
  const auto [file, offset] = rig.payload_of(5);
  OwnDirectory::flip(file, offset);
  EXPECT_EQ(store.latest().value(), 5) << "what is in memory is right";
  for (Version v : {2, 3}) keep(store, v, 32 * kKiB);  // and no longer there
  EXPECT_EQ(store.latest().value(), 3);
  ASSERT_TRUE(store.drop(3));
  EXPECT_EQ(store.latest().value(), 2);
  ASSERT_EQ(rig.lines().starting("warning: ").size(), 1u);
}

TEST(KeptFuture, ItsWaitSaysWhatTheStoresWaitSays) {
  for (const int error : {ENOSPC, EIO}) {
    KeptRig rig(Backend::threads, {.device = 128 * kKiB, .host = 128 * kKiB});
    Store& store = rig.open();
    rig.files().fail_nth(FileCall::preallocate, 1, error, doubles::FaultyFiles::kEver);
    rig.files().fail_nth(FileCall::write, 1, error, doubles::FaultyFiles::kEver);
    std::vector<Future> futures;
    for (const Version v : {0, 1}) futures.push_back(write(store, v, v == 0 ? 0 : kSize).value());
    const auto agree = [&](const char* level, Version v) {
      const Future& future = futures[static_cast<std::size_t>(v)];
      const auto said = future.wait(level, Seconds(60)), stores = store.wait(v, level, Seconds(60));
      EXPECT_EQ(code_of(said), code_of(stores)) << level << " of version " << v;
      return code_of(said);
    };
    constexpr std::array kLevels{"ephemeral", "device", "host", "local", "process", "storage"};
    for (const Version v : {0, 1})
      for (const char* level : kLevels) agree(level, v);
    EXPECT_EQ(agree("storage", 1), error == ENOSPC ? Errc::no_space : Errc::io_error);
    EXPECT_EQ(agree("host", 1), Errc::ok) << "the error is the disk's";
    rig.files().clear_faults();
    for (const Version v : {0, 1})
      for (const char* level : kLevels) EXPECT_EQ(agree(level, v), Errc::ok) << level << " of version " << v;
    for (const Future& future : futures) EXPECT_FALSE(future.error());
    ASSERT_TRUE(store.close());
  }
}

TEST(KeptFuture, WhatWasNotReadDoesNotCountInRetention) {
  KeptRig rig;
  for (Version v : {3, 4, 5, 10, 11, 12}) keep(v == 3 ? rig.open() : rig.rig().store(), v, kKiB);
  rig.close();
  rig.setup().machine.retention.keep_last = 3;
  Store& store = rig.open();
  ASSERT_EQ(store.latest(5).value(), 5);
  keep(store, 6, kKiB);
  EXPECT_EQ(store.versions(), (std::vector<Version>{4, 5, 6, 10, 11, 12}));
}

}  // namespace
}  // namespace ebb::store
