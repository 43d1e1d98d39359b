// A store of two file tiers: a local directory, and a shared one below it.
#include <cerrno>
#include <cstdlib>

#include "shared_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

TEST(Shared, ADeletedLocalDirectoryIsFoundAndRestoredFromTheSharedOne) {
  SharedRig rig;
  for (Version version = 1; version <= 3; ++version) send(rig.open(), version);
  Store& store = rig.open();
  send(store, 4, 0);  // without bytes
  send(store, 5);
  rig.close();
  rig.delete_local();
  Store& elsewhere = rig.open();
  EXPECT_EQ(elsewhere.versions().value(), (std::vector<Version>{1, 2, 3, 4, 5}));
  EXPECT_EQ(elsewhere.latest().value(), 5);
  for (const Version version : {1, 2, 3, 5}) expect_restored(elsewhere, version, kSize);
  send(elsewhere, 6);
  expect_restored(elsewhere, 6, kSize);
}

TEST(Shared, BothDirectoriesAreFoundTogether) {
  SharedRig rig;
  for (Version version = 1; version <= 3; ++version) send(rig.open(), version);
  Store& store = rig.open();
  EXPECT_EQ(store.versions().value(), (std::vector<Version>{1, 2, 3}));
  for (Version version = 1; version <= 3; ++version) expect_restored(store, version, kSize);
  const Stats stats = store.stats();
  EXPECT_EQ(stats.tiers.back().name, "shared");
  EXPECT_EQ(stats.tiers.back().replicas, 3u);
  store.close().value();
}

TEST(Shared, WhatWasNotSentBeforeAKillIsSentAfterwards) {
  SharedRig rig;
  rig.setup().durability = Durability::storage;
  rig.setup().close_timeout = Seconds(60);
  Store& store = rig.open();
  rig.files().fail_writes(EIO);
  for (Version version = 1; version <= 3; ++version) keep(store, version);
  ASSERT_TRUE(write(store, 4, 0).value().wait("storage", Seconds(60)));  // for which the planner gives no command
  rig.close();
  rig.files().fail_writes(0);
  Store& next = rig.open();
  ASSERT_TRUE(next.wait("shared", Seconds(60)));
  rig.close();
  rig.delete_local();
  Store& elsewhere = rig.open();
  for (Version version = 1; version <= 4; ++version) expect_restored(elsewhere, version, version == 4 ? 0 : kSize);
}

TEST(Shared, ALocalDirectoryIsACacheOfTheSharedOne) {
  SharedRig rig({.local = 4 * kSize});
  Store& store = rig.open();
  for (Version version = 1; version <= 20; ++version) {
    const auto written = write(store, version, kSize, {.timeout = Seconds(60)});
    ASSERT_TRUE(written) << written.error().message;
  }
  ASSERT_TRUE(store.wait("shared", Seconds(60)));
  for (Version version = 20; version >= 1; --version) expect_restored(store, version, kSize, {.keep = true});
}

TEST(Shared, ADirectoryThatFailsHoldsUpOnlyThoseWhoWaitForIt) {
  for (const int error : {EIO, ENOSPC}) {
    SharedRig rig;
    Store& store = rig.open();
    rig.files().fail_writes(error);
    for (Version version = 1; version <= 5; ++version) keep(store, version);
    const auto sent = store.wait("shared", Seconds(60));
    EXPECT_EQ(code_of(sent), error == EIO ? Errc::io_error : Errc::no_space) << sent.error().message;
    for (Version version = 1; version <= 5; ++version) expect_restored(store, version, kSize);
    EXPECT_EQ(rig.kept().lines().starting("warning: the shared directory").size(), 1u);
    rig.files().fail_writes(0);
    ASSERT_TRUE(store.wait("shared", Seconds(60)));
    EXPECT_TRUE(store.close());
  }
}

TEST(Shared, AWaitForTheSharedDirectoryNamesTheDirectoryThatIsFull) {
  for (const bool of_shared : {false, true}) {
    SharedRig rig;
    rig.setup().durability = Durability::storage;
    Store& store = rig.open();
    if (of_shared)
      rig.files().fail_writes(ENOSPC);
    else
      rig.kept().files().fail_at_rate(doubles::FileCall::write, 1, ENOSPC);
    ASSERT_TRUE(write(store, 1, kSize, {.timeout = Seconds(60)}));
    const auto sent = store.wait("shared", Seconds(60));
    EXPECT_EQ(code_of(sent), Errc::no_space) << sent.error().message;
    const std::string local = rig.setup().directory.string(), shared = rig.shared().path().string();
    const std::string& said = sent.error().message;
    EXPECT_NE(said.find(of_shared ? shared : local), std::string::npos) << said;
    EXPECT_NE(said.find(of_shared ? "to shared" : "to local"), std::string::npos) << said;
    EXPECT_EQ(said.find(of_shared ? "to local" : "to shared"), std::string::npos) << said;
    rig.files().fail_writes(0);
    rig.kept().files().clear_faults();
    ASSERT_TRUE(store.wait("shared", Seconds(60)));
  }
}

TEST(Shared, ADirectoryThatDoesNotAnswerHoldsUpOnlyThoseWhoWaitForIt) {
  SharedRig rig;
  Store& store = rig.open();
  rig.files().hold();
  for (Version version = 1; version <= 10; ++version) keep(store, version);
  rig.files().await_held();
  for (Version version = 1; version <= 10; ++version) expect_restored(store, version, kSize, {.keep = true});
  EXPECT_EQ(code_of(store.wait("shared", Seconds(0.01))), Errc::timed_out);
  rig.files().release();
  ASSERT_TRUE(store.wait("shared", Seconds(60)));
}

/// A SharedRig of which a test moves the time.
class SilentRig : public SharedRig {
 public:
  SilentRig() { kept().rig().seams().clock = clock_; }
  ~SilentRig() {
    files().release();
    close();
  }
  /// The directory holds what is sent to it, and is found to do so.
  void fall_silent() {
    files().hold();
    keep(kept().rig().store(), 1);
    files().await_held();
    clock_->advance(2 * planner::kSilentAfter);
    while (kept().lines().starting("warning: the shared directory").empty()) kept().rig().engine().poke();
  }

 private:
  std::shared_ptr<doubles::ManualClock> clock_ = std::make_shared<doubles::ManualClock>(1);
};

TEST(Shared, ADirectoryThatDoesNotAnswerIsToldOnce) {
  SilentRig rig;
  Store& store = rig.open();
  rig.fall_silent();
  const std::string line = rig.kept().lines().starting("warning: the shared directory").front();
  EXPECT_NE(line.find(rig.shared().path().string()), std::string::npos) << line;
  EXPECT_NE(line.find("has not answered for 60 s"), std::string::npos) << line;
  for (Version version = 2; version <= 10; ++version) keep(store, version);
  for (Version version = 1; version <= 10; ++version) expect_restored(store, version, kSize, {.keep = true});
  EXPECT_EQ(rig.kept().lines().starting("warning: the shared directory").size(), 1u);
  rig.files().release();
  ASSERT_TRUE(store.wait("shared", {}));
}

// An engine that closed over files that do not answer is left where it is: hence a process of its own.
[[noreturn]] void close_over_silence(Durability level) {
  SilentRig& rig = *new SilentRig;
  rig.setup().durability = level;
  Store& store = rig.open();
  rig.fall_silent();
  keep(store, 2);
  const Result<void> closed = store.close();
  const bool promised = level == Durability::shared;
  EXPECT_EQ(closed ? Errc::ok : closed.error().code, promised ? Errc::timed_out : Errc::ok);
  const std::vector<std::string> lines = rig.kept().lines().starting("warning: closing");
  EXPECT_EQ(lines.size(), promised ? 0u : 1u);
  const std::string said = !closed ? closed.error().message : lines.empty() ? "" : lines.front();
  for (const std::string& named : {std::string("version 1 and 1 more"), rig.shared().path().string()})
    EXPECT_NE(said.find(named), std::string::npos) << said;
  EXPECT_EQ(code_of(store.close()), Errc::timed_out) << "and stays so";
  rig.kept().close();
  std::error_code ignored;  // its threads may be writing there
  for (const auto& path : {rig.setup().directory, rig.shared().path()}) std::filesystem::remove_all(path, ignored);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(SharedStuck, ClosingEndsThoughTheDirectoryDoesNotAnswer) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  for (const Durability level : {Durability::storage, Durability::shared})
    EXPECT_EXIT(close_over_silence(level), ::testing::ExitedWithCode(0), "");
}

TEST(Shared, WhatIsDamagedLocallyIsReadFromTheSharedDirectory) {
  SharedRig rig;
  send(rig.open(), 1);
  rig.close();
  const auto [segment, payload] = rig.kept().payload_of(1);
  OwnDirectory::flip(segment, payload + 5);
  Store& store = rig.open();
  EXPECT_EQ(store.latest().value(), 1);
  expect_restored(store, 1, kSize);
}

TEST(Shared, RetentionIsALevelsOwn) {
  SharedRig rig;
  rig.setup().machine.retention.keep_last = 2;
  rig.tier().retention = planner::Retention{.keep_last = 5};
  Store& store = rig.open();
  for (Version version = 1; version <= 12; ++version) send(store, version);
  // The local files may be durable after the shared ones.
  const std::vector<Version> kept{8, 9, 10, 11, 12};
  while (store.versions().value() != kept) std::this_thread::yield();
  store.close().value();
  Store& next = rig.open();
  EXPECT_EQ(next.versions().value(), (std::vector<Version>{8, 9, 10, 11, 12}));
  for (Version version = 8; version <= 12; ++version) expect_restored(next, version, kSize, {.keep = true});
}

TEST(Shared, OnlyMultiplesAreSent) {
  SharedRig rig;
  rig.tier().every = 5;
  rig.setup().machine.retention.keep_last = 3;
  Store& store = rig.open();
  for (Version version = 1; version <= 12; ++version) keep(store, version);
  ASSERT_TRUE(store.wait("shared", Seconds(60)));
  rig.close();
  rig.delete_local();
  Store& elsewhere = rig.open();
  EXPECT_EQ(elsewhere.versions().value(), (std::vector<Version>{5, 10}));
  expect_restored(elsewhere, 10, kSize);
}

TEST(Shared, AWaitSaysWhatFailedInTheDirectoryThatAloneKeepsIt) {
  for (const std::uint64_t every : {std::uint64_t{2}, kOnRequest}) {
    SharedRig rig;
    rig.tier().every = every;
    Store& store = rig.open();
    rig.kept().files().fail_nth(doubles::FileCall::sync, 1, EIO, doubles::FaultyFiles::kEver);
    ASSERT_TRUE(write(store, 3, kSize, {.timeout = Seconds(60)}));
    const auto waited = store.wait("shared", Seconds(60));
    EXPECT_EQ(code_of(waited), Errc::io_error);
    EXPECT_EQ(waited ? "" : waited.error().message.substr(0, 9), "version 3");
    EXPECT_EQ(code_of(store.close()), Errc::io_error);
  }
}

TEST(Shared, EachWayToWriteAVersionCanSendIt) {
  SharedRig rig;
  rig.tier().every = kOnRequest;
  rig.setup().machine.tiers.front().adopted = 4 * kSize;
  Store& store = rig.open();
  const CheckpointOptions sent{.timeout = Seconds(60), .to_shared = true};
  ASSERT_TRUE(write(store, 1, kSize, sent));
  auto reserved = store.reserve(2, std::vector<Source>{{0, nullptr, kSize}}, sent).value();
  const auto second = bytes_of(2, kSize);
  std::copy(second.begin(), second.end(), static_cast<std::byte*>(reserved.data()));
  ASSERT_TRUE(reserved.commit());
  CheckpointOptions adopts = sent;
  const auto third = std::make_shared<const std::vector<std::byte>>(bytes_of(3, kSize));
  adopts.adopt = third;
  ASSERT_TRUE(store.checkpoint(3, {{0, third->data(), kSize}}, adopts));
  keep(store, 4);
  ASSERT_TRUE(store.wait("shared", Seconds(60)));
  rig.close();
  rig.delete_local();
  Store& elsewhere = rig.open();
  EXPECT_EQ(elsewhere.versions().value(), (std::vector<Version>{1, 2, 3}));
  for (const Version version : {1, 2, 3}) expect_restored(elsewhere, version, kSize);
}

TEST(Shared, DirectoriesThatDoNotBelongTogetherAreRefused) {
  SharedRig rig, other;
  send(rig.open(), 1);
  send(other.open(), 1);
  rig.close(), other.close();
  const auto own = rig.setup().shared;
  rig.setup().shared = other.setup().shared;
  const auto mixed = rig.try_open();
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, Errc::invalid_argument);
  EXPECT_NE(mixed.error().message.find(own->directory.string()), std::string::npos) << mixed.error().message;
  rig.setup().shared = own;
  send(rig.open(), 2);
  rig.close();
  // Another local directory continues, and the first one then has what was before.
  OwnDirectory elsewhere;
  const auto first = rig.setup().directory;
  rig.setup().directory = elsewhere.path();
  send(rig.open(), 3);
  rig.close();
  rig.setup().directory = first;
  const auto late = rig.try_open();
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().message.find(elsewhere.path().string()), std::string::npos) << late.error().message;
}

TEST(Shared, EachDirectoryHasOneWriter) {
  SharedRig rig, other;
  Store& store = rig.open();
  send(store, 1);
  other.setup().shared = rig.setup().shared;
  EXPECT_EQ(code_of(other.try_open()), Errc::in_use);
}

TEST(Shared, AVersionThatWasWrittenAnewIsTheLocalOne) {
  SharedRig rig;
  Store& store = rig.open();
  send(store, 1);
  // The shared record of the first version 1 stays, as if its drop had been lost with the process.
  rig.close();
  std::filesystem::copy(rig.shared().path(), rig.shared().path().string() + ".old",
                        std::filesystem::copy_options::recursive);
  Store& second = rig.open();
  second.drop(1).value();
  send(second, 1, 2 * kSize);
  rig.close();
  std::filesystem::remove_all(rig.shared().path());
  std::filesystem::rename(rig.shared().path().string() + ".old", rig.shared().path());
  Store& third = rig.open();
  expect_restored(third, 1, 2 * kSize);
  ASSERT_TRUE(third.wait("shared", Seconds(60)));
  rig.close();
  rig.delete_local();
  expect_restored(rig.open(), 1, 2 * kSize);
}

}  // namespace
}  // namespace ebb::store
