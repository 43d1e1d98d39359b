// Fault sweeps: the n-th call fails or is cut, for every n.
#include <cerrno>

#include "tests/transfer/file_engine_fixture.hpp"

namespace ebb::transfer {
namespace {

using Kind = FileEngineOptions::Kind;
using doubles::FaultyFiles;
using doubles::FileCall;
using test::Buffer;

class FileEngineFaults : public test::FileEngineTest {
 protected:
  static constexpr std::size_t kBytes = 5 * 65536 + 777;  // six requests

  void SetUp() override {
    FileEngineTest::SetUp();
    out_.scramble(4);
  }
  FileCall call(Direction direction) { return direction == Direction::read ? FileCall::read : FileCall::write; }
  // One transfer each way around a fault in one of them; the other one and a third one must not be touched by it.
  Result<void> around(Direction direction) {
    if (direction == Direction::read) write({{0, out_.data(), kBytes}}).value();
    std::fill_n(in_.data(), kBytes, std::byte{0});
    return transfer(direction, {{0, direction == Direction::read ? in_.data() : out_.data(), kBytes}});
  }
  bool arrived(Direction direction) {
    files_.clear_faults();
    if (direction == Direction::write) read({{0, in_.data(), kBytes}}).value();
    return std::ranges::equal(in_.first(kBytes), out_.first(kBytes));
  }
  Buffer out_{kBytes}, in_{kBytes};
};

TEST_P(FileEngineFaults, each_nth_call_failing_is_the_error_of_its_transfer) {
  for (const Direction direction : {Direction::write, Direction::read}) {
    for (const int error : {EIO, ENOSPC, EBADF}) {
      for (std::uint64_t n = 1; n <= 6; ++n) {
        if (direction == Direction::read) files_.clear_faults();
        files_.fail_nth(call(direction), n, error);
        const std::uint64_t before = files_.count(call(direction));
        const Result<void> how = around(direction);
        ASSERT_FALSE(how);
        EXPECT_EQ(how.error().code, error == ENOSPC ? Errc::no_space : Errc::io_error);
        const std::string& message = how.error().message;
        EXPECT_NE(message.find(os::describe_errno(error)), std::string::npos) << message;
        EXPECT_NE(message.find("test file"), std::string::npos) << message;
        EXPECT_NE(message.find("offset "), std::string::npos) << message;
        EXPECT_LE(files_.count(call(direction)) - before, 6u);  // a hard error is not tried again
        ASSERT_TRUE(around(direction)) << "the engine continues";
        EXPECT_TRUE(arrived(direction));
      }
    }
  }
}

TEST_P(FileEngineFaults, each_nth_call_cut_or_interrupted_is_continued_from_the_right_place) {
  for (const Direction direction : {Direction::write, Direction::read}) {
    for (std::uint64_t n = 1; n <= 8; ++n) {
      for (const std::uint64_t bytes : {1u, 4095u, 4096u, 4097u, 65535u}) {
        files_.shorten_nth(call(direction), n, 1, bytes);
        ASSERT_TRUE(around(direction));
        ASSERT_TRUE(arrived(direction)) << n << " cut to " << bytes;
      }
      for (const int error : {EINTR, EAGAIN}) {
        files_.fail_nth(call(direction), n, error, 3);
        ASSERT_TRUE(around(direction));
        ASSERT_TRUE(arrived(direction)) << n;
      }
    }
  }
}

TEST_P(FileEngineFaults, a_file_that_never_moves_on_is_an_error_in_the_end) {
  for (const int error : {EINTR, EAGAIN}) {
    files_.fail_nth(FileCall::write, 1, error, FaultyFiles::kEver);
    const Result<void> how = around(Direction::write);
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().code, Errc::io_error);
    files_.clear_faults();
  }
  if (GetParam().direct) {
    files_.shorten_nth(FileCall::write, 1, FaultyFiles::kEver, 100);  // never a whole block
    EXPECT_FALSE(around(Direction::write));
    files_.clear_faults();
  }
  ASSERT_TRUE(around(Direction::write));
  EXPECT_TRUE(arrived(Direction::write));
}

TEST_P(FileEngineFaults, an_error_touches_no_other_transfer) {
  Buffer other(kBytes), back(kBytes);
  other.scramble(6);
  files_.fail_nth(FileCall::write, 3, EIO);
  std::vector<Token> failed;
  for (Token t = 0; t < 6; ++t) {
    const Piece piece{t << 20, other.data(), kBytes};
    engine_->submit(t, Direction::write, file_, {&piece, 1});
  }
  for (Token t = 0; t < 6; ++t) {
    if (!completions_.of(t)) {
      failed.push_back(t);
      continue;
    }
    ASSERT_TRUE(read({{t << 20, back.data(), kBytes}}));
    EXPECT_TRUE(std::ranges::equal(other.first(kBytes), back.first(kBytes)));
  }
  EXPECT_EQ(failed.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, FileEngineFaults,
                         ::testing::Values(test::EngineCase{Kind::threads, false, false},
                                           test::EngineCase{Kind::threads, true, false},
                                           test::EngineCase{Kind::uring, false, false},
                                           test::EngineCase{Kind::uring, true, false}),
                         test::name_of_case);

}  // namespace
}  // namespace ebb::transfer
