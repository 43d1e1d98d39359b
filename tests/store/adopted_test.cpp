// Checkpoints whose replica in the device cache is the program's own memory (CheckpointOptions::adopt).
#include <atomic>
#include <deque>
#include <map>
#include <random>
#include <sys/mman.h>

#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

constexpr std::size_t kBytes = 40 * kKiB + 24;  // three chunks, the last one not whole

/// Memory that a program lends. It is overwritten when the store lets go of it, or, with a stream, by spoil().
class Lent {
 public:
  Lent(Rig& rig, Version version, std::size_t bytes = kBytes) : rig_(rig), bytes_(bytes) {
    memory_ = device().allocate(bytes).value();
    put(bytes_of(version, bytes));
  }
  ~Lent() { device().free(memory_, bytes_); }
  void put(const std::vector<std::byte>& bytes) { rig_.put(memory_, bytes.data(), bytes.size()); }
  std::byte* data() const { return memory_; }
  std::size_t bytes() const { return bytes_; }
  int released() const { return released_; }
  std::shared_ptr<const void> owner(bool in_order = false) {
    return {memory_, [this, in_order](const void*) {
              if (!in_order) put(spoilt_);
              ++released_;
            }};
  }
  /// Overwrites it in stream order, if the store has let go of it.
  void spoil(device::StreamId stream) {
    if (released_ > 0) device().copy(stream, memory_, spoilt_.data(), bytes_).value();
  }

 private:
  device::Device& device() { return *rig_.seams().device; }
  Rig& rig_;
  std::size_t bytes_;
  const std::vector<std::byte> spoilt_ = std::vector<std::byte>(bytes_, std::byte{0xEE});
  std::byte* memory_ = nullptr;
  std::atomic<int> released_{0};
};

/// Ordinary memory, its double, and the double of a GPU.
class Adopted : public ::testing::TestWithParam<Backend> {
 protected:
  explicit Adopted(Sizes sizes = {.device = 64 * kKiB, .host = 512 * kKiB}, std::uint64_t adopted = 128 * kKiB)
      : rig(GetParam(), sizes) {
    rig.setup().machine.tiers.front().adopted = adopted;
  }
  void TearDown() override { rig.end(); }
  static bool gpu() { return GetParam() == Backend::gpu; }
  Lent& lent(Version version, std::size_t bytes = kBytes) { return memory.emplace_back(rig, version, bytes); }
  Result<Future> checkpoint(Version version, Lent& from, CheckpointOptions options = {}) {
    options.adopt = from.owner(options.stream.has_value());
    return rig.store().checkpoint(version, {{0, from.data(), from.bytes()}}, options);
  }
  int released() const {
    int all = 0;
    for (const Lent& one : memory) all += one.released();
    return all;
  }
  Rig rig;
  std::deque<Lent> memory;
};

INSTANTIATE_TEST_SUITE_P(All, Adopted, ::testing::Values(Backend::threads, Backend::fake, Backend::gpu),
                         [](const auto& info) {
                           const bool fake = info.param == Backend::fake;
                           return info.param == Backend::threads ? "ordinary" : fake ? "fake" : "gpu";
                         });

TEST_P(Adopted, TheArrayItselfIsWhatIsBorrowedAndIsLetGoOfOnceWhenItIsConsumed) {
  Lent& one = lent(1);
  ASSERT_TRUE(checkpoint(1, one));
  ASSERT_TRUE(rig.store().wait("host"));  // nothing reads it any more
  EXPECT_EQ(one.released(), 0);
  {
    const Loan loan = rig.store().borrow(1, {.keep = true}).value();
    EXPECT_EQ(loan.data(), one.data());
  }
  EXPECT_EQ(rig.store().stats().tiers.front().used, 0u);
  EXPECT_EQ(one.released(), 0);
  expect_restored(rig.store(), 1, kBytes);
  EXPECT_EQ(one.released(), 1);
}

TEST_P(Adopted, ADroppedVersionLetsGo) {
  Lent& one = lent(1);
  ASSERT_TRUE(checkpoint(1, one));
  ASSERT_TRUE(rig.store().wait("host"));
  ASSERT_TRUE(rig.store().drop(1));
  EXPECT_EQ(one.released(), 1);
}

TEST_P(Adopted, BeyondTheBudgetTheOldestAreEvictedOnceTheyAreSafeBelow) {
  constexpr Version kMany = 12;  // the budget is for three
  for (Version v = 0; v < kMany; ++v) ASSERT_TRUE(checkpoint(v, lent(v)));
  ASSERT_TRUE(rig.store().wait("host"));
  EXPECT_GE(released(), kMany - 3);
  for (Version v = 0; v < kMany; ++v) expect_restored(rig.store(), v, kBytes);
  EXPECT_EQ(released(), kMany);
}

TEST_P(Adopted, WhatIsBorrowedStaysWithItsMemoryUntilTheLastOfBothEnds) {
  Lent& one = lent(1);
  ASSERT_TRUE(checkpoint(1, one));
  Loan loan = rig.store().borrow(1, {}).value();
  ASSERT_TRUE(rig.store().drop(1));
  for (Version v = 2; v < 12; ++v) ASSERT_TRUE(checkpoint(v, lent(v)));
  ASSERT_TRUE(rig.store().close());
  EXPECT_EQ(one.released(), 0);
  EXPECT_EQ(released(), 10);
  EXPECT_EQ(rig.get(loan.data(), kBytes), bytes_of(1, kBytes));
  ASSERT_TRUE(loan.release());
  EXPECT_EQ(one.released(), 1);
}

TEST_P(Adopted, TwoCheckpointsOfOneArrayLetGoOfItEach) {
  Lent& one = lent(7);
  ASSERT_TRUE(checkpoint(1, one));
  ASSERT_TRUE(checkpoint(2, one));
  ASSERT_TRUE(rig.store().wait("host"));
  ASSERT_TRUE(rig.store().drop(1));
  EXPECT_EQ(one.released(), 1);
  one.put(bytes_of(7, kBytes));  // which this test overwrites
  std::vector<std::byte> out(kBytes);
  ASSERT_TRUE(rig.store().restore(2, {{0, out.data(), kBytes}}));
  EXPECT_EQ(out, bytes_of(7, kBytes));
  EXPECT_EQ(one.released(), 2);
}

TEST_P(Adopted, ARefusedCallLetsGoAtOnce) {
  Lent &one = lent(1), &other = lent(2);
  ASSERT_TRUE(checkpoint(1, one));
  EXPECT_EQ(checkpoint(1, other).error().code, Errc::version_exists);
  EXPECT_EQ(other.released(), 1);
  CheckpointOptions options{.adopt = other.owner()};
  const Source both[] = {{0, other.data(), 8}, {1, other.data() + 8, 8}};
  EXPECT_EQ(rig.store().checkpoint(3, both, options).error().code, Errc::invalid_argument);
  options.adopt.reset();
  EXPECT_EQ(other.released(), 2);
  ASSERT_TRUE(rig.store().close());
  EXPECT_EQ(checkpoint(4, other).error().code, Errc::closed);
  EXPECT_EQ(other.released(), 3);
  EXPECT_EQ(one.released(), 1);
}

TEST_P(Adopted, WhatIsLargerThanTheBudgetIsCopied) {
  Lent& large = lent(1, 200 * kKiB);
  ASSERT_TRUE(checkpoint(1, large));
  EXPECT_EQ(large.released(), 1);
  expect_restored(rig.store(), 1, large.bytes());
}

TEST_P(Adopted, CheckedMemoryThatIsWrittenToIsNeverHandedOut) {
  Lent& one = lent(1);
  ASSERT_TRUE(checkpoint(1, one, {.check = true}));
  ASSERT_TRUE(rig.store().wait("host"));  // nothing reads it as it is written to
  std::byte other[] = {rig.get(one.data(), 1)[0] ^ std::byte{1}};
  rig.put(one.data(), other, 1);
  std::vector<std::byte> out(kBytes);
  const auto result = rig.store().restore(1, {{0, out.data(), kBytes}});
  if (result) {
    EXPECT_EQ(out, bytes_of(1, kBytes));  // a flush had taken them before
  } else {
    EXPECT_EQ(result.error().code, Errc::damaged) << result.error().message;
  }
}

// Pages without access rights, as a mapped file has that was truncated.
TEST(AdoptedMemoryThatIsGone, IsSaidAndEndsNoProcess) {
  Rig rig(Backend::threads, {.device = 64 * kKiB, .host = 512 * kKiB});
  rig.setup().machine.tiers.front().adopted = 128 * kKiB;
  void* const gone = ::mmap(nullptr, 64 * kKiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  std::atomic<int> released{0};  // on any thread
  const auto owner = [&] { return std::shared_ptr<const void>(gone, [&](const void*) { ++released; }); };
  ASSERT_TRUE(rig.store().checkpoint(1, {{0, gone, 64 * kKiB}}, {.adopt = owner()}));
  EXPECT_FALSE(rig.store().wait(1, "host"));
  std::vector<std::byte> out(64 * kKiB);
  EXPECT_FALSE(rig.store().restore(1, {{0, out.data(), out.size()}}));
  EXPECT_FALSE(rig.store().checkpoint(2, {{0, gone, 64 * kKiB}}, {.adopt = owner(), .check = true}));
  rig.end();
  EXPECT_EQ(released, 2);
  ::munmap(gone, 64 * kKiB);
}

TEST_P(Adopted, RandomProgramsGetTheirBytesAndTheirMemoryBack) {
  std::mt19937_64 random(5);
  std::map<Version, Lent*> there;
  Version next = 0;
  const std::optional<StreamHandle> on =
      gpu() ? std::optional(rig.device().create_stream().value()) : std::optional<StreamHandle>();
  for (int step = 0; step < 120; ++step) {
    if (there.size() < 8 && random() % 3 != 0) {
      Lent& one = lent(next, 1 + random() % (60 * kKiB));
      ASSERT_TRUE(checkpoint(next, one, {.stream = on}));
      for (Lent& any : memory)
        if (on) any.spoil(*on);
      if (random() % 2) rig.store().hint_front(next).value();
      there[next++] = &one;
    } else if (!there.empty()) {
      const auto found = random() % 2 ? std::prev(there.end()) : there.begin();
      const auto [version, one] = *found;
      there.erase(found);
      if (random() % 4 == 0) {
        ASSERT_TRUE(rig.store().drop(version));
        continue;
      }
      std::vector<std::byte> out(one->bytes());
      ASSERT_TRUE(
          rig.store().restore(version, {{0, out.data(), out.size()}}, {.keep = random() % 8 == 0, .stream = on}));
      if (on) rig.device().synchronize().value();
      ASSERT_EQ(out, bytes_of(version, out.size())) << version;
      static_cast<void>(static_cast<bool>(rig.store().drop(version)));
    }
  }
  ASSERT_TRUE(rig.store().close());
  if (on) rig.device().synchronize().value();
  for (const Lent& one : memory) EXPECT_EQ(one.released(), 1);
}

/// On the double of a GPU, whose streams stop on command.
class AdoptedInOrder : public ::testing::Test {
 protected:
  AdoptedInOrder() { rig.setup().machine.tiers.front().adopted = 128 * kKiB; }
  Rig rig{Backend::gpu};
};

TEST_F(AdoptedInOrder, WhatTheStreamHasYetToComputeIsNeitherReadNorLetGoOf) {
  Store& store = rig.store();
  doubles::FakeDevice& device = rig.device();
  const StreamHandle on = device.create_stream().value();
  Lent one(rig, 0);
  const std::vector<std::byte> computed = bytes_of(1, kBytes);
  device.hold();
  ASSERT_TRUE(device.copy(on, one.data(), computed.data(), kBytes));
  auto future = store.checkpoint(1, {{0, one.data(), kBytes}}, {.stream = on, .adopt = one.owner()});
  ASSERT_TRUE(future) << future.error().message;  // the host did not wait
  EXPECT_FALSE(future->done("device"));
  EXPECT_EQ(one.released(), 0);
  device.release();
  ASSERT_TRUE(future->wait("host"));
  expect_restored(store, 1, kBytes);
  EXPECT_EQ(one.released(), 1);
  ASSERT_TRUE(rig.store().close());
}

TEST_F(AdoptedInOrder, ARestoreOnAStreamKeepsTheMemoryUntilItsCopyIsMade) {
  Store& store = rig.store();
  doubles::FakeDevice& device = rig.device();
  const StreamHandle on = device.create_stream().value();
  Lent one(rig, 1);
  ASSERT_TRUE(store.checkpoint(1, {{0, one.data(), kBytes}}, {.adopt = one.owner()})->wait("device"));
  std::vector<std::byte> out(kBytes);
  device.hold();
  ASSERT_TRUE(store.restore(1, {{0, out.data(), kBytes}}, {.stream = on}));
  EXPECT_EQ(one.released(), 0);
  device.release();
  ASSERT_TRUE(device.synchronize());
  EXPECT_EQ(out, bytes_of(1, kBytes));
  ASSERT_TRUE(rig.store().close());
  EXPECT_EQ(one.released(), 1);
}

}  // namespace
}  // namespace ebb::store
