// What the store says when the machinery below fails, and that nothing older is lost.
#include <atomic>
#include <future>
#include <random>
#include <thread>

#include "gate_device.hpp"
#include "sizes.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

TEST(Failures, WithoutRoomARequestIsRefusedNamingEachTier) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  for (Version v = 0; v < 12; ++v) ASSERT_TRUE(write(store, v, kSize)) << v;
  const auto refused = write(store, 12, kSize);
  EXPECT_EQ(code_of(refused), Errc::no_space);
  for (const char* word : {"version 12", "device", "host"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << word << ": " << refused.error().message;
  }
  EXPECT_EQ(code_of(store.restore(12, std::span<const Target>{})), Errc::unknown_version);
  for (Version v = 0; v < 12; ++v) expect_restored(store, v, kSize);
  EXPECT_TRUE(write(store, 12, kSize));
}

// Fills a store without files, and has another thread write what waits for room.
std::future<Errc> write_beyond_room(Store& store, Seconds timeout) {
  for (Version v = 0; v < 12; ++v) EXPECT_TRUE(write(store, v, kSize));
  auto writing = std::async(std::launch::async,
                            [&store, timeout] { return code_of(write(store, 12, kSize, {.timeout = timeout})); });
  await_known(store, 12);
  EXPECT_EQ(writing.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  return writing;
}

TEST(Failures, ATimeoutLetsAnotherThreadMakeRoom) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  auto writing = write_beyond_room(store, Seconds(60));
  expect_restored(store, 5, kSize);
  EXPECT_EQ(writing.get(), Errc::ok);
  expect_restored(store, 12, kSize);
}

TEST(Failures, ATimeoutForRoomEndsByTheStoresClock) {
  Rig rig(Backend::threads, {.disk = 0});
  const auto clock = std::make_shared<doubles::ManualClock>(1);
  rig.seams().clock = clock;
  Store& store = rig.store();
  auto writing = write_beyond_room(store, Seconds(5));
  clock->advance(6'000'000'000);
  rig.engine().poke();
  EXPECT_EQ(writing.get(), Errc::no_space);
}

TEST(Failures, AWriteThatFailsForGoodIsToldByTheFutureAndNothingIsLost) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  rig.files().fail_nth(FileCall::write, 1, EIO, doubles::FaultyFiles::kEver);
  const Future future = write(store, 1, kSize).value();
  const auto result = future.wait("local", Seconds(60));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::io_error) << result.error().message;
  ASSERT_TRUE(future.error());
  for (const char* word : {"version 1", "local", "EIO"}) {
    EXPECT_NE(future.error()->message.find(word), std::string::npos) << word << ": " << future.error()->message;
  }
  expect_restored(store, 1, kSize);
}

TEST(Failures, AWriteThatFailsOnceIsRetried) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  rig.files().fail_nth(FileCall::write, 1, EIO);
  const Future future = write(store, 1, kSize).value();
  EXPECT_TRUE(future.wait("local", Seconds(60)));
  EXPECT_FALSE(future.error());
  EXPECT_GE(store.stats().retries, 1u);
  expect_restored(store, 1, kSize);
}

TEST(Failures, AFullDiskLeavesWhatTheMemoryTiersHold) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  rig.files().fail_nth(FileCall::write, 1, ENOSPC, doubles::FaultyFiles::kEver);
  Version written = 0;
  std::optional<Error> refused;
  for (; written < 40 && !refused; ++written) {
    const auto result = write(store, written, kSize);
    if (!result) refused = result.error();
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Errc::no_space) << refused->message;
  EXPECT_GE(written, 10);
  for (Version v = 0; v < written - 1; ++v) expect_restored(store, v, kSize);
}

TEST(Failures, WhatCannotBeReadBackIsLostByName) {
  Rig rig(Backend::threads, {.device = 0, .host = 0});
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(store.wait("local"));
  rig.files().fail_nth(FileCall::read, 1, EIO, doubles::FaultyFiles::kEver);
  std::vector<std::byte> target(kSize);
  const auto result = store.restore(1, {{0, target.data(), kSize}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::lost);
  EXPECT_NE(result.error().message.find("EIO"), std::string::npos) << result.error().message;
}

TEST(Failures, CloseEndsThoseWhoWait) {
  Rig rig(Backend::threads, {.device = 0, .host = 0});
  Store& store = rig.store();
  for (Version v = 0; v < 3; ++v) ASSERT_TRUE(write(store, v, kSize));
  ASSERT_TRUE(store.wait("local"));
  rig.files().hold(FileCall::read);
  std::vector<std::byte> bytes(kSize);
  const Target target{0, bytes.data(), kSize};
  const Future future = store.restore_async(1, std::span(&target, 1)).value();
  auto restoring = std::async(std::launch::async, [&] {
    std::vector<std::byte> mine(kSize);
    return code_of(store.restore(0, {{0, mine.data(), kSize}}));
  });
  auto waiting = std::async(std::launch::async, [&] { return code_of(future.wait()); });
  rig.files().await_held(FileCall::read, 2);
  auto closing = std::async(std::launch::async, [&] { return code_of(store.close()); });
  EXPECT_EQ(restoring.get(), Errc::closed);
  rig.files().release(FileCall::read);
  EXPECT_EQ(waiting.get(), Errc::closed);
  EXPECT_EQ(closing.get(), Errc::ok);
}

TEST(Failures, ADroppedVersionEndsThoseWhoWaitForIt) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  auto writing = write_beyond_room(store, Seconds(60));
  ASSERT_TRUE(store.drop(12));
  EXPECT_EQ(writing.get(), Errc::dropped);
}

TEST(Failures, AVersionThatAnotherThreadStillWritesCanBeAskedAboutAndRestored) {
  Rig rig(Backend::threads);
  const auto device = std::make_shared<GateDevice>();
  rig.seams().device = device;
  Store& store = rig.store();
  device->shut();
  auto writing = std::async(std::launch::async, [&] { return code_of(write(store, 1, kSize)); });
  device->await_standing(1);
  auto info = store.info(1);
  EXPECT_TRUE(store.versions().value().empty());
  auto restoring = std::async(std::launch::async, [&] { expect_restored(store, 1, kSize); });
  device->open();
  restoring.get();
  EXPECT_EQ(writing.get(), Errc::ok);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->bytes, kSize);
  EXPECT_TRUE(store.versions().value().empty()) << "it was consumed, perhaps before its writer returned";
  EXPECT_EQ(store.stats().checkpoints, 1u);
}

TEST(Failures, AReservationThatIsNotCommittedCannotBeAskedAbout) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  Reservation room = store.reserve(1, std::vector<Source>{{0, nullptr, kSize}}).value();
  EXPECT_EQ(code_of(store.info(1)), Errc::unknown_version);
  ASSERT_TRUE(room.commit());
  EXPECT_TRUE(store.info(1));
}

TEST(Failures, AfterABrokenContractHandlesEndQuietlyAndEveryCallSaysSo) {
  Rig rig(Backend::threads);
  Store& store = rig.store();
  for (Version v = 1; v < 3; ++v) ASSERT_TRUE(write(store, v, kSize));
  {
    Loan loan = store.borrow(1).value(), other = store.borrow(2).value();
    Reservation room = store.reserve(3, std::vector<Source>{{0, nullptr, kSize}}).value();
    const planner::event::Finished never_ordered{1'000'000};
    EXPECT_THROW(static_cast<void>(rig.engine().histories().hint(0, never_ordered)), std::logic_error);
    loan = std::move(other);
  }
  EXPECT_THROW(static_cast<void>(write(store, 4, kSize)), std::logic_error);
  EXPECT_TRUE(store.close());
}

TEST(Failures, ADirectoryThatIsNotThereIsRefusedAtOpen) {
  Options options;
  options.directory = "/nowhere/at/all";
  options.device_cache = options.host_cache = 1 << 20;
  const auto opened = Store::open(options);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::invalid_argument);
  EXPECT_NE(opened.error().message.find("/nowhere/at/all"), std::string::npos);
}

// Random programs over doubles that are late, unordered and faulty: whatever comes back is what was written.
class RandomPrograms : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range(1, 9));

TEST_P(RandomPrograms, GiveBackWhatWasWritten) {
  const auto seed = static_cast<std::uint64_t>(GetParam());
  Rig rig(seed % 3 == 0   ? Backend::fake
          : seed % 3 == 1 ? Backend::gpu
                          : Backend::threads,
          {.device = 200 * kKiB, .host = 300 * kKiB}, seed);
  Store& store = rig.store();
  rig.files().shorten_at_rate(FileCall::write, 0.1);
  rig.files().shorten_at_rate(FileCall::read, 0.1);
  rig.files().fail_at_rate(FileCall::write, 0.02, EINTR);
  rig.files().fail_at_rate(FileCall::read, 0.02, EINTR);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  std::map<Version, std::size_t> there;
  Version next = 0;
  for (int step = 0; step < 250; ++step) {
    const auto pick = [&] { return std::next(there.begin(), static_cast<std::ptrdiff_t>(below(there.size())))->first; };
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const std::size_t size = below(8) == 0 ? below(400 * kKiB) : below(80 * kKiB);
        const auto written = write(store, next, size);
        ASSERT_TRUE(written) << written.error().message;
        there[next++] = size;
        break;
      }
      case 4:
      case 5:
      case 6: {
        if (there.empty()) break;
        const Version v = pick();
        const bool keep = below(4) == 0;
        expect_restored(store, v, there[v], {.keep = keep});
        if (!store.info(v)) there.erase(v);
        break;
      }
      case 7: {
        std::vector<Version> order;
        for (std::uint64_t i = 0; i < below(6); ++i)
          order.push_back(static_cast<Version>(below(static_cast<std::uint64_t>(next) + 3)));
        ASSERT_TRUE(store.hint(order, below(3) == 0));
        break;
      }
      case 8: {
        if (there.empty()) break;
        const Version v = pick();
        if (below(2) == 0) {
          ASSERT_TRUE(store.drop(v));
          there.erase(v);
        } else if (there[v] > 0 && there[v] <= 128 * kKiB) {
          auto borrowed = store.borrow(v);
          ASSERT_TRUE(borrowed) << borrowed.error().message;
          const auto bytes = bytes_of(v, there[v]);
          ASSERT_EQ(std::memcmp(borrowed->data(), bytes.data(), bytes.size()), 0) << "version " << v;
          ASSERT_TRUE(borrowed->release(false));
          if (!store.info(v)) there.erase(v);
        }
        break;
      }
      default:
        if (below(2) == 0) {
          ASSERT_TRUE(store.wait("host"));
        } else if (below(2) == 0) {
          ASSERT_TRUE(store.unhint());
        }
    }
  }
  ASSERT_TRUE(store.unhint());
  for (const auto& [v, size] : there) expect_restored(store, v, size);
}

}  // namespace
}  // namespace ebb::store
