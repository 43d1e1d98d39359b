#include "storage/preallocator.hpp"

#include <cerrno>
#include <gtest/gtest.h>

#include "tests/doubles/faulty_files.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::storage {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;

class PreallocatorTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kStep = 1 << 20, kCapacity = 10 * kStep + 4096;
  os::PosixFiles posix_;
  FaultyFiles files_{posix_, 1};
  os::File file_ = test::open_file(files_, false, kCapacity);
};

TEST_F(PreallocatorTest, stays_a_step_ahead_until_the_end) {
  Preallocator space(files_, file_, kCapacity, kStep);
  EXPECT_EQ(space.allocated(), kStep);  // at once
  space.settle();
  EXPECT_EQ(space.allocated(), kStep);
  space.use_up_to(1);
  space.settle();
  EXPECT_EQ(space.allocated(), 2 * kStep);
  space.use_up_to(2 * kStep + 1);
  space.settle();
  EXPECT_EQ(space.allocated(), 4 * kStep);
  space.use_up_to(5);  // going back asks for nothing
  space.settle();
  EXPECT_EQ(space.allocated(), 4 * kStep);
  space.use_up_to(kCapacity);
  space.settle();
  EXPECT_EQ(space.allocated(), kCapacity);
  EXPECT_EQ(space.state(), "preallocated in steps");

  std::uint64_t end = 0;
  for (const auto& record : files_.records()) {
    if (record.call != FileCall::preallocate) continue;
    EXPECT_EQ(record.offset, end);  // without a gap
    end += record.bytes;
  }
  EXPECT_EQ(end, kCapacity);
}

TEST_F(PreallocatorTest, each_refused_step_ends_it_by_name_and_eintr_does_not) {
  for (std::uint64_t n = 1; n <= 11; ++n) {
    files_.clear_faults();
    files_.fail_nth(FileCall::preallocate, 1, EINTR, 2);
    files_.fail_nth(FileCall::preallocate, n + 2, ENOSPC);
    Preallocator space(files_, file_, kCapacity, kStep);
    space.use_up_to(kCapacity);
    space.settle();
    EXPECT_EQ(space.refusal(), ENOSPC);
    EXPECT_EQ(space.allocated(), (n - 1) * kStep);
    EXPECT_NE(space.state().find("ENOSPC"), std::string::npos) << space.state();
  }
}

TEST_F(PreallocatorTest, no_capacity_needs_no_space) {
  Preallocator space(files_, file_, 0, kStep);
  space.settle();
  EXPECT_EQ(files_.count(FileCall::preallocate), 0u);
}

}  // namespace
}  // namespace ebb::storage
