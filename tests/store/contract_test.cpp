// What a Store promises, over every kind of machinery below it.
#include <algorithm>
#include <random>
#include <thread>

#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using ::testing::ValuesIn;

std::vector<Backend> backends() {
  std::vector<Backend> all = {Backend::uring, Backend::threads, Backend::fake, Backend::gpu};
  if (device::current_cuda_device()) all.push_back(Backend::cuda);
  return all;
}

class StoreContract : public ::testing::TestWithParam<Backend> {
 protected:
  Rig rig{GetParam()};
  Store& store = rig.store();
};

INSTANTIATE_TEST_SUITE_P(Over, StoreContract, ValuesIn(backends()), [](const auto& info) {
  return std::string(info.param == Backend::uring     ? "uring"
                     : info.param == Backend::threads ? "threads"
                     : info.param == Backend::gpu     ? "gpu"
                     : info.param == Backend::cuda    ? "cuda"
                                                      : "fake");
});

TEST_P(StoreContract, GivesBackWhatWasWritten) {
  ASSERT_TRUE(write(store, 1, kSize));
  expect_restored(store, 1, kSize);
}

TEST_P(StoreContract, AHistoryLargerThanTheCachesComesBackInReverse) {
  for (Version v = 0; v < 40; ++v) {
    ASSERT_TRUE(write(store, v, kSize + static_cast<std::size_t>(v) * 100));
    ASSERT_TRUE(store.hint_front(v));
  }
  for (Version v = 40; v-- > 0;) expect_restored(store, v, kSize + static_cast<std::size_t>(v) * 100);
  const Stats stats = store.stats();
  EXPECT_EQ(stats.restores, 40u);
  EXPECT_EQ(stats.checkpoints, 40u);
  EXPECT_EQ(stats.found_on.size(), 40u);
  EXPECT_TRUE(store.versions().value().empty());
}

TEST_P(StoreContract, AnyOrderWithoutHints) {
  std::mt19937_64 random(7);
  std::vector<Version> order;
  for (Version v = 0; v < 40; ++v) {
    ASSERT_TRUE(write(store, v, 1 + random() % (100 * kKiB)));
    order.push_back(v);
  }
  std::mt19937_64 again(7);
  std::vector<std::size_t> sizes;
  for (Version v = 0; v < 40; ++v) sizes.push_back(1 + again() % (100 * kKiB));
  std::shuffle(order.begin(), order.end(), random);
  for (const Version v : order) expect_restored(store, v, sizes[static_cast<std::size_t>(v)]);
}

TEST_P(StoreContract, RegionsOfAnySizeInAnyOrderOfTargets) {
  const auto a = bytes_of(1, 1000), b = bytes_of(2, 70000), c = bytes_of(3, 1);
  ASSERT_TRUE(store.checkpoint(5, {{7, a.data(), a.size()}, {3, b.data(), b.size()}, {9, nullptr, 0}, {4, c.data(), 1}},
                               {.metadata = "shape"}));
  const CheckpointInfo info = store.info(5).value();
  EXPECT_EQ(info.metadata, "shape");
  ASSERT_EQ(info.regions.size(), 4u);
  EXPECT_EQ(info.regions[1].id, 3u);
  EXPECT_EQ(info.regions[1].bytes, 70000u);
  for (const RegionInfo& region : info.regions) EXPECT_EQ(region.offset % 256, 0u);
  EXPECT_EQ(info.bytes, info.regions[3].offset + 1);
  std::vector<std::byte> a2(1000), b2(70000), c2(1);
  ASSERT_TRUE(
      store.restore(5, {{4, c2.data(), 1}, {3, b2.data(), b2.size()}, {7, a2.data(), a2.size()}, {9, nullptr, 0}}));
  EXPECT_TRUE(a == a2 && b == b2 && c == c2);
}

TEST_P(StoreContract, RegionsMayBeLeftOutIfSomeAreAskedFor) {
  constexpr std::size_t kSizes[] = {300 * kKiB, 0, 1, 100'001};
  const auto bytes = [&](Version v, std::size_t region) { return bytes_of(4 * v + Version(region), kSizes[region]); };
  for (Version v = 0; v < 20; ++v) {
    std::vector<std::vector<std::byte>> given;
    std::vector<Source> sources;
    for (std::uint32_t region = 0; region < 4; ++region) {
      given.push_back(bytes(v, region));
      sources.push_back({region, given.back().data(), given.back().size()});
    }
    ASSERT_TRUE(store.checkpoint(v, sources));
  }
  for (Version v = 0; v < 20; ++v) {
    const bool last = v >= 16;
    const auto chosen = static_cast<std::size_t>(v) % 16;  // as bits
    std::vector<std::vector<std::byte>> got(4);
    std::vector<Target> targets;
    for (std::uint32_t region = 4; region-- > 0;) {
      if ((chosen >> region & 1) == 0) continue;
      got[region].resize(kSizes[region]);
      targets.push_back({region, got[region].data(), got[region].size()});
    }
    ASSERT_TRUE(store.restore(v, targets, {.keep = !last, .some = true})) << v;
    for (const Target& one : targets)
      EXPECT_EQ(got[one.id], bytes(v, one.id)) << "version " << v << ", region " << one.id;
  }
  std::byte byte{};
  EXPECT_EQ(code_of(store.restore(1, {{4, &byte, 1}}, {.some = true})), Errc::size_mismatch);
  EXPECT_EQ(code_of(store.restore(1, {{2, nullptr, 1}}, {.some = true})), Errc::invalid_argument);
  EXPECT_EQ(code_of(store.restore(1, {{2, &byte, 1}}, {.keep = true})), Errc::size_mismatch);
}

TEST_P(StoreContract, TargetsThatDoNotMatchAreRefusedAndNothingIsConsumed) {
  ASSERT_TRUE(write(store, 1, 1000));
  std::vector<std::byte> target(2000);
  const auto smaller = store.restore(1, {{0, target.data(), 999}});
  EXPECT_EQ(code_of(smaller), Errc::size_mismatch);
  EXPECT_NE(smaller.error().message.find("region 0 (1000 bytes)"), std::string::npos);
  EXPECT_NE(smaller.error().message.find("999"), std::string::npos);
  EXPECT_EQ(code_of(store.restore(1, {{1, target.data(), 1000}})), Errc::size_mismatch);
  EXPECT_EQ(code_of(store.restore(1, {{0, target.data(), 1000}, {1, target.data(), 10}})), Errc::size_mismatch);
  EXPECT_EQ(code_of(store.restore(1, {{0, target.data(), 1000}, {0, target.data(), 1000}})), Errc::size_mismatch);
  EXPECT_EQ(code_of(store.restore(1, std::span<const Target>{})), Errc::size_mismatch);
  expect_restored(store, 1, 1000);
}

TEST_P(StoreContract, WrongSourcesAreRefused) {
  std::byte byte{};
  EXPECT_EQ(code_of(store.checkpoint(1, {{0, &byte, 1}, {0, &byte, 1}})), Errc::invalid_argument);
  EXPECT_EQ(code_of(store.checkpoint(1, {{0, nullptr, 1}})), Errc::invalid_argument);
  EXPECT_TRUE(write(store, 1, 1));
}

TEST_P(StoreContract, NothingAtAllIsACheckpointToo) {
  ASSERT_TRUE(store.checkpoint(1, std::span<const Source>{}, {.metadata = "empty"}));
  EXPECT_EQ(store.versions(), std::vector<Version>{1});
  EXPECT_TRUE(store.wait(1, "local"));
  EXPECT_TRUE(store.restore(1, std::span<const Target>{}));
  EXPECT_EQ(code_of(store.restore(1, std::span<const Target>{})), Errc::consumed);
}

TEST_P(StoreContract, RefusalsHaveNames) {
  ASSERT_TRUE(write(store, 1, kSize));
  const auto twice = write(store, 1, kSize);
  EXPECT_EQ(code_of(twice), Errc::version_exists);
  EXPECT_NE(twice.error().message.find("version 1"), std::string::npos);
  std::byte byte{};
  EXPECT_EQ(code_of(store.restore(2, {{0, &byte, 1}})), Errc::unknown_version);
  EXPECT_EQ(code_of(store.info(2)), Errc::unknown_version);
  expect_restored(store, 1, kSize);
  EXPECT_EQ(code_of(store.restore(1, {{0, &byte, 1}})), Errc::consumed);
  EXPECT_EQ(code_of(store.info(1)), Errc::consumed);
  EXPECT_TRUE(write(store, 1, kSize)) << "a consumed version may be written again";
  const auto large = write(store, 9, 9000 * kKiB);
  EXPECT_EQ(code_of(large), Errc::too_large);
  expect_restored(store, 1, kSize);
}

TEST_P(StoreContract, KeptOrHintedAgainItStays) {
  ASSERT_TRUE(write(store, 1, kSize));
  expect_restored(store, 1, kSize, {.keep = true});
  ASSERT_TRUE(store.hint({1, 1}));
  expect_restored(store, 1, kSize);
  EXPECT_EQ(store.versions(), std::vector<Version>{1});
  expect_restored(store, 1, kSize);
  EXPECT_TRUE(store.versions().value().empty());
}

TEST_P(StoreContract, LargerThanACacheGoesPastIt) {
  ASSERT_TRUE(write(store, 1, 300 * kKiB));   // more than the device holds
  ASSERT_TRUE(write(store, 2, 1000 * kKiB));  // more than the host holds
  expect_restored(store, 2, 1000 * kKiB);
  expect_restored(store, 1, 300 * kKiB);
}

TEST_P(StoreContract, DroppedIsForgotten) {
  for (Version v = 0; v < 20; ++v) ASSERT_TRUE(write(store, v, kSize));
  ASSERT_TRUE(store.drop(3));
  std::byte byte{};
  EXPECT_EQ(code_of(store.restore(3, {{0, &byte, 1}})), Errc::unknown_version);
  EXPECT_TRUE(write(store, 3, kSize));
  ASSERT_TRUE(store.drop());
  EXPECT_TRUE(store.versions().value().empty());
  ASSERT_TRUE(store.wait("device"));
  for (Version v = 0; v < 20; ++v) ASSERT_TRUE(write(store, v, kSize));
  expect_restored(store, 7, kSize);
}

TEST_P(StoreContract, HistoriesAreApart) {
  History adjoint = store.history("adjoint", Order::reverse);
  EXPECT_EQ(adjoint.name(), "adjoint");
  for (Version v = 0; v < 10; ++v) {
    ASSERT_TRUE(write(adjoint, v, kSize));
    ASSERT_TRUE(write(store, v, 2 * kSize));
  }
  EXPECT_EQ(store.histories().value(), (std::vector<std::string>{"", "adjoint"}));
  ASSERT_TRUE(store.drop());
  EXPECT_EQ(store.histories().value(), std::vector<std::string>{"adjoint"});
  EXPECT_EQ(adjoint.versions().value().size(), 10u);
  for (Version v = 10; v-- > 0;) expect_restored(adjoint, v, kSize);
  const auto gone = store.history("adjoint").restore(3, std::span<const Target>{});
  EXPECT_EQ(code_of(gone), Errc::consumed);
  EXPECT_NE(gone.error().message.find("adjoint"), std::string::npos);
}

TEST_P(StoreContract, ComputingInTheCache) {
  auto reserved = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}, {1, nullptr, 100}});
  ASSERT_TRUE(reserved);
  Reservation room = std::move(reserved).value();
  const auto bytes = bytes_of(1, kSize), more = bytes_of(2, 100);
  rig.put(room.region(0).data(), bytes.data(), kSize);
  rig.put(room.region(1).data(), more.data(), 100);
  EXPECT_EQ(room.region(0).data(), room.data());
  EXPECT_TRUE(store.versions().value().empty());
  EXPECT_EQ(code_of(write(store, 1, 10)), Errc::version_exists);
  EXPECT_THROW(room.region(2), std::logic_error);
  ASSERT_TRUE(room.commit());
  EXPECT_EQ(room.data(), nullptr);
  EXPECT_EQ(code_of(room.commit()), Errc::invalid_argument);
  std::vector<std::byte> back(kSize), more_back(100);
  ASSERT_TRUE(store.restore(1, {{0, back.data(), kSize}, {1, more_back.data(), 100}}));
  EXPECT_TRUE(back == bytes && more_back == more);
}

TEST_P(StoreContract, AnUncommittedReservationIsAsIfItHadNeverBeen) {
  {
    auto reserved = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}}).value();
  }
  std::byte byte{};
  EXPECT_EQ(code_of(store.restore(1, {{0, &byte, 1}})), Errc::unknown_version);
  ASSERT_TRUE(write(store, 1, kSize));
  expect_restored(store, 1, kSize);
}

TEST_P(StoreContract, AReservationHasAFutureAsACheckpointHas) {
  auto reserved = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}}).value();
  rig.put(reserved.data(), bytes_of(1, kSize).data(), kSize);
  const Future future = reserved.future();
  ASSERT_TRUE(reserved.commit());
  ASSERT_TRUE(future.wait("local"));
  EXPECT_TRUE(future.done("local"));
  EXPECT_FALSE(future.error());
  expect_restored(store, 1, kSize);
  EXPECT_EQ(code_of(reserved.future().wait()), Errc::invalid_argument);
}

TEST_P(StoreContract, AReservationWhoseVersionIsDroppedCannotBeCommitted) {
  auto reserved = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}}).value();
  ASSERT_TRUE(store.drop(1));
  rig.put(reserved.data(), bytes_of(1, kSize).data(), kSize);  // still ours
  EXPECT_EQ(code_of(reserved.commit()), Errc::dropped);
  ASSERT_TRUE(write(store, 1, kSize));
}

TEST_P(StoreContract, BorrowedIsTheReplicaItself) {
  for (Version v = 0; v < 20; ++v) ASSERT_TRUE(write(store, v, kSize));  // 0 is far down by now
  {
    auto borrowed = store.borrow(0);
    ASSERT_TRUE(borrowed) << borrowed.error().message;
    const Loan loan = std::move(borrowed).value();
    const auto bytes = bytes_of(0, kSize);
    EXPECT_EQ(rig.get(loan.data(), kSize), bytes);
    EXPECT_EQ(loan.region(0).size(), kSize);
  }
  std::byte byte{};
  EXPECT_EQ(code_of(store.restore(0, {{0, &byte, 1}})), Errc::consumed);
  Loan kept = store.borrow(1).value();
  ASSERT_TRUE(kept.release(true));
  EXPECT_EQ(code_of(kept.release()), Errc::invalid_argument);
  expect_restored(store, 1, kSize);
}

TEST_P(StoreContract, WhatIsBorrowedToBeKeptStaysHoweverItIsGivenBack) {
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(store.borrow(1, {.keep = true})) << "and destroyed";
  EXPECT_EQ(store.versions(), std::vector<Version>{1});
  ASSERT_TRUE(store.borrow(1, {.keep = true})->release());
  EXPECT_EQ(store.versions(), std::vector<Version>{1});
  ASSERT_TRUE(store.borrow(1));
  EXPECT_TRUE(store.versions().value().empty());
}

TEST_P(StoreContract, WhenAllIsBorrowedTheNextIsRefusedAndRestoresGoOn) {
  for (Version v = 0; v < 10; ++v) ASSERT_TRUE(write(store, v, kSize));
  std::vector<Loan> loans;
  for (Version v = 0; v < 4; ++v) loans.push_back(store.borrow(v).value());
  const auto refused = store.borrow(4);
  EXPECT_EQ(code_of(refused), Errc::no_space);
  EXPECT_NE(refused.error().message.find("device"), std::string::npos);
  expect_restored(store, 4, kSize);
  ASSERT_TRUE(write(store, 11, kSize));
  loans.clear();
  EXPECT_TRUE(store.borrow(5));
}

TEST_P(StoreContract, RestoredInTheBackground) {
  for (Version v = 0; v < 20; ++v) ASSERT_TRUE(write(store, v, kSize));
  std::vector<std::vector<std::byte>> targets(20, std::vector<std::byte>(kSize));
  std::vector<Future> futures;
  for (Version v = 0; v < 20; ++v) {
    const Target target{0, targets[static_cast<std::size_t>(v)].data(), kSize};
    futures.push_back(store.restore_async(v, std::span(&target, 1)).value());
  }
  for (Version v = 20; v-- > 0;) {
    ASSERT_TRUE(futures[static_cast<std::size_t>(v)].wait());
    EXPECT_TRUE(futures[static_cast<std::size_t>(v)].done());
    EXPECT_FALSE(futures[static_cast<std::size_t>(v)].error());
    EXPECT_TRUE(targets[static_cast<std::size_t>(v)] == bytes_of(v, kSize)) << v;
  }
  std::byte byte{};
  const Target target{0, &byte, 1};
  EXPECT_EQ(code_of(store.restore_async(0, std::span(&target, 1))), Errc::consumed);
  EXPECT_EQ(code_of(futures[0].wait("local")), Errc::invalid_argument);
}

TEST_P(StoreContract, WaitsForALevel) {
  const Future future = write(store, 1, kSize).value();
  EXPECT_TRUE(future.done());
  EXPECT_TRUE(future.wait());
  ASSERT_TRUE(future.wait("host"));
  EXPECT_TRUE(future.done("host"));
  ASSERT_TRUE(store.wait(1, "local"));
  EXPECT_TRUE(future.done("local"));
  ASSERT_TRUE(store.wait("local"));
  EXPECT_EQ(code_of(store.wait("tape")), Errc::invalid_argument);
  EXPECT_TRUE(store.wait("ephemeral"));
  EXPECT_TRUE(store.wait(1, "ephemeral"));
  EXPECT_TRUE(future.wait("ephemeral"));
  EXPECT_TRUE(future.done("ephemeral"));
  for (const std::string level : {"process", "node", "storage"}) {
    const auto refused = store.wait(level);
    ASSERT_EQ(code_of(refused), Errc::unsupported) << level;
    EXPECT_NE(refused.error().message.find(level), std::string::npos) << refused.error().message;
    EXPECT_EQ(code_of(future.wait(level)), Errc::unsupported) << level;
  }
  EXPECT_EQ(code_of(store.wait(2, "local")), Errc::unknown_version);
  expect_restored(store, 1, kSize);
  EXPECT_TRUE(future.done("local"));
  EXPECT_EQ(code_of(future.wait("local")), Errc::consumed);
}

TEST_P(StoreContract, HintsMayBeWrong) {
  ASSERT_TRUE(store.hint({5, 4, 100, 4, 3}));
  for (Version v = 0; v < 20; ++v) ASSERT_TRUE(write(store, v, kSize));
  ASSERT_TRUE(store.hint({7, 8, 9}, true));
  ASSERT_TRUE(store.unhint(std::vector<Version>{8, 55}));
  for (Version v = 0; v < 20; ++v) expect_restored(store, v, kSize);
  ASSERT_TRUE(store.unhint());
  ASSERT_TRUE(store.start_prefetch());
}

TEST_P(StoreContract, AfterCloseEverythingIsRefused) {
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(store.close());
  ASSERT_TRUE(store.close());
  std::byte byte{};
  const Target target{0, &byte, 1};
  EXPECT_EQ(code_of(write(store, 2, 10)), Errc::closed);
  EXPECT_EQ(code_of(store.restore(1, {{0, &byte, 1}})), Errc::closed);
  EXPECT_EQ(code_of(store.restore_async(1, std::span(&target, 1))), Errc::closed);
  EXPECT_EQ(code_of(store.reserve(3, {})), Errc::closed);
  EXPECT_EQ(code_of(store.borrow(1)), Errc::closed);
  EXPECT_EQ(code_of(store.wait("local")), Errc::closed);
  EXPECT_EQ(code_of(store.hint({1})), Errc::closed);
  EXPECT_EQ(code_of(store.drop(1)), Errc::closed);
  EXPECT_EQ(code_of(store.info(1)), Errc::closed);
  EXPECT_EQ(code_of(store.versions()), Errc::closed);
  EXPECT_EQ(store.stats().checkpoints, 1u);
}

TEST_P(StoreContract, LentMemoryOutlivesTheStore) {
  ASSERT_TRUE(write(store, 1, kSize));
  Loan loan = store.borrow(1).value();
  Reservation room = store.reserve(2, std::vector<Source>{{0, nullptr, kSize}}).value();
  History view = store.history("");
  rig.end();
  const auto bytes = bytes_of(1, kSize);
  EXPECT_EQ(rig.get(loan.data(), kSize), bytes);
  rig.put(room.data(), bytes_of(3, kSize).data(), kSize);
  EXPECT_EQ(code_of(room.commit()), Errc::closed);
  EXPECT_TRUE(loan.release());
  EXPECT_EQ(code_of(write(view, 3, 1)), Errc::closed);
}

TEST_P(StoreContract, SeveralThreadsUseOneStore) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      History mine = store.history("thread " + std::to_string(t), t % 2 == 0 ? Order::reverse : Order::none);
      for (int round = 0; round < 3; ++round) {
        for (Version v = 0; v < 12; ++v) {
          const auto written = write(mine, v, kSize / 2, {.timeout = Seconds(60)});
          ASSERT_TRUE(written) << written.error().message;
        }
        for (Version v = 12; v-- > 0;) expect_restored(mine, v, kSize / 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.stats().restores, 4u * 3 * 12);
}

TEST_P(StoreContract, TwoStoresInOneProcess) {
  Rig other_rig(GetParam());
  Store& other = other_rig.store();
  for (Version v = 0; v < 20; ++v) {
    ASSERT_TRUE(write(store, v, kSize));
    ASSERT_TRUE(write(other, v, 2 * kSize));
  }
  ASSERT_TRUE(store.close());
  for (Version v = 0; v < 20; ++v) expect_restored(other, v, 2 * kSize);
}

TEST_P(StoreContract, StatsTellWhatHappened) {
  for (Version v = 0; v < 30; ++v) ASSERT_TRUE(write(store, v, kSize));
  for (Version v = 30; v-- > 0;) expect_restored(store, v, kSize);
  const Stats stats = store.stats();
  ASSERT_EQ(stats.tiers.size(), 3u);
  EXPECT_EQ(stats.tiers[0].name, "device");
  EXPECT_EQ(stats.tiers[0].capacity, 256 * kKiB);
  EXPECT_EQ(stats.checkpoint_bytes, 30 * kSize);
  EXPECT_EQ(stats.restore_bytes, 30 * kSize);
  std::uint64_t hits = 0;
  for (const TierStats& tier : stats.tiers) hits += tier.hits;
  EXPECT_EQ(hits, 30u);
  EXPECT_EQ(stats.prefetch_distance.size(), 30u);
  std::uint64_t to_disk = 0;
  for (const LinkStats& link : stats.links) {
    if (link.name == "host>local") to_disk = link.bytes;
  }
  EXPECT_GE(to_disk, 30 * kSize - 768 * kKiB);
  EXPECT_GT(stats.blocked_s.at("copy"), 0);
  for (const char* cause : {"room", "transfer", "wait"}) EXPECT_GE(stats.blocked_s.at(cause), 0) << cause;
}

}  // namespace
}  // namespace ebb::store
