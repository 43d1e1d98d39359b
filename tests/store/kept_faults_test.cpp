// The disk fails a call: the writer gets a named error, what is older is as it was, and the store goes on.
#include <future>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FaultyFiles;
using doubles::FileCall;

constexpr std::size_t kLittle = 5000;

const char* name_of(FileCall call) {
  constexpr std::array names = {
      "open",     "close",     "read", "write",          "truncate",       "preallocate", "punch",
      "describe", "open_ring", "sync", "sync_directory", "make_directory", "rename",      "remove",
      "list",     "status",    "lock"};
  return names.at(static_cast<std::size_t>(call));
}

/// Versions 1 and 2, of which 2 was written anew, and a version of another history.
void write_older(KeptRig& rig) {
  Store& store = rig.open();
  History other = store.history("other");
  keep(store, 1, kLittle);
  keep(store, 2, kLittle);
  ASSERT_TRUE(store.drop(2));
  keep(store, 2, kLittle);
  keep(other, 1, 0);
  ASSERT_TRUE(store.close());
  rig.close();
}

void expect_older(Store& store, const std::string& where) {
  History other = store.history("other");
  for (Version v : {1, 2}) {
    std::vector<std::byte> bytes(kLittle);
    auto back = store.restore(v, {{0, bytes.data(), bytes.size()}}, {.keep = true});
    if (!back) {  // the fault may have met this very read; then it says so, and the next one is well
      EXPECT_EQ(back.error().code, Errc::io_error) << where << ": " << back.error().message;
      back = store.restore(v, {{0, bytes.data(), bytes.size()}}, {.keep = true});
    }
    EXPECT_TRUE(back) << where << ": " << back.error().message;
    EXPECT_TRUE(bytes == bytes_of(v, kLittle)) << where << ": version " << v;
  }
  EXPECT_EQ(other.versions(), std::vector<Version>{1}) << where;
}

// One life of a store in which one call fails, and the next life. Returns whether a call was there to fail.
bool live_through(FileCall call, std::uint64_t n, int error) {
  const std::string where = std::string(name_of(call)) + " " + std::to_string(n) + ", errno " + std::to_string(error);
  KeptRig rig;
  write_older(rig);
  rig.files().fail_nth(call, n, error);
  const std::uint64_t before = rig.files().count(call);
  std::vector<Version> durable;
  auto opened = Engine::open(rig.rig().seams(), rig.setup());
  const bool refused = !opened;
  if (refused) {
    EXPECT_NE(opened.error().message.find(rig.path().string()), std::string::npos)
        << where << ": " << opened.error().message;
  } else {
    Store store = Engine::store_over(Result<std::shared_ptr<Engine>>(opened).value());
    expect_older(store, where);
    for (Version v : {3, 4, 5, 6, 7}) {
      const auto written = write(store, v, v == 4 ? 0 : kLittle);
      EXPECT_TRUE(written) << where;
      const auto kept = Result<Future>(written).value().wait("storage", Seconds(60));
      const std::string said = kept ? "" : kept.error().message;
      EXPECT_EQ(kept ? 0 : said.find("version " + std::to_string(v)), 0u) << where << ": " << said;
      if (v == 3) {
        EXPECT_TRUE(store.drop(3)) << where;
      } else if (kept) {
        durable.push_back(v);
      }
    }
    // It goes on. What met the fault itself may be for ever undone, or be done when it is waited for again.
    EXPECT_GE(durable.size(), 3u) << where;
    expect_older(store, where);
    static_cast<void>(static_cast<bool>(store.close()));
  }
  const bool met = rig.files().count(call) >= before + n;
  rig.files().clear_faults();
  opened = Error{Errc::closed, ""};
  Store& next = rig.open();
  EXPECT_TRUE(rig.lines().starting("warning: ").empty()) << where << ": " << rig.lines().starting("warning: ").at(0);
  expect_older(next, where);
  for (const Version v : durable) {
    std::vector<std::byte> bytes(v == 4 ? 0 : kLittle);
    const auto back = v == 4 ? next.restore(v, std::vector<Target>{{0, bytes.data(), 0}})
                             : next.restore(v, {{0, bytes.data(), bytes.size()}});
    EXPECT_TRUE(back) << where << ": " << back.error().message;
    EXPECT_TRUE(bytes == bytes_of(v, bytes.size())) << where << ": version " << v;
  }
  EXPECT_GE(next.latest().value(), durable.empty() ? 2 : durable.back()) << where;
  keep(next, 8, kLittle);
  return met;
}

class KeptFaultsOf : public ::testing::TestWithParam<std::pair<FileCall, int>> {};

TEST_P(KeptFaultsOf, EachCallInTurnFails) {
  const auto [call, error] = GetParam();
  std::uint64_t n = 1;
  while (n < 60 && live_through(call, n, error) && !HasFailure()) ++n;
  EXPECT_LT(n, 60u) << "too many, or the fault is never met";
  EXPECT_GT(n, 1u) << "there was none";
}

INSTANTIATE_TEST_SUITE_P(, KeptFaultsOf,
                         ::testing::Values(std::pair(FileCall::open, EIO), std::pair(FileCall::write, ENOSPC),
                                           std::pair(FileCall::write, EIO), std::pair(FileCall::preallocate, ENOSPC),
                                           std::pair(FileCall::preallocate, EIO), std::pair(FileCall::sync, EIO),
                                           std::pair(FileCall::sync_directory, EIO), std::pair(FileCall::truncate, EIO),
                                           std::pair(FileCall::punch, EIO), std::pair(FileCall::rename, EIO),
                                           std::pair(FileCall::remove, EIO), std::pair(FileCall::list, EIO),
                                           std::pair(FileCall::status, EIO), std::pair(FileCall::lock, EIO),
                                           std::pair(FileCall::describe, EIO), std::pair(FileCall::close, EIO)),
                         [](const auto& info) {
                           return std::string(name_of(info.param.first)) +
                                  (info.param.second == EIO ? "_EIO" : "_ENOSPC");
                         });

TEST(KeptFaults, AFullDiskIsToldAndTheStoreGoesOnWhenThereIsRoom) {
  KeptRig rig;
  write_older(rig);
  Store& store = rig.open();
  rig.files().fail_nth(FileCall::preallocate, 1, ENOSPC, FaultyFiles::kEver);
  const Future future = write(store, 3, kLittle).value();
  const Future empty = write(store, 4, 0).value();
  const auto full = future.wait("storage", Seconds(60));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Errc::no_space) << full.error().message;
  for (const char* word : {"version 3", "local", "ENOSPC"}) {
    EXPECT_NE(full.error().message.find(word), std::string::npos) << word << ": " << full.error().message;
  }
  EXPECT_EQ(code_of(store.wait("storage", Seconds(60))), Errc::no_space);
  EXPECT_EQ(code_of(empty.wait("storage", Seconds(60))), Errc::no_space);
  expect_older(store, "full");
  expect_restored(store, 3, kLittle, {.keep = true});
  rig.files().clear_faults();
  EXPECT_EQ(code_of(store.wait(3, "storage", Seconds(60))), Errc::ok);
  EXPECT_EQ(code_of(future.wait("storage", Seconds(60))), Errc::ok) << "forgiven";
  EXPECT_FALSE(future.error());
  keep(store, 5, kLittle);
  rig.close();
  Store& next = rig.open();
  expect_older(next, "afterwards");
  expect_restored(next, 3, kLittle);
}

TEST(KeptFaults, AFailedSyncIsNeverTakenBack) {
  KeptRig rig;
  write_older(rig);
  Store& store = rig.open();
  keep(store, 3, kLittle);
  rig.files().fail_nth(FileCall::sync, 1, EIO);
  const Future future = write(store, 4, kLittle).value();
  for (int again = 0; again < 2; ++again) {
    const auto failed = future.wait("storage", Seconds(60));
    ASSERT_FALSE(failed) << "the second sync of what the first has lost would be a lie";
    EXPECT_EQ(failed.error().code, Errc::io_error);
    for (const char* word : {"version 4", "sync", "EIO"}) {
      EXPECT_NE(failed.error().message.find(word), std::string::npos) << word << ": " << failed.error().message;
    }
    EXPECT_EQ(code_of(store.wait("storage", Seconds(60))), Errc::io_error);
  }
  expect_restored(store, 4, kLittle, {.keep = true});
  keep(store, 5, kLittle);
  const auto closed = store.close();
  ASSERT_FALSE(closed);
  EXPECT_NE(closed.error().message.find("version 4"), std::string::npos) << closed.error().message;
  rig.close();
  Store& next = rig.open();
  expect_older(next, "afterwards");
  expect_restored(next, 3, kLittle);
  expect_restored(next, 5, kLittle);
}

TEST(KeptFaults, CloseDrains) {
  KeptRig rig;
  Store& store = rig.open();
  History other = store.history("other");
  rig.files().hold(FileCall::write);
  for (Version v = 0; v < 5; ++v) ASSERT_TRUE(write(store, v, kSize));
  ASSERT_TRUE(write(other, 1, kSize));
  auto closing = std::async(std::launch::async, [&] { return code_of(store.close()); });
  rig.files().await_held(FileCall::write, 1);
  EXPECT_EQ(closing.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  while (code_of(write(store, 9, kLittle)) != Errc::closed) ASSERT_TRUE(store.drop(9));
  rig.files().release(FileCall::write);
  EXPECT_EQ(closing.get(), Errc::ok);
  Store& next = rig.open();
  EXPECT_EQ(next.versions(), (std::vector<Version>{0, 1, 2, 3, 4}));
  EXPECT_EQ(next.history("other").versions(), std::vector<Version>{1});
  for (Version v = 0; v < 5; ++v) expect_restored(next, v, kSize);
}

TEST(KeptFaults, CloseDrainsTheOthersWhenOneCannotBeKept) {
  KeptRig rig;
  Store& store = rig.open();
  keep(store, 1, kLittle);
  rig.files().fail_nth(FileCall::sync, 1, EIO);
  EXPECT_FALSE(write(store, 2, kLittle).value().wait("storage", Seconds(60)));
  History other = store.history("other");
  ASSERT_TRUE(write(store, 3, kLittle));
  ASSERT_TRUE(write(other, 1, kLittle));
  EXPECT_EQ(code_of(store.close()), Errc::io_error);
  Store& next = rig.open();
  EXPECT_EQ(next.versions(), (std::vector<Version>{1, 3}));
  EXPECT_EQ(next.history("other").versions(), std::vector<Version>{1});
}

TEST(KeptFaults, WaitsEndInTheirTime) {
  KeptRig rig;
  Store& store = rig.open();
  rig.files().hold(FileCall::write);
  const Future future = write(store, 2, kLittle).value();
  EXPECT_FALSE(future.done("storage"));
  for (const Seconds limit : {Seconds(0), Seconds(0.01)}) {
    for (const auto& late :
         {future.wait("storage", limit), store.wait("storage", limit), store.wait(2, "process", limit)}) {
      ASSERT_FALSE(late);
      EXPECT_EQ(late.error().code, Errc::timed_out);
      EXPECT_NE(late.error().message.find("version 2"), std::string::npos) << late.error().message;
    }
  }
  int asked = 0;
  EXPECT_EQ(code_of(store.wait("storage", {}, [&] { return ++asked == 2; })), Errc::timed_out);
  rig.files().release(FileCall::write);
  EXPECT_TRUE(store.wait("storage", Seconds(60)));
  EXPECT_TRUE(future.done("storage"));
  EXPECT_TRUE(store.wait("storage", Seconds(0))) << "nothing is waited for";
}

}  // namespace
}  // namespace ebb::store
