// Files of a persistent store: after a restart, a kill, damage, and by retention.
#include <csignal>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <thread>

#include "tests/store/child.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::files {
namespace {

using namespace store::testing_support;

constexpr std::size_t kBytes = 900 * kKiB;

class KeptFiles : public ::testing::Test {
 protected:
  Store open(Options options = {}) {
    options.log = lines_.sink();
    options.device = "cpu";
    options.directory = directory_.path();
    options.device_cache = 1024 * kKiB;
    options.host_cache = 2048 * kKiB;
    options.disk = 64 * 1024 * kKiB;
    options.durability = Durability::process;
    return Store::open(options).value();
  }
  static void write(Store& store, Version version, std::size_t bytes = kBytes) {
    File file = store.create_file("f", version).value();
    file.write(bytes_of(version, bytes)).value();
    file.close().value();
    file.wait("process").value();
  }
  static Result<bool> reads(Store& store, Version version, std::size_t bytes = kBytes) {
    auto file = store.open_file("f", version);
    if (!file) return file.error();
    std::vector<std::byte> found(bytes + 1);
    const auto count = file->read(found);
    if (!count) return count.error();
    found.resize(*count);
    return found == bytes_of(version, bytes);
  }
  static std::vector<Version> versions(Store& store) {
    std::vector<Version> found;
    for (const FileInfo& each : store.files("f").value()) found.push_back(each.version);
    return found;
  }
  OwnDirectory directory_;
  Lines lines_;
};

TEST_F(KeptFiles, WhatWasClosedOutlivesTheProcessAndWhatWasNotIsNoFile) {
  const int how = in_a_child([&] {
    Store store = open();
    write(store, 1);
    File half = store.create_file("f", 2).value();
    half.write(bytes_of(2, kBytes)).value();  // most pieces are stored
    store.history("f/.ebbtide-file/2/0").wait("process").value();
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  ASSERT_EQ(how, 128 + SIGKILL);
  {
    Store store = open();
    EXPECT_EQ(versions(store), std::vector<Version>{1});
    EXPECT_TRUE(reads(store, 1).value());
    EXPECT_EQ(reads(store, 2).error().code, Errc::unknown_version);
    EXPECT_FALSE(store.history("f/.ebbtide-file/2/0").versions().value().empty())
        << "or nothing was left to be dropped";
    write(store, 3);
    EXPECT_TRUE(store.history("f/.ebbtide-file/2/0").versions().value().empty());
    write(store, 2, kBytes / 2);
  }
  Options readonly;
  readonly.readonly = true;
  Store store = open(readonly);
  EXPECT_EQ(versions(store), (std::vector<Version>{1, 2, 3}));
  EXPECT_TRUE(reads(store, 1).value());
  EXPECT_TRUE(reads(store, 2, kBytes / 2).value());
  EXPECT_TRUE(reads(store, 3).value());
  EXPECT_EQ(store.create_file("f", 4).error().code, Errc::unsupported);
}

TEST_F(KeptFiles, OneThatLacksAPieceIsNotThere) {
  Store store = open();
  write(store, 1);
  write(store, 2);
  store.history("f/.ebbtide-file/2/1").drop().value();
  EXPECT_EQ(versions(store), std::vector<Version>{1});
  const auto opened = store.open_file("f", 2);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::unknown_version);
  EXPECT_NE(opened.error().message.find("piece 1 is missing"), std::string::npos) << opened.error().message;
  EXPECT_EQ(store.open_file("f").value().version(), 1);
  write(store, 2);
  EXPECT_TRUE(reads(store, 2).value());
}

TEST_F(KeptFiles, WhatIsLeftOfOneThatIsNotWholeGoesWithTheNextOfItsName) {
  Store store = open();
  write(store, 1);
  write(store, 2);
  store.history("f/.ebbtide-file/1/record").drop().value();
  write(store, 3);
  EXPECT_TRUE(store.history("f/.ebbtide-file/1/0").versions().value().empty());
  EXPECT_TRUE(store.history("f/.ebbtide-file/1/1").versions().value().empty());
  EXPECT_EQ(versions(store), (std::vector<Version>{2, 3}));
}

TEST_F(KeptFiles, ASmallerCacheReadsWhatALargeOneWrote) {
  {
    Store store = open();
    write(store, 1, 8 * kBytes);
  }
  Options small;
  small.readonly = true;
  small.directory = directory_.path();
  small.device = "cpu";
  small.device_cache = 64 * kKiB;
  small.host_cache = 128 * kKiB;
  Store store = Store::open(small).value();
  EXPECT_TRUE(reads(store, 1, 8 * kBytes).value());
}

TEST_F(KeptFiles, ADamagedByteIsNamedAndNeverReturned) {
  Version piece = 0;
  {
    Store store = open();
    write(store, 1);
    piece = store.history("f/.ebbtide-file/1/2").versions().value().front();
  }
  const auto [segment, offset] = directory_.payload_of(piece, "f/.ebbtide-file/1/2");
  ASSERT_GT(offset, 0u);
  OwnDirectory::flip(segment, offset + 100);
  Store store = open();
  const auto read = reads(store, 1);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::damaged) << read.error().message;
  EXPECT_NE(read.error().message.find("f/.ebbtide-file/1/2"), std::string::npos) << read.error().message;
}

// Pieces have histories of their own, so that no piece makes up for another.
TEST_F(KeptFiles, RetentionCountsWholeFilesThatAreSafe) {
  using Versions = std::vector<Version>;
  Options keeping;
  keeping.keep_last = 2;
  const auto await = [](Store& store, const Versions& wanted) {
    while (versions(store) != wanted) std::this_thread::yield();
    for (const Version v : wanted) EXPECT_TRUE(reads(store, v).value());
  };
  {
    Store store = open(keeping);
    for (Version v = 1; v <= 5; ++v) write(store, v);
    await(store, {4, 5});
  }
  Store store = open(keeping);
  EXPECT_EQ(versions(store), (Versions{4, 5}));
  write(store, 6);
  EXPECT_EQ(versions(store), (Versions{4, 5, 6})) << "those of another process were not read yet";
  write(store, 7);
  await(store, {6, 7});
}

// Against the rule, implemented naively.
TEST_F(KeptFiles, ARunThatBeginsBelowAnEarlierOneIsToldWhatToDo) {
  const Options kept{.keep_last = 2};
  const auto told = [&] { return lines_.starting("warning: " + directory_.path().string() + " has "); };
  for (const Version first : {9, 12}) {
    Store store = open(kept);
    for (Version v = first; v < first + 3; ++v) write(store, v);
    EXPECT_TRUE(told().empty()) << "it is the first, or goes on above";
  }
  {
    Store store = open(kept);
    write(store, 1);
    write(store, 2);
    ASSERT_EQ(told().size(), 1u) << "once";
    EXPECT_NE(told()[0].find("version 14 of file \"f\" of an earlier run, and this one writes version 1"),
              std::string::npos)
        << told()[0];
  }
  lines_.clear();
  {
    Store store = open(kept);
    for (const Version v : versions(store)) store.drop_file("f", v).value();
    write(store, 1);
  }
  write(*std::make_unique<Store>(open()), 0);
  EXPECT_TRUE(told().empty()) << "the earlier run's are gone; without keep_last";
}

TEST_F(KeptFiles, ACleanCloseLeavesWhatRetentionSaysHoweverFastFilesCome) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<Version>(random() % n); };
    Options keeping;
    keeping.keep_last = static_cast<std::uint64_t>(1 + below(3));
    keeping.keep_every = static_cast<std::uint64_t>(below(2) * 7);
    std::map<Version, int> held;  // the order of their writes
    {
      Store store = open(keeping);
      for (const FileInfo& old : store.files().value()) store.drop_file(old.name, old.version).value();
      Version next = 1;
      for (int n = 0; n < 60; ++n) {
        const Version v = below(8) ? next++ : below(static_cast<unsigned>(next));
        if (held.contains(v)) continue;
        if (auto file = store.create_file("f", v); file) {  // what goes back may be there still
          file->write(bytes_of(v, static_cast<std::size_t>(1 + below(6000)))).value();
          file->close().value();
          held[v] = n;
        }
        std::vector<Version> gone;
        for (const auto& [old, order] : held) {
          std::uint64_t newer = 0;
          bool since = false;
          for (auto at = held.upper_bound(old); at != held.end(); ++at) ++newer, since |= at->second > order;
          const bool every = *keeping.keep_every > 0 && old % static_cast<Version>(*keeping.keep_every) == 0;
          if (newer >= keeping.keep_last && since && !every) gone.push_back(old);
        }
        for (const Version old : gone) held.erase(old);
      }
    }
    std::vector<Version> wanted;
    for (const auto& [v, order] : held) wanted.push_back(v);
    Store store = open();
    EXPECT_EQ(versions(store), wanted) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ebb::files
