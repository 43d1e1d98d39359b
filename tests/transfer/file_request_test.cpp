#include "transfer/file_request.hpp"

#include <cerrno>
#include <gtest/gtest.h>

#include "tests/os/test_files.hpp"

namespace ebb::transfer {
namespace {

class FileRequestTest : public ::testing::TestWithParam<bool> {
 protected:
  std::deque<FileRequest> cut_into(std::size_t length, std::size_t request_bytes, Direction direction) {
    transfer_ = std::make_shared<FileTransfer>(FileTransfer{1, direction, &file_, 0, {}});
    std::deque<FileRequest> requests;
    const Piece piece{8192, memory_.data(), length};
    cut(transfer_, {&piece, 1}, request_bytes, requests);
    return requests;
  }
  os::PosixFiles files_;
  os::File file_ = test::open_file(files_, GetParam());
  test::Buffer memory_{1 << 16};
  std::shared_ptr<FileTransfer> transfer_;
};

TEST_P(FileRequestTest, a_piece_is_cut_without_gap_or_overlap_and_rounded_only_at_its_end) {
  for (const std::size_t length : {1u, 4096u, 8192u, 8193u, 20000u}) {
    const auto requests = cut_into(length, 8192, Direction::read);
    EXPECT_EQ(transfer_->open_requests, requests.size());
    std::size_t at = 0;
    for (const FileRequest& request : requests) {
      EXPECT_EQ(request.memory, memory_.data() + at);
      EXPECT_EQ(request.offset, 8192 + at);
      at += request.needed;
      EXPECT_EQ(request.length, GetParam() ? os::round_up(request.needed) : request.needed);
    }
    EXPECT_EQ(at, length);
  }
}

TEST_P(FileRequestTest, progress_is_what_the_system_said_in_whole_blocks_when_direct) {
  FileRequest request = cut_into(20000, 65536, Direction::write).front();
  EXPECT_EQ(account(request, os::SysResult::of(5000)), Next::again);
  EXPECT_EQ(request.moved, GetParam() ? 4096u : 5000u);
  EXPECT_EQ(account(request, os::SysResult::failed(EINTR)), Next::again);
  EXPECT_EQ(request.moved, GetParam() ? 4096u : 5000u);
  EXPECT_EQ(account(request, os::SysResult::of(15903)), GetParam() ? Next::again : Next::finished);
  if (GetParam()) {
    EXPECT_EQ(account(request, os::SysResult::of(20000 - request.moved)), Next::finished);
  }
  EXPECT_TRUE(outcome(*transfer_));
}

TEST_P(FileRequestTest, the_padding_need_not_be_moved) {
  FileRequest request = cut_into(5000, 65536, Direction::read).front();
  EXPECT_EQ(account(request, os::SysResult::of(5000)), Next::finished);
  EXPECT_TRUE(outcome(*transfer_));
}

TEST_P(FileRequestTest, the_first_error_is_kept) {
  FileRequest request = cut_into(5000, 65536, Direction::write).front();
  EXPECT_EQ(account(request, os::SysResult::failed(ENOSPC)), Next::finished);
  EXPECT_EQ(account(request, os::SysResult::failed(EIO)), Next::finished);
  EXPECT_EQ(outcome(*transfer_).error().code, Errc::no_space);
  EXPECT_EQ(outcome(*transfer_).error().message,
            "writing " + std::to_string(GetParam() ? 8192 : 5000) +
                " bytes at offset 8192 of 'test file' failed: ENOSPC (No space left on device)");
}

TEST_P(FileRequestTest, moving_nothing_for_ever_is_an_error_and_moving_again_starts_the_count_anew) {
  FileRequest request = cut_into(20000, 65536, Direction::write).front();
  for (int i = 0; i < 9'999; ++i) ASSERT_EQ(account(request, os::SysResult::of(0)), Next::again);
  ASSERT_EQ(account(request, os::SysResult::of(4096)), Next::again);
  for (int i = 0; i < 9'999; ++i) ASSERT_EQ(account(request, os::SysResult::of(0)), Next::again);
  EXPECT_EQ(account(request, os::SysResult::of(0)), Next::finished);
  EXPECT_FALSE(outcome(*transfer_));
}

INSTANTIATE_TEST_SUITE_P(All, FileRequestTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "direct" : "buffered"; });

}  // namespace
}  // namespace ebb::transfer
