// commit(check): memory that is written to after it was committed is never handed out, flushed or called durable.
#include "kept_rig.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

constexpr std::size_t kBytes = 40 * kKiB + 24;  // three chunks, the last one not whole

void expect_named(const Result<void>& result, Version version) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::damaged) << result.error().message;
  EXPECT_NE(result.error().message.find("version " + std::to_string(version) + " is damaged"), std::string::npos)
      << result.error().message;
  EXPECT_NE(result.error().message.find("written to after it had been committed"), std::string::npos)
      << result.error().message;
}

/// Ordinary memory, its double, and the double of a GPU.
class CommitCheck : public ::testing::TestWithParam<Backend> {
 protected:
  static bool gpu() { return GetParam() == Backend::gpu; }
  /// Computed by the application and committed. What it still holds of the memory is kept with the reservation.
  std::byte* commit(Rig& rig, History& history, Version version, bool check = true) {
    const std::vector<Source> regions = {{0, nullptr, kBytes}};
    held_.push_back(history.reserve(version, regions).value());
    std::byte* const memory = held_.back().data();
    const auto bytes = bytes_of(version, kBytes);
    rig.put(memory, bytes.data(), kBytes);
    HandBack how{.hold = true, .check = check};
    if (gpu()) how.stream = rig.device().create_stream().value();
    EXPECT_TRUE(held_.back().commit(how));
    if (gpu()) finish(rig.device(), *how.stream);  // what is written from now on comes after the digest
    return memory;
  }
  static void finish(device::Device& device, device::StreamId stream) {
    const auto event = device.create_event().value();
    device.record(event, stream).value();
    device.wait(event).value();
    device.destroy_event(event);
  }
  // The program breaks the rules on purpose, while the store may be reading: the thread sanitizer is not to see it.
  [[gnu::no_sanitize("thread")]] static void change(volatile unsigned char* byte) { *byte = *byte ^ 1; }
  static void write_to(Rig& rig, std::byte* memory, std::size_t at = 17) {
    if (rig.host_memory()) return change(reinterpret_cast<unsigned char*>(memory + at));
    const std::byte other = rig.get(memory + at, 1)[0] ^ std::byte{1};
    rig.put(memory + at, &other, 1);
  }
  void TearDown() override { held_.clear(); }
  std::vector<Reservation> held_;
};

INSTANTIATE_TEST_SUITE_P(All, CommitCheck, ::testing::Values(Backend::threads, Backend::fake, Backend::gpu),
                         [](const auto& info) {
                           const bool fake = info.param == Backend::fake;
                           return info.param == Backend::threads ? "ordinary" : fake ? "fake" : "gpu";
                         });

TEST_P(CommitCheck, ARestoreOrBorrowOfMemoryThatWasWrittenToSaysSo) {
  Rig rig(GetParam(), {.host = 0, .disk = 0});
  commit(rig, rig.store(), 0);
  write_to(rig, commit(rig, rig.store(), 1), kBytes - 1);
  ASSERT_TRUE(rig.store().wait("device"));
  std::vector<std::byte> out(kBytes, std::byte{0x55});
  const Target target{0, out.data(), kBytes};
  const auto lent = rig.store().borrow(1);
  ASSERT_FALSE(lent);
  expect_named(lent.error(), 1);
  expect_named(rig.store().restore(1, {target}, {.keep = true}), 1);
  expect_named(rig.store().restore(1, {target}), 1);
  EXPECT_EQ(out, std::vector<std::byte>(kBytes, std::byte{0x55})) << "nothing of it is handed out";
  expect_restored(rig.store(), 0, kBytes);
  // The number may be used again.
  held_.clear();
  ASSERT_TRUE(write(rig.store(), 1, kBytes));
  expect_restored(rig.store(), 1, kBytes);
  ASSERT_TRUE(rig.store().wait("device"));
  rig.end();
}

TEST_P(CommitCheck, ARestoreInTheBackgroundOrInStreamOrderSaysSo) {
  Rig rig(GetParam(), {.host = 0, .disk = 0});
  std::vector<std::byte> out(kBytes, std::byte{0x55});
  const Target target{0, out.data(), kBytes};
  write_to(rig, commit(rig, rig.store(), 1));
  auto future = rig.store().restore_async(1, std::span(&target, 1));
  ASSERT_TRUE(future);
  expect_named(future->wait(), 1);
  if (gpu()) {
    const StreamHandle on = rig.device().create_stream().value();
    write_to(rig, commit(rig, rig.store(), 2));
    expect_named(rig.store().restore(2, {target}, {.stream = on}), 2);
    // Written to by the very stream that the restore is behind.
    std::byte* const memory = commit(rig, rig.store(), 3);
    const auto other = bytes_of(9, kBytes);
    rig.device().copy(on, memory, other.data(), kBytes).value();
    expect_named(rig.store().restore(3, {target}, {.stream = on}), 3);
    commit(rig, rig.store(), 4);
    ASSERT_TRUE(rig.store().restore(4, {target}, {.stream = on}));
    ASSERT_TRUE(rig.device().synchronize());
    EXPECT_EQ(out, bytes_of(4, kBytes));
  } else {
    EXPECT_EQ(out, std::vector<std::byte>(kBytes, std::byte{0x55}));
  }
  held_.clear();
  rig.end();
}

TEST_P(CommitCheck, WhatIsNotWrittenToIsFlushedAndReadAsUsual) {
  Rig rig(GetParam());
  for (Version v = 0; v < 30; ++v) {  // more than the device cache holds
    commit(rig, rig.store(), v);
    held_.clear();
  }
  ASSERT_TRUE(rig.store().wait("local"));
  for (Version v = 0; v < 30; ++v) expect_restored(rig.store(), v, kBytes);
  rig.end();
}

TEST_P(CommitCheck, WithoutItNothingIsCompared) {
  Rig rig(GetParam(), {.host = 0, .disk = 0});
  write_to(rig, commit(rig, rig.store(), 1, false));
  std::vector<std::byte> out(kBytes);
  ASSERT_TRUE(rig.store().restore(1, {{0, out.data(), kBytes}}));
  EXPECT_NE(out, bytes_of(1, kBytes));
  held_.clear();
  rig.end();
}

TEST_P(CommitCheck, ACopyBelowIsGoodWhateverBecomesOfTheMemory) {
  Rig rig(GetParam(), {.disk = 0});
  std::byte* const memory = commit(rig, rig.store(), 1);
  ASSERT_TRUE(rig.store().wait("host"));
  write_to(rig, memory);
  expect_restored(rig.store(), 1, kBytes, {.keep = true});
  held_.clear();
  expect_restored(rig.store(), 1, kBytes);
  rig.end();
}

// Whichever is first, the flush or the write: the copy below is what was committed, or there is none and everyone says
// so.
TEST_P(CommitCheck, ACopyBelowIsWhatWasCommittedOrThereIsNone) {
  for (int round = 0; round < 20; ++round) {
    Rig rig(GetParam(), {.disk = 0}, static_cast<std::uint64_t>(round) + 1);
    commit(rig, rig.store(), 0);
    write_to(rig, commit(rig, rig.store(), 7), static_cast<std::size_t>(round) * 2000);
    const Result<void> one = rig.store().wait(7, "host"), all = rig.store().wait("host");
    EXPECT_EQ(static_cast<bool>(all), static_cast<bool>(one));
    if (one) {
      expect_restored(rig.store(), 7, kBytes);
    } else {
      expect_named(one, 7);
      expect_named(all, 7);
    }
    expect_restored(rig.store(), 0, kBytes);
    held_.clear();
    rig.end();
  }
}

/// On the double of a GPU, where each copy can be made to come when the test likes.
class CommitCheckInOrder : public CommitCheck {};
INSTANTIATE_TEST_SUITE_P(Gpu, CommitCheckInOrder, ::testing::Values(Backend::gpu));

// The same of what is to be durable.
TEST_P(CommitCheckInOrder, ItIsDurableAsItWasCommittedOrNotAtAll) {
  for (int round = 0; round < 12; ++round) {
    KeptRig kept(GetParam(), {.host = round % 2 ? 512 * kKiB : 0});
    Store& store = kept.open();
    commit(kept.rig(), store, 0);
    write_to(kept.rig(), commit(kept.rig(), store, 7), static_cast<std::size_t>(round) * 3000);
    const Result<void> one = store.wait(7, "storage"), all = store.wait("storage");
    const bool durable = static_cast<bool>(one);
    EXPECT_EQ(static_cast<bool>(all), durable);
    EXPECT_TRUE(store.wait(0, "storage"));
    if (!durable) {
      expect_named(one, 7);
      expect_named(all, 7);
    }
    held_.clear();
    EXPECT_EQ(static_cast<bool>(store.close()), durable);
    Store& again = kept.open();
    EXPECT_EQ(again.versions(), (durable ? std::vector<Version>{0, 7} : std::vector<Version>{0}));
    expect_restored(again, 0, kBytes);
    if (durable) expect_restored(again, 7, kBytes);
  }
}

TEST_P(CommitCheckInOrder, TheDigestIsTakenInStreamOrderAndTheHostDoesNotWait) {
  Rig rig(GetParam(), {.host = 0, .disk = 0});
  auto& device = rig.device();
  const StreamHandle on = device.create_stream().value();
  const std::vector<Source> regions = {{0, nullptr, kBytes}};
  Reservation room = rig.store().reserve(1, regions).value();
  device.hold();
  const auto bytes = bytes_of(1, kBytes);
  device.copy(on, room.data(), bytes.data(), kBytes).value();
  ASSERT_TRUE(room.commit({.stream = on, .check = true}));
  EXPECT_EQ(device.unfinished(), 2u) << "the copy and the digest";
  device.release();
  expect_restored(rig.store(), 1, kBytes);
  rig.end();
}

// Written to between the commit and the flush, or while the flush is under way.
TEST_P(CommitCheckInOrder, AFlushOfWhatWasWrittenToFails) {
  for (const bool under_way : {false, true}) {
    Rig rig(GetParam());
    auto& device = rig.device();
    const StreamHandle on = device.create_stream().value(), other = device.create_stream().value();
    const std::vector<Source> regions = {{0, nullptr, kBytes}};
    Reservation room = rig.store().reserve(1, regions).value();
    std::byte* const memory = room.data();
    const auto bytes = bytes_of(1, kBytes), wrong = bytes_of(2, kBytes);
    rig.put(memory, bytes.data(), kBytes);
    device.hold();
    ASSERT_TRUE(room.commit({.stream = on, .hold = true, .check = true}));
    ASSERT_TRUE(device.complete(on));
    std::thread waits([&] { expect_named(rig.store().wait("host"), 1); });
    device.await_unfinished(1);  // the flush has begun
    if (under_way) {
      while (!device.step()) continue;
    }
    device.copy(other, memory + 100, wrong.data(), 64).value();
    ASSERT_TRUE(device.complete(other));
    device.release();
    waits.join();
    expect_named(rig.store().wait(1, "host"), 1);
    std::vector<std::byte> out(kBytes);
    expect_named(rig.store().restore(1, {{0, out.data(), kBytes}}), 1);
    room.abandon();  // lets go of it
    ASSERT_TRUE(write(rig.store(), 1, kBytes));
    ASSERT_TRUE(rig.store().wait("host"));
    expect_restored(rig.store(), 1, kBytes);
    rig.end();
  }
}

/// A GPU in a build without nvcc.
class NoDigests final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  Result<void> digest(device::StreamId, const void*, std::size_t, device::Digest*) override {
    return Error{Errc::unsupported, "no digests"};
  }
};

TEST_P(CommitCheckInOrder, ADigestThatCannotBeTakenLeavesTheReservation) {
  Rig rig(GetParam(), {.host = 0, .disk = 0});
  rig.seams().device = std::make_shared<NoDigests>(rig.seams().device);
  const StreamHandle on = rig.device().create_stream().value();
  const std::vector<Source> regions = {{0, nullptr, kBytes}};
  Reservation room = rig.store().reserve(1, regions).value();
  const auto bytes = bytes_of(1, kBytes);
  rig.put(room.data(), bytes.data(), kBytes);
  EXPECT_EQ(code_of(room.commit({.stream = on, .check = true})), Errc::unsupported);
  ASSERT_TRUE(room.commit({.stream = on}));
  expect_restored(rig.store(), 1, kBytes);
  rig.end();
}

}  // namespace
}  // namespace ebb::store
