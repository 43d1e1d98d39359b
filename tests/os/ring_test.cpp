#include <cerrno>
#include <gtest/gtest.h>
#include <thread>

#include "tests/doubles/faulty_files.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::os {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;

// The kernel's ring alone, and through the double without faults: the same contract.
class RingContract : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Ring>> opened = (GetParam() ? static_cast<Files&>(double_) : files_).open_ring(8);
    if (!opened) GTEST_SKIP() << opened.error().message;
    ring_ = std::move(*opened);
    file_ = test::open_file(GetParam() ? static_cast<Files&>(double_) : files_, false, 1 << 20);
  }
  // Waits until `n` ops have ended.
  std::vector<RingDone> collect(std::size_t n) {
    std::vector<RingDone> all;
    std::array<RingDone, 3> some;
    while (all.size() < n) {
      const SysResult count = ring_->wait(some);
      if (count) all.insert(all.end(), some.begin(), some.begin() + count.value);
    }
    return all;
  }
  PosixFiles files_;
  doubles::FaultyFiles double_{files_, 1};
  File file_;
  std::unique_ptr<Ring> ring_;
};

TEST_P(RingContract, every_op_gives_one_completion_with_its_tag) {
  EXPECT_GE(ring_->entries(), 8u);
  test::Buffer out(8 * 4096), in(8 * 4096);
  out.scramble(3);
  for (const bool write : {true, false}) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(ring_->prepare({write, file_.fd(), (write ? out : in).data() + i * 4096, 4096, i * 4096, 100 + i}));
    }
    std::set<std::uint64_t> tags;
    for (const RingDone& done : collect(8)) {
      EXPECT_EQ(done.result, 4096);
      tags.insert(done.tag);
    }
    EXPECT_EQ(tags.size(), 8u);
    EXPECT_EQ(*tags.begin(), 100u);
    EXPECT_EQ(*tags.rbegin(), 107u);
  }
  EXPECT_TRUE(std::ranges::equal(out.first(8 * 4096), in.first(8 * 4096)));
}

TEST_P(RingContract, failures_are_negative_errnos) {
  std::byte byte{};
  ASSERT_TRUE(ring_->prepare({false, -1, &byte, 1, 0, 5}));
  EXPECT_EQ(collect(1).at(0).result, -EBADF);
}

TEST_P(RingContract, a_wake_before_or_during_a_wait_ends_it) {
  std::array<RingDone, 4> some;
  for (int i = 0; i < 100; ++i) {
    std::thread waker([&] { ring_->wake(); });
    const SysResult count = ring_->wait(some);
    EXPECT_TRUE(!count || count.value == 0);
    waker.join();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RingContract, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "double" : "kernel"; });

TEST(FaultyRing, fails_shortens_and_holds_what_it_is_told_to) {
  PosixFiles inner;
  doubles::FaultyFiles files(inner, 1);
  Result<std::unique_ptr<Ring>> ring = files.open_ring(8);
  if (!ring) GTEST_SKIP() << ring.error().message;
  const File file = test::open_file(files, false, 1 << 20);
  test::Buffer memory(8192, std::byte{7});
  std::array<RingDone, 4> some;

  files.fail_nth(doubles::FileCall::write, 1, EIO);
  ASSERT_TRUE((*ring)->prepare({true, file.fd(), memory.data(), 8192, 0, 1}));
  ASSERT_EQ((*ring)->wait(some).value, 1);
  EXPECT_EQ(some[0].tag, 1u);
  EXPECT_EQ(some[0].result, -EIO);

  files.shorten_nth(doubles::FileCall::write, 1, 1, 5000);
  ASSERT_TRUE((*ring)->prepare({true, file.fd(), memory.data(), 8192, 0, 2}));
  ASSERT_EQ((*ring)->wait(some).value, 1);
  EXPECT_EQ(some[0].result, 5000);
  test::Buffer seen(8192);
  EXPECT_EQ(inner.read(file.fd(), seen.data(), 8192, 0).value, 8192);
  EXPECT_EQ(seen.data()[4999], std::byte{7});
  EXPECT_EQ(seen.data()[5000], std::byte{0});  // it really was not written

  files.hold(doubles::FileCall::write);
  ASSERT_TRUE((*ring)->prepare({true, file.fd(), memory.data(), 8192, 0, 3}));
  std::thread releaser([&] {
    files.await_held(doubles::FileCall::write, 1);
    EXPECT_EQ(inner.read(file.fd(), seen.data(), 8192, 0).value, 8192);
    EXPECT_EQ(seen.data()[5000], std::byte{0});
    files.release(doubles::FileCall::write);
  });
  std::int64_t count = 0;
  while (count == 0) count = std::max<std::int64_t>(0, (*ring)->wait(some).value);
  releaser.join();
  EXPECT_EQ(some[0].tag, 3u);
  EXPECT_EQ(some[0].result, 8192);
}

}  // namespace
}  // namespace ebb::os
