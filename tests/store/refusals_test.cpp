// What is asked for by a name that says nothing, or that can never be: refused at once, and by name.
#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

Errc done_code(const Future& future, std::string_view level) {
  try {
    return future.done(level) ? Errc::ok : Errc::timed_out;  // timed_out: not yet
  } catch (const BadResult& refused) {
    return refused.error().code;
  }
}

TEST(Refusals, AnUnknownLevelIsRefusedWithThoseThereAreWhateverBecameOfTheFuture) {
  KeptRig rig;
  Store& store = rig.open();
  const Future kept = write(store, 1, kSize).value();
  ASSERT_TRUE(kept.wait("storage", Seconds(60)));
  rig.files().fail_at_rate(FileCall::write, 1, EIO);
  const Future failed = write(store, 2, kSize).value();
  ASSERT_FALSE(failed.wait("storage", Seconds(60)));
  rig.files().fail_at_rate(FileCall::write, 0, EIO);
  std::vector<std::byte> bytes(kSize);
  const Target target{0, bytes.data(), kSize};
  const Future restored = store.restore_async(1, std::span(&target, 1)).value();
  ASSERT_TRUE(restored.wait());
  for (const std::string_view level : {"", "tape", "storage "}) {
    for (const Future& future : {kept, failed, restored}) {
      EXPECT_EQ(code_of(future.wait(level)), Errc::invalid_argument) << level;
      EXPECT_EQ(done_code(future, level), Errc::invalid_argument) << level;
    }
    for (const Future& future : {kept, failed}) {
      const std::string message = future.wait(level).error().message;
      for (const char* name : {"device", "host", "local", "ephemeral", "process", "storage"}) {
        EXPECT_NE(message.find('"' + std::string(name) + '"'), std::string::npos) << message;
      }
    }
    EXPECT_EQ(code_of(store.wait(level)), Errc::invalid_argument) << level;
    EXPECT_EQ(code_of(store.wait(1, level)), Errc::invalid_argument) << level;
  }
  EXPECT_TRUE(kept.done());
  EXPECT_TRUE(kept.wait());
}

TEST(Refusals, WhoAsksForTheDurabilityOfWhatFailedIsToldWhy) {
  KeptRig rig;
  Store& store = rig.open();
  rig.files().fail_at_rate(FileCall::write, 1, EIO);
  const Future future = write(store, 1, kSize).value();
  while (done_code(future, "storage") == Errc::timed_out) std::this_thread::yield();  // as a program polls
  for (const char* level : {"storage", "process"}) {
    EXPECT_EQ(done_code(future, level), Errc::io_error);
    EXPECT_EQ(code_of(future.wait(level)), Errc::io_error);
  }
  ASSERT_TRUE(future.error());
  rig.files().fail_at_rate(FileCall::write, 0, EIO);
  const Result<void> again = store.wait("storage", Seconds(60));  // what met the fault may or may not be lost
  EXPECT_EQ(done_code(future, "storage"), code_of(again));
  EXPECT_EQ(future.error().has_value(), !again);
}

TEST(Refusals, AHistoryWhoseNameNoFileHoldsIsRefusedByItsFirstCheckpoint) {
  const std::string longest(64 * kKiB, 'n');
  KeptRig rig;
  Store& store = rig.open();
  History fits = store.history(longest), not_so = store.history(longest + "n");
  keep(fits, 1, 8);
  const Result<Future> written = write(not_so, 1, 8);
  ASSERT_EQ(code_of(written), Errc::invalid_argument);
  for (const char* part : {"65537", "65536", "nnnn"}) {
    EXPECT_NE(written.error().message.find(part), std::string::npos) << written.error().message;
  }
  EXPECT_LT(written.error().message.size(), 1000u);
  const Source region{0, nullptr, 8};
  EXPECT_EQ(code_of(not_so.reserve(1, std::span(&region, 1))), Errc::invalid_argument);
  EXPECT_TRUE(store.close()) << "nothing of it is pending";
  Store& again = rig.open();
  EXPECT_EQ(again.history(longest).versions(), std::vector<Version>{1});
}

TEST(Refusals, AClosedStoreHasNoListOfVersions) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  History view = store.history("view");
  ASSERT_TRUE(write(store, 1, 8));
  ASSERT_TRUE(store.close());
  for (const auto& versions : {store.versions(), view.versions(), store.history("new").versions()}) {
    EXPECT_EQ(code_of(versions), Errc::closed);
  }
}

TEST(Refusals, APathIsNotCutAtANul) {
  const std::string cut("/tmp/ebbtide\0-elsewhere", 23);
  Options options;
  for (const char* key : {"directory", "event_log"}) {
    const auto refused = set_option(options, key, cut);
    ASSERT_EQ(code_of(refused), Errc::invalid_argument) << key;
    EXPECT_NE(refused.error().message.find(key), std::string::npos);
    EXPECT_NE(refused.error().message.find("NUL"), std::string::npos) << refused.error().message;
    EXPECT_EQ(refused.error().message.find('\0'), std::string::npos) << "the message itself is not cut either";
  }
  for (const bool log : {false, true}) {
    Options given;
    (log ? given.event_log : given.directory) = std::filesystem::path(cut);
    const auto refused = with_environment(given);
    ASSERT_EQ(code_of(refused), Errc::invalid_argument);
    EXPECT_NE(refused.error().message.find(log ? "event_log" : "directory"), std::string::npos);
  }
}

TEST(Refusals, WhatCannotBeLentIsNamedAsItWasGiven) {
  Rig rig(Backend::threads);
  for (const std::uint64_t bytes :
       {std::uint64_t{5}, (std::uint64_t{64} << 20) - 1, std::uint64_t{1} << 63, UINT64_MAX}) {
    const auto refused = rig.store().lend(bytes);
    ASSERT_EQ(code_of(refused), Errc::invalid_argument) << bytes;
    for (const std::string& part : {"bytes=\"" + std::to_string(bytes) + '"', std::string("at least 67108864 bytes"),
                                    std::string("below 8 EiB")}) {
      EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
    }
    const Result<Store> opened = Store::open({.device = "cpu", .lend = bytes});
    ASSERT_EQ(code_of(opened), Errc::invalid_argument) << bytes;
    EXPECT_NE(opened.error().message.find("lend=\"" + std::to_string(bytes) + '"'), std::string::npos);
  }
  EXPECT_FALSE(rig.store().stats().leases) << "it lends nothing";
}

TEST(Refusals, ARegionThatIsNotThereIsTheCallersMistake) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  const Source region{7, nullptr, 8};
  Reservation reservation = store.reserve(1, std::span(&region, 1)).value();
  EXPECT_THROW(reservation.region(9), std::invalid_argument);
  EXPECT_EQ(reservation.region(7).size(), 8u);
  ASSERT_TRUE(reservation.commit());
  Loan loan = store.borrow(1).value();
  EXPECT_THROW(loan.region(9), std::invalid_argument);
}

}  // namespace
}  // namespace ebb::store
