// Groups of real stores, their members threads of this process.
#include "ebbtide/group.hpp"

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "threads.hpp"

namespace ebb {
namespace {

using testing_support::Ranks;

constexpr std::size_t kBytes = 64 << 10;

std::filesystem::path directory() {
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto at =
      std::filesystem::path(::testing::TempDir()) / (std::string("group_") + test->name() + std::to_string(::getpid()));
  std::filesystem::remove_all(at);
  return at;
}

Options small(const std::filesystem::path& at) {
  Options options;
  options.directory = at;
  options.device = "cpu";
  options.device_cache = 1 << 20;
  options.host_cache = 1 << 20;
  options.disk = 64 << 20;
  options.durability = Durability::process;
  options.log = [](std::string_view) {};
  return options;
}

std::vector<char> content(int rank, Version version) {
  std::vector<char> bytes(kBytes);
  std::mt19937_64 random(static_cast<std::uint64_t>(version * 100 + rank));
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(&bytes[at], &word, 8);
  }
  return bytes;
}

Result<Future> write(GroupHistory& history, int rank, Version version) {
  const auto bytes = content(rank, version);
  return history.checkpoint(version, {{0, bytes.data(), bytes.size()}});
}

void expect(GroupHistory& history, int rank, Version version) {
  std::vector<char> bytes(kBytes);
  ASSERT_TRUE(history.restore(version, {{0, bytes.data(), bytes.size()}}));
  EXPECT_EQ(bytes, content(rank, version)) << "rank " << rank << ", version " << version;
}

TEST(Group, GoesOnFromTheNewestVersionThatAllMembersHave) {
  const auto at = directory();
  Ranks::run(3, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), small(at)).value();
    EXPECT_EQ(group.resume().value(), std::nullopt);
    for (Version version = 0; version < 10; ++version) write(group, rank, version).value();
    group.wait("process").value();
    EXPECT_EQ(group.versions().value().size(), 10u);
    if (rank == 1)  // as if it had been killed earlier than the others
      for (const Version version : {8, 9}) group.mine().drop(version).value();
    group.close().value();
  });
  for (int start = 0; start < 2; ++start) {
    Ranks::run(3, [&](int rank, auto collective) {
      auto group = Group::open(std::move(collective), small(at)).value();
      EXPECT_EQ(group.latest().value(), 7 + start);
      EXPECT_EQ(group.latest(4).value(), 4);
      EXPECT_EQ(group.resume().value(), 7 + start);
      expect(group, rank, 7 + start);
      EXPECT_EQ(group.mine().versions().value().back(), 7 + start) << "what is newer is written again";
      write(group, rank, 8 + start).value();
      group.close().value();
    });
  }
}

TEST(Group, VersionsGoToTheSharedDirectoryOnRequest) {
  const auto at = directory();
  Options options = small(at / "local");
  options.durability = {};
  options.shared = at / "shared";
  options.shared_every = kOnRequest;
  options.keep_last = 2;
  options.keep_last_shared = 1;
  options.adopted = 1 << 20;
  Ranks::run(3, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), options).value();
    for (Version version = 0; version < 12; ++version) {
      const auto bytes = std::make_shared<const std::vector<char>>(content(rank, version));
      CheckpointOptions how{.to_shared = version % 4 == 1};
      if (version == 9) how.adopt = bytes;
      group.checkpoint(version, {{0, bytes->data(), bytes->size()}}, how).value();
    }
    group.close().value();
  });
  Ranks::run(3, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), options).value();
    EXPECT_EQ(group.latest().value(), 11) << "what stays on the local disks is complete there";
    EXPECT_EQ(group.latest(10).value(), 10);
    EXPECT_EQ(group.latest(9).value(), 9);
    expect(group, rank, 11);
    group.close().value();
  });
  std::filesystem::remove_all(at / "local" / "rank-1");
  for (const Version newest : {9, 12}) {
    Ranks::run(3, [&](int rank, auto collective) {
      auto group = Group::open(std::move(collective), options).value();
      EXPECT_EQ(group.resume().value(), newest) << "another node has what was sent";
      expect(group, rank, newest);
      for (Version version = newest + 1; version <= 12; ++version) {
        const auto bytes = content(rank, version);
        group.checkpoint(version, {{0, bytes.data(), bytes.size()}}, {.to_shared = version == 12}).value();
      }
      group.close().value();
    });
    std::filesystem::remove_all(at / "local");
  }
}

// Damage in one member takes all to the version before.
TEST(Group, GoesBackWhereOneMemberIsDamaged) {
  const auto at = directory();
  Ranks::run(2, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), small(at)).value();
    for (Version version = 0; version < 3; ++version) {
      write(group, rank, version).value();
      group.wait("process").value();
    }
    group.close().value();
  });
  const auto wanted = content(1, 2);
  bool found = false;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(at / "rank-1")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string all((std::istreambuf_iterator<char>(in)), {});
    const auto place = all.find(std::string(wanted.data(), 64));
    if (place == std::string::npos) continue;
    found = true;
    std::fstream out(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(place));
    out.put(static_cast<char>(~wanted[0]));
  }
  ASSERT_TRUE(found);
  Ranks::run(2, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), small(at)).value();
    EXPECT_EQ(group.resume().value(), 1);
    expect(group, rank, 1);
    write(group, rank, 2).value();
    group.close().value();
  });
}

// A member that is far ahead drops nothing that the others need.
TEST(Group, KeepsWhatAllMembersHaveDurable) {
  const auto at = directory();
  std::atomic<Version> ahead = 0;
  Ranks::run(2, [&](int rank, auto collective) {
    auto options = small(at);
    options.keep_last = 1;
    auto group = Group::open(std::move(collective), options).value();
    write(group, rank, 0).value();
    group.wait("process").value();
    if (rank == 0) {
      for (Version version = 1; version <= 20; ++version) write(group, rank, version).value().wait("process").value();
      EXPECT_EQ(group.mine().versions().value().front(), 0) << "the other has no newer one";
      ahead = 20;
    } else {
      while (ahead == 0) std::this_thread::yield();
      for (Version version = 1; version <= 20; ++version) write(group, rank, version).value();
    }
    group.wait("process").value();
    EXPECT_EQ(group.mine().versions().value(), std::vector<Version>{20});
    group.close().value();
  });
}

// With no room for what the others have not agreed on, a checkpoint waits for them; it does not fail.
TEST(Group, AFullDiskWaitsForTheOthers) {
  const auto at = directory();
  Ranks::run(2, [&](int rank, auto collective) {
    auto options = small(at);
    options.keep_last = 1;
    options.disk = 1 << 20;
    auto group = Group::open(std::move(collective), options).value();
    for (Version version = 0; version < 100; ++version) {
      if (rank == 1 && version % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const auto written =
          group.checkpoint(version, {{0, content(rank, version).data(), kBytes}}, {.timeout = Seconds(120)});
      ASSERT_TRUE(written) << written.error().message;
    }
    group.wait("process").value();
    expect(group, rank, 99);
    group.close().value();
  });
}

TEST(Group, AVersionThatOneMemberCannotStoreIsVoidInAll) {
  const auto at = directory();
  Ranks::run(3, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), small(at)).value();
    write(group, rank, 0).value();
    if (rank == 2) {
      const std::vector<char> huge(100 << 20);
      EXPECT_FALSE(group.checkpoint(1, {{0, huge.data(), huge.size()}}));
    } else if (const auto written = write(group, rank, 1); !written) {
      EXPECT_EQ(written.error().code, Errc::dropped) << written.error().message;
    }
    write(group, rank, 2).value();
    group.history("met").value();
    EXPECT_EQ(group.versions().value(), (std::vector<Version>{0, 2}));
    EXPECT_EQ(group.mine().versions().value(), (std::vector<Version>{0, 2}));
    group.close().value();
  });
}

// Also if it is durable: it does not count before its member has called the group again.
TEST(Group, AVersionThatOneMemberWithdrawsIsVoidInAll) {
  const auto at = directory();
  Ranks::run(2, [&](int rank, auto collective) {
    auto options = small(at);
    options.keep_last = 1;
    auto group = Group::open(std::move(collective), options).value();
    for (Version version = 0; version < 40; ++version) {
      const auto written = write(group, rank, version).value();
      if (version % 2 == 1 && rank == 1) {
        written.wait("process").value();
        group.withdraw(version).value();
      }
      group.wait("process").value();
      EXPECT_EQ(group.versions().value(), std::vector<Version>{version - version % 2});
    }
    EXPECT_EQ(group.withdraw(38).error().code, Errc::invalid_argument);
    group.close().value();
  });
}

TEST(Group, ReplacedVersionsGoOnceTheirSuccessorIsDurableInAll) {
  const auto at = directory();
  const auto there = [](GroupHistory& history) { return history.mine().versions().value(); };
  Ranks::run(3, [&](int rank, auto collective) {
    auto options = small(at);
    options.keep_last = 3;
    auto group = Group::open(std::move(collective), options).value();
    for (const Version version : {0, 1, 2}) write(group, rank, version).value();
    group.wait("process").value();
    group.replace(10, {1, 2, 7});  // 7 was never there
    write(group, rank, 10).value().wait("process").value();
    if (rank == 2) group.withdraw(10).value();
    group.wait("process").value();
    EXPECT_EQ(there(group), (std::vector<Version>{0, 1, 2})) << "a void version takes no other's place";
    if (rank == 2) write(group, rank, 11).value().wait("process").value();
    EXPECT_EQ(group.versions().value(), (std::vector<Version>{0, 1, 2})) << "all have passed the void one";
    EXPECT_EQ(there(group).size(), rank == 2 ? 4U : 3U);
    if (rank != 2) write(group, rank, 11).value();
    group.wait("process").value();
    EXPECT_EQ(there(group), (std::vector<Version>{0, 11})) << "those that go do not count for keep_last";
    group.close().value();
  });
}

TEST(Group, ASnapshotIsOfAllMembersOrOfNone) {
  const auto at = directory();
  Ranks::run(2, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), small(at)).value();
    auto field = content(rank, 0);
    group.store().protect(0, field.data(), field.size(), {.track = Track::everything}).value();
    EXPECT_TRUE(group.snapshot(0));
    if (rank == 1) group.store().unprotect_all().value();
    const auto refused = group.snapshot(1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    const bool names_it = refused.error().message.find("rank 1 of 2") != std::string::npos;
    EXPECT_EQ(names_it, rank == 0) << refused.error().message;
    if (rank == 1) group.store().protect(0, field.data(), field.size(), {.track = Track::everything}).value();
    EXPECT_TRUE(group.snapshot(2));
    group.wait("process").value();
    EXPECT_EQ(group.versions().value(), (std::vector<Version>{0, 2}));
    expect(group, rank, 0);
    group.close().value();
  });
}

TEST(Group, HistoriesAreAgreedOnOneByOne) {
  const auto at = directory();
  Ranks::run(2, [&](int rank, auto collective) {
    auto options = small(at);
    options.keep_last = 2;
    auto group = Group::open(std::move(collective), options).value();
    auto other = group.history("other").value();
    for (Version version = 0; version < 5; ++version) {
      write(group, rank, version).value();
      write(other, rank, version * 10).value();
    }
    other.wait("process").value();
    EXPECT_EQ(other.versions().value(), (std::vector<Version>{30, 40}));
    group.close().value();
  });
}

TEST(Group, OneThatOnlyReadsEndsAtOnce) {
  for (const bool shared : {false, true}) {
    const auto at = directory();
    auto options = small(at / "local");
    if (shared) options.shared = at / "shared", options.durability = Durability::shared;
    Ranks::run(2, [&](int rank, auto collective) {
      auto group = Group::open(std::move(collective), options).value();
      write(group, rank, 1).value();
      group.close().value();
    });
    options.readonly = true;
    Ranks::run(2, [&](int rank, auto collective) {
      auto group = Group::open(std::move(collective), options).value();
      EXPECT_EQ(group.latest().value(), 1);
      expect(group, rank, 1);
      group.close().value();
    });
  }
}

TEST(Group, AGroupOfAnotherSizeIsTold) {
  const auto at = directory();
  Ranks::run(2, [&](int, auto collective) { Group::open(std::move(collective), small(at)).value().close().value(); });
  Ranks::run(3, [&](int, auto collective) {
    const auto opened = Group::open(std::move(collective), small(at));
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().message.find("a group of 2 ranks, and this one has 3"), std::string::npos)
        << opened.error().message;
  });
}

TEST(Group, OneThatCannotOpenIsToldByAll) {
  const auto at = directory();
  Ranks::run(2, [&](int rank, auto collective) {
    auto options = small(at);
    if (rank == 1) options.device_cache = 1ull << 62;
    const auto opened = Group::open(std::move(collective), options);
    ASSERT_FALSE(opened);
    const bool names_it = opened.error().message.find("rank 1 of 2") != std::string::npos;
    EXPECT_EQ(names_it, rank == 0) << opened.error().message;
  });
}

TEST(Group, OptionsThatDifferAreNamedByAll) {
  const std::pair<const char*, void (*)(Options&)> all[] = {
      {"keep_last", [](Options& options) { options.keep_last = 3; }},
      {"keep_every", [](Options& options) { options.keep_every = 10; }},
      {"durability", [](Options& options) { options.durability = Durability::storage; }},
      {"shared", [](Options& options) { options.shared = *options.directory / "shared"; }},
      {"veloc_meta", [](Options& options) { options.veloc_meta = *options.directory / "meta"; }},
  };
  const auto at = directory();
  for (const auto& [name, change] : all) {
    Ranks::run(3, [&, name = name, change = change](int rank, auto collective) {
      auto options = small(at);
      options.keep_last = 2;
      if (std::string_view(name).starts_with("veloc")) options.shared = at / "shared", options.veloc_rank = 0;
      if (rank == 1) change(options);
      const auto opened = Group::open(std::move(collective), options);
      ASSERT_FALSE(opened);
      EXPECT_EQ(opened.error().code, Errc::invalid_argument);
      EXPECT_EQ(opened.error().message.find(name), 0U) << opened.error().message;
    });
    std::filesystem::remove_all(at);
  }
}

TEST(Group, VersionsAscend) {
  const auto at = directory();
  Ranks::run(1, [&](int rank, auto collective) {
    auto group = Group::open(std::move(collective), small(at)).value();
    write(group, rank, 3).value();
    EXPECT_EQ(write(group, rank, 3).error().code, Errc::invalid_argument);
    write(group, rank, 4).value();
    EXPECT_EQ(group.resume(3).value(), 3);
    write(group, rank, 4).value();
    group.close().value();
  });
}

}  // namespace
}  // namespace ebb
