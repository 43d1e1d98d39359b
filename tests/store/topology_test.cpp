// A store over other machines than the usual one, and over memory that is lent, recalled and lost: real threads and
// files, doubles of devices that poison what may not be read, and every byte compared.
#include <array>
#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <limits>
#include <thread>

#include "cache/tier_memory.hpp"
#include "store/borrower.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using planner::Medium;
using planner::NodeIndex;

constexpr int kVersions = 40;
constexpr Seconds kForever{std::numeric_limits<double>::infinity()};

std::size_t size_of(Version version) { return (4 + static_cast<std::size_t>(version) * 7 % 29) * kKiB; }

/// Histories written by threads of their own, and restored in another order than they were written.
void write_and_restore(Store& store) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      History history = store.history("thread " + std::to_string(t), t == 0 ? Order::reverse : Order::none);
      const Version first = t * 1000;
      for (Version v = first; v < first + kVersions; ++v) ASSERT_TRUE(write(history, v, size_of(v)));
      for (Version v = first; v < first + kVersions; v += 3) expect_restored(history, v, size_of(v), {.keep = true});
      for (Version v = first + kVersions; v-- > first;) expect_restored(history, v, size_of(v));
    });
  }
  for (auto& thread : threads) thread.join();
}

std::uint64_t bytes_over(const Store& store, const std::string& link) {
  for (const auto& use : store.stats().links)
    if (use.name == link) return use.bytes;
  ADD_FAILURE() << "there is no link " << link;
  return 0;
}

class OtherMachines : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  Rig rig_{Backend::gpu, {.device = 0, .host = 0, .disk = 0}, GetParam()};
  planner::Machine& machine_ = rig_.setup().machine;

  void add(const char* name, Medium medium, std::size_t kib) {
    machine_.tiers.push_back({name, medium, kib * kKiB, 4096});
  }
  void connected() {
    planner::connect(machine_, 4);
    for (auto& link : machine_.links) link.chunk = 16 * kKiB;
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, OtherMachines, ::testing::Range<std::uint64_t>(1, 5));

TEST_P(OtherMachines, TwoHostTiers) {
  add("device", Medium::device, 128);
  add("host", Medium::host, 128);
  add("far", Medium::host, 256);
  add("local", Medium::file, 8192);
  connected();
  write_and_restore(rig_.store());
  EXPECT_GT(bytes_over(rig_.store(), "host>host"), 0u);
}

// The second device has streams of its own for what it exchanges with the host; the application's streams never meet
// them.
TEST_P(OtherMachines, TwoDevices) {
  add("device", Medium::device, 128);
  add("peer", Medium::device, 128);
  add("host", Medium::host, 128);
  add("local", Medium::file, 8192);
  connected();
  const auto node_of = [&](std::size_t tier) { return machine_.tiers[tier].node; };
  std::erase_if(machine_.links, [&](const planner::LinkSpec& link) {
    return (link.from == planner::kApplication && link.to == node_of(1)) ||
           (link.to == planner::kApplication && link.from == node_of(1));
  });
  machine_.nodes[static_cast<std::size_t>(node_of(0))].staging = 4;  // the application's way to the peer
  const auto peer =
      std::make_shared<doubles::FakeDevice>(doubles::FakeDevice::Options{.seed = GetParam() + 100, .discrete = true});
  rig_.seams().devices[node_of(1)] = peer;
  write_and_restore(rig_.store());
  EXPECT_GT(bytes_over(rig_.store(), "device>peer"), 0u);
  EXPECT_GT(peer->copies(), 0u) << "its own streams move what it exchanges with the host";
  rig_.end();
  EXPECT_EQ(peer->violations(), std::vector<std::string>{});
  EXPECT_EQ(peer->allocated(), 0u);
}

// A lender's device copies between its memory and the host: checkpoints that wait there, and chunks that pass a ring
// there, while the memory is recalled, given other contents, and lent again. What is relayed meanwhile depends on which
// thread is quicker. Once the memory stays, a checkpoint that is whole at once, and larger than what is lent, has more
// chunks than its own link takes: some pass the ring.
TEST_P(OtherMachines, ALenderRelays) {
  constexpr std::size_t kSegment = 256 * kKiB, kUsable = kSegment - 2 * 2 * 4 * kKiB;
  constexpr planner::TierIndex kPeer = 1;
  add("device", Medium::device, kSegment);
  add("peer", Medium::device, 0);
  add("host", Medium::host, 4096);
  connected();
  for (planner::LinkSpec& link : machine_.links) link.chunk = 4 * kKiB;
  machine_.nodes[static_cast<std::size_t>(machine_.tiers[kPeer].node)].staging = 2;
  const auto owner =
      std::make_shared<doubles::FakeDevice>(doubles::FakeDevice::Options{.seed = GetParam() + 100, .discrete = true});
  Leases& leases = rig_.engine().leases();
  auto memory = cache::direct_host_memory(*rig_.seams().device, kSegment).value();
  std::byte* const lent = memory->data();
  const Leases::Terms terms{.lender = 7, .owner = std::shared_ptr<device::Device>(owner)};
  ASSERT_TRUE(leases.add_owner(owner));
  ASSERT_EQ(leases.lend(kPeer, std::move(memory), terms).value(), 1u);
  EXPECT_EQ(rig_.store().stats().tiers[kPeer].capacity, kUsable) << "a ring is at its end";
  std::atomic<bool> done{false};
  std::thread lender([&] {
    const std::vector<std::byte> other(kSegment, std::byte{0xD1});
    while (!done) {
      ASSERT_TRUE(leases.recall(kPeer, 1, 0, Seconds{60}));
      ASSERT_TRUE(leases.await_returned(kPeer, 1, kForever));
      rig_.put(lent, other.data(), other.size());
      ASSERT_TRUE(leases.extend(kPeer, 1, kSegment, terms));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  write_and_restore(rig_.store());
  done = true;
  lender.join();

  EXPECT_EQ(rig_.store().stats().tiers[kPeer].capacity, kUsable) << "a ring is at its end again";
  const auto relayed = [&] { return rig_.store().stats().relayed; };
  const std::uint64_t relayed_before = relayed(), copies_before = owner->copies();
  const std::uint64_t bytes_before = bytes_over(rig_.store(), "peer>host");
  constexpr Version kLarge = 5000;
  const std::vector<std::byte> bytes = bytes_of(kLarge, kUsable + 4 * kKiB);
  Reservation room = rig_.store().reserve(kLarge, std::vector<Source>{{0, nullptr, bytes.size()}}).value();
  rig_.put(room.data(), bytes.data(), bytes.size());
  ASSERT_TRUE(room.commit());
  ASSERT_TRUE(rig_.store().wait(kLarge, "host"));
  EXPECT_GT(relayed(), relayed_before);
  EXPECT_GT(owner->copies(), copies_before);
  EXPECT_GT(bytes_over(rig_.store(), "peer>host"), bytes_before);
  expect_restored(rig_.store(), kLarge, bytes.size());
  rig_.end();
  EXPECT_EQ(owner->violations(), std::vector<std::string>{});
}

TEST_P(OtherMachines, AnApplicationIsNotJoinedWithAnotherDeviceThanItsOwn) {
  add("device", Medium::device, 128);
  add("peer", Medium::device, 128);
  connected();
  rig_.seams().devices[machine_.tiers[1].node] = std::make_shared<doubles::FakeDevice>();
  const auto refused = Engine::open(rig_.seams(), rig_.setup());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("app>peer"), std::string::npos) << refused.error().message;
}

// Two lenders relay, each through a ring that is all of its memory, and one of them takes its memory back meanwhile,
// again and again. Once both stay, a checkpoint that is whole at once fills its own link first, and then a slot of each
// ring.
TEST_P(OtherMachines, TwoLendersRelay) {
  constexpr std::size_t kRing = 2 * 2 * 4 * kKiB;
  constexpr planner::TierIndex kPeer = 1;
  add("device", Medium::device, 256);
  add("peer", Medium::device, 0);
  add("host", Medium::host, 4096);
  connected();
  for (planner::LinkSpec& link : machine_.links) link.chunk = 4 * kKiB;
  machine_.nodes[static_cast<std::size_t>(machine_.tiers[kPeer].node)].staging = 2;
  Leases& leases = rig_.engine().leases();
  std::vector<std::shared_ptr<doubles::FakeDevice>> owners;
  std::vector<Leases::Terms> terms;
  std::vector<std::byte*> lent;
  for (planner::SegmentId lender = 1; lender <= 2; ++lender) {
    owners.push_back(std::make_shared<doubles::FakeDevice>(
        doubles::FakeDevice::Options{.seed = GetParam() + 100 * lender, .discrete = true}));
    terms.push_back({.lender = lender, .owner = std::shared_ptr<device::Device>(owners.back())});
    auto memory = cache::direct_host_memory(*rig_.seams().device, kRing).value();
    lent.push_back(memory->data());
    ASSERT_TRUE(leases.add_owner(owners.back()));
    ASSERT_EQ(leases.lend(kPeer, std::move(memory), terms.back()).value(), lender);
  }
  EXPECT_EQ(rig_.store().stats().tiers[kPeer].capacity, 0u) << "rings are all that there is";
  std::atomic<bool> done{false};
  std::thread taker([&] {
    const std::vector<std::byte> other(kRing, std::byte{0xD1});
    while (!done) {
      ASSERT_TRUE(leases.recall(kPeer, 2, 0, Seconds{60}));
      ASSERT_TRUE(leases.await_returned(kPeer, 2, kForever));
      rig_.put(lent[1], other.data(), other.size());
      ASSERT_TRUE(leases.extend(kPeer, 2, kRing, terms[1]));
      std::this_thread::yield();
    }
  });
  write_and_restore(rig_.store());
  done = true;
  taker.join();

  const std::array before{owners[0]->copies(), owners[1]->copies()};
  constexpr Version kLarge = 5000;
  const std::vector<std::byte> bytes = bytes_of(kLarge, 128 * kKiB);
  Reservation room = rig_.store().reserve(kLarge, std::vector<Source>{{0, nullptr, bytes.size()}}).value();
  rig_.put(room.data(), bytes.data(), bytes.size());
  ASSERT_TRUE(room.commit());
  ASSERT_TRUE(rig_.store().wait(kLarge, "host"));
  for (const std::size_t lender : {0u, 1u}) EXPECT_GT(owners[lender]->copies(), before[lender]) << lender;
  expect_restored(rig_.store(), kLarge, bytes.size());
  rig_.end();
  for (const auto& owner : owners) EXPECT_EQ(owner->violations(), std::vector<std::string>{});
}

// Memory is pinned for what lenders may want back, before they do.
TEST_P(OtherMachines, TheHostCacheIsPinnedForWhatIsBorrowed) {
  constexpr std::size_t kLent = 48 << 20;
  constexpr planner::TierIndex kPeer = 1, kHostTier = 2;
  add("device", Medium::device, 128);
  add("peer", Medium::device, 0);
  add("host", Medium::host, 80 << 10);
  connected();
  Leases& leases = rig_.engine().leases();
  const auto pinned = [&] { return rig_.store().stats().tiers[kHostTier].arena.pinned; };
  auto memory = cache::direct_host_memory(*rig_.seams().device, kLent).value();
  ASSERT_TRUE(leases.lend(kPeer, std::move(memory), {.lender = 7}));
  while (pinned() < kLent) std::this_thread::yield();
}

// The disk is behind a second staging ring: device > host > far > disk.
TEST_P(OtherMachines, ARouteOfThreeHops) {
  add("device", Medium::device, 128);
  add("local", Medium::file, 8192);
  connected();
  const NodeIndex device = machine_.tiers[0].node, disk = machine_.tiers[1].node;
  const auto far = static_cast<NodeIndex>(machine_.nodes.size());
  machine_.nodes.push_back({"far", 4});
  for (planner::LinkSpec& link : machine_.links) {
    if (link.from == disk) link.from = far;
    if (link.to == disk) link.to = far;
    if (link.from == far || link.to == far) link.resources.clear();
  }
  planner::LinkSpec link = machine_.links.front();
  link.resources = {0};
  link.name = "far>disk", link.from = far, link.to = disk;
  machine_.links.push_back(link);
  link.name = "disk>far", link.from = disk, link.to = far;
  machine_.links.push_back(link);
  ASSERT_EQ(planner::route(machine_, device, disk).hops, 3);
  write_and_restore(rig_.store());
  EXPECT_GT(bytes_over(rig_.store(), "far>disk"), 0u);
  EXPECT_GT(bytes_over(rig_.store(), "disk>far"), 0u);
}

class LentMemory : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static constexpr planner::TierIndex kHostTier = 1;
  static constexpr std::size_t kSegment = 96 * kKiB;
  Rig rig_{Backend::gpu, {.device = 96 * kKiB, .host = kSegment}, GetParam()};
  std::vector<std::byte*> lent_;

  void lend() {
    auto memory = cache::direct_host_memory(*rig_.seams().device, kSegment).value();
    lent_.push_back(memory->data());
    ASSERT_EQ(rig_.engine().leases().lend(kHostTier, std::move(memory)).value(), lent_.size());
  }
  // As its lender may, once it has it back.
  void scribble(std::size_t segment) {
    const std::vector<std::byte> other(kSegment, std::byte{0xD1});
    rig_.put(lent_.at(segment - 1), other.data(), other.size());
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, LentMemory, ::testing::Range<std::uint64_t>(1, 9));

// A tier of four segments; one is recalled, given other contents, and lent again, over and over, and one is lost. What
// is restored is right, or lost by name.
TEST_P(LentMemory, FourSegmentsOfWhichOneIsRecalledAndOneLostUnderLoad) {
  Store& store = rig_.store();
  for (int s = 0; s < 3; ++s) lend();
  EXPECT_EQ(store.stats().tiers[1].capacity, 4 * kSegment);
  std::atomic<int> working{2}, lost{0}, right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      History history = store.history("thread " + std::to_string(t), t == 0 ? Order::reverse : Order::none);
      for (int round = 0; round < 4; ++round) {
        const Version first = t * 10000 + round * 100;
        for (Version v = first; v < first + kVersions; ++v) ASSERT_TRUE(write(history, v, size_of(v)));
        for (Version v = first + kVersions; v-- > first;) {
          std::vector<std::byte> bytes(size_of(v), std::byte{0x55});
          const auto restored = history.restore(v, {{0, bytes.data(), bytes.size()}});
          if (restored) {
            ASSERT_TRUE(bytes == bytes_of(v, size_of(v))) << "version " << v << " came back with other bytes";
            ++right;
          } else {
            ASSERT_EQ(restored.error().code, Errc::lost) << restored.error().message;
            ASSERT_NE(restored.error().message.find("segment 1 of tier host"), std::string::npos)
                << restored.error().message;
            ++lost;
          }
        }
      }
      --working;
    });
  }
  int recalls = 0;
  for (bool gone = false; working > 0; ++recalls) {
    ASSERT_TRUE(rig_.engine().leases().recall(kHostTier, 2, recalls % 2 * kSegment / 2, Seconds{60}));
    ASSERT_TRUE(rig_.engine().leases().await_returned(kHostTier, 2, Seconds{60}));
    if (recalls % 2 == 0) scribble(2);
    if (recalls == 3 && !std::exchange(gone, true)) {
      rig_.engine().leases().lose(kHostTier, 1);
      scribble(1);
      EXPECT_FALSE(rig_.engine().leases().recall(kHostTier, 1, 0));
    }
    ASSERT_TRUE(rig_.engine().leases().extend(kHostTier, 2, kSegment));
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lost + right, 2 * 4 * kVersions);
  EXPECT_GT(right, 0);
  EXPECT_GT(recalls, 3);
  EXPECT_FALSE(rig_.engine().leases().extend(kHostTier, 1, kSegment)) << "what was lost is never lent again";
  EXPECT_EQ(store.stats().tiers[1].capacity, 3 * kSegment);
}

// Without a file, what was only in the segment is gone, and every later call says so and why.
TEST(LostMemory, IsNamedByEveryLaterCall) {
  Rig rig(Backend::gpu, {.device = 0, .host = 64 * kKiB, .disk = 0});
  Store& store = rig.store();
  auto memory = cache::direct_host_memory(*rig.seams().device, 64 * kKiB).value();
  ASSERT_EQ(rig.engine().leases().lend(0, std::move(memory)).value(), 1u);
  for (Version v = 0; v < 2; ++v) ASSERT_TRUE(write(store, v, 64 * kKiB));
  auto loan = store.borrow(1, {.keep = true});
  ASSERT_TRUE(loan) << loan.error().message;
  rig.engine().leases().lose(0, 1);
  const auto released = loan->release(true);
  ASSERT_FALSE(released);
  EXPECT_EQ(released.error().code, Errc::lost);
  EXPECT_NE(released.error().message.find("while it was borrowed"), std::string::npos) << released.error().message;
  std::vector<std::byte> bytes(64 * kKiB);
  for (int again = 0; again < 2; ++again) {
    const auto restored = store.restore(1, {{0, bytes.data(), bytes.size()}});
    ASSERT_FALSE(restored);
    EXPECT_EQ(restored.error().code, Errc::lost);
    EXPECT_NE(restored.error().message.find("segment 1 of tier host"), std::string::npos) << restored.error().message;
  }
  expect_restored(store, 0, 64 * kKiB);
}

// Its lender may use it again at once.
TEST(LostMemory, IsNotTouchedAnyMore) {
  Rig rig(Backend::gpu, {.device = 0, .host = 64 * kKiB, .disk = 0});
  auto memory = cache::direct_host_memory(*rig.seams().device, 64 * kKiB).value();
  const std::byte* const segment = memory->data();
  ASSERT_EQ(rig.engine().leases().lend(0, std::move(memory)).value(), 1u);
  for (Version v = 0; v < 2; ++v) ASSERT_TRUE(write(rig.store(), v, 64 * kKiB));
  const std::vector<std::byte> before = rig.get(segment, 64 * kKiB);
  rig.engine().leases().lose(0, 1);
  EXPECT_TRUE(rig.get(segment, 64 * kKiB) == before);
}

TEST(LentSegments, WhatIsLentAgainInPartIsReturnedOnceTheRestIsEmpty) {
  constexpr std::size_t kSize = 64 * kKiB;
  Rig rig(Backend::threads, {.device = 0, .host = kSize, .disk = 0});
  Engine& engine = rig.engine();
  auto memory = cache::direct_host_memory(*rig.seams().device, 2 * kSize).value();
  ASSERT_EQ(engine.leases().lend(0, std::move(memory)).value(), 1u);
  for (Version v = 0; v < 3; ++v) ASSERT_TRUE(write(rig.store(), v, kSize));
  ASSERT_TRUE(engine.leases().recall(0, 1, 0));
  ASSERT_TRUE(engine.leases().extend(0, 1, kSize));
  EXPECT_FALSE(engine.leases().await_returned(0, 1, Seconds{0})) << "the only copy of version 2 is beyond";
  expect_restored(rig.store(), 2, kSize);
  EXPECT_TRUE(engine.leases().await_returned(0, 1, Seconds{60}));
  for (Version v = 0; v < 2; ++v) expect_restored(rig.store(), v, kSize);
}

TEST(LentSegments, WhatCannotBeLentIsRefusedByName) {
  Rig rig(Backend::gpu);
  const auto memory = [&] { return cache::direct_host_memory(*rig.seams().device, 4096).value(); };
  for (const int tier : {-1, 2, 3}) {
    const auto refused = rig.engine().leases().lend(static_cast<planner::TierIndex>(tier), memory());
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_NE(refused.error().message.find("tier " + std::to_string(tier)), std::string::npos);
  }
  for (std::size_t s = 1; s < cache::MemorySegments::kMost; ++s) ASSERT_TRUE(rig.engine().leases().lend(1, memory()));
  const auto refused = rig.engine().leases().lend(1, memory());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("64 segments already"), std::string::npos) << refused.error().message;
}

// Lends one page, and hears what becomes of it.
class OnePage final : public share::LeaseSource {
 public:
  void borrow(LeaseNews news) override {
    if (news) news(1, true);
  }
  std::uint64_t lease_bytes(std::uint32_t) const override { return kPage; }
  Result<std::shared_ptr<std::byte>> use_lease(std::uint32_t) override {
    return std::shared_ptr<std::byte>(new std::byte[kPage], std::default_delete<std::byte[]>());
  }
  void return_lease(std::uint32_t) override { end_.set_value("returned"); }
  void refuse_lease(std::uint32_t) override { end_.set_value("refused"); }
  std::string end() { return end_.get_future().get(); }

 private:
  static constexpr std::size_t kPage = 4096;
  std::promise<std::string> end_;
};

TEST(LentSegments, ALeaseForWhichThereIsNoSegmentIsRefused) {
  Rig rig(Backend::gpu);
  Leases& leases = rig.engine().leases();
  for (std::size_t s = 1; s < cache::MemorySegments::kMost; ++s)
    ASSERT_TRUE(leases.lend(1, cache::direct_host_memory(*rig.seams().device, 4096).value()));
  OnePage source;
  std::string said;
  const base::Log log([&](std::string_view text) { said = text; });
  Borrower borrower(source, leases, *rig.seams().device, 1, /*pinned=*/false, "memory of another process", log);
  borrower.start();
  EXPECT_EQ(source.end(), "refused");
  borrower.stop();
  EXPECT_NE(said.find("memory of another process cannot be used: the host cache has 64 segments"), said.npos) << said;
}

// Lends pages of GPUs on which this process can open no context.
class PagesOfClosedGpus final : public share::LeaseSource {
 public:
  void borrow(LeaseNews news) override {
    for (std::uint32_t lease = 1; news && lease <= kLeases; ++lease) news(lease, true);
  }
  std::uint64_t lease_bytes(std::uint32_t) const override { return kPage; }
  Terms terms(std::uint32_t lease) const override {
    const std::string gpu = lease < kLeases ? "cuda:3" : "cuda:5";
    return {.lender = lease,
            .owner = Error{Errc::out_of_memory, "cannot open a context on " + gpu + ": out of memory"}};
  }
  Result<std::shared_ptr<std::byte>> use_lease(std::uint32_t) override {
    return std::shared_ptr<std::byte>(new std::byte[kPage], std::default_delete<std::byte[]>());
  }
  void return_lease(std::uint32_t) override {}

  static constexpr std::uint32_t kLeases = 3;
  static constexpr std::size_t kPage = 4096;
};

TEST(LentSegments, AGpuThatCannotBeOpenedIsNamedOnceAndItsMemoryIsUsed) {
  Rig rig(Backend::gpu);
  PagesOfClosedGpus source;
  std::vector<std::string> said;
  const base::Log log([&](std::string_view text) { said.emplace_back(text); });
  const auto capacity = [&] { return rig.store().stats().tiers.at(1).capacity; };
  const std::uint64_t before = capacity();
  Borrower borrower(source, rig.engine().leases(), *rig.seams().device, 1, /*pinned=*/false, "memory of others", log);
  borrower.start();
  while (capacity() < before + source.kLeases * source.kPage) std::this_thread::yield();
  borrower.stop();
  ASSERT_EQ(said.size(), 2u) << ::testing::PrintToString(said);
  EXPECT_EQ(
      said[0],
      "warning: memory of others is on a GPU that this process cannot use: copies between it and the host go over "
      "this GPU's own link, and nothing is relayed: cannot open a context on cuda:3: out of memory");
  EXPECT_NE(said[1].find("cuda:5"), said[1].npos) << said[1];
}

}  // namespace
}  // namespace ebb::store
