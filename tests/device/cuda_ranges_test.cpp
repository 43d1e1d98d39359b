// A GPU's memory that is mapped piece by piece, and host memory that is pinned so.
#include <cstdlib>
#include <string_view>

#include "tests/device/cuda_fixture.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::device {
namespace {

class CudaRangesTest : public CudaDeviceTest {
 protected:
  // cudaMalloc's memory instead, all of it at once.
  static bool plain() {
    const char* asked = std::getenv("EBBTIDE_CUDA_PLAIN");
    return asked && std::string_view(asked) == "1";
  }
};

TEST_F(CudaRangesTest, memory_comes_piece_by_piece_and_goes_at_once) {
  const std::uint64_t before = device_->free_bytes();
  constexpr std::size_t kBytes = 512 * kMiB + 3 * 4096;
  for (int round = 0; round < 5; ++round) {
    std::byte* range = device_->reserve(kBytes).value();
    if (!plain()) {
      EXPECT_GE(device_->free_bytes() + kSlack, before) << "addresses are no memory";
    }
    device_->map(range, 0, 2 * kMiB).value();
    EXPECT_EQ(device_of_pointer(range), 0);
    EXPECT_EQ(device_of_pointer(range + 2 * kMiB - 1), 0);
    for (std::size_t at = 2 * kMiB; at < kBytes; at += 102 * kMiB) {
      device_->map(range, at, std::min(102 * kMiB, kBytes - at)).value();
    }
    EXPECT_LE(device_->free_bytes() + kBytes, before + kSlack);

    // The device's own work and copies both cross the borders.
    check(cudaMemsetAsync(range, round + 1, kBytes, reinterpret_cast<cudaStream_t>(stream_)));
    EXPECT_TRUE(holds(range, kBytes, round + 1));
    test::Buffer bytes(8 * kMiB);
    bytes.scramble(static_cast<std::uint64_t>(round));
    EXPECT_TRUE(copy_and_wait(stream_, range + 100 * kMiB, bytes.data(), bytes.size()));
    EXPECT_TRUE(copy_and_wait(stream_, range + 300 * kMiB + 8, range + 100 * kMiB, bytes.size()));
    EXPECT_TRUE(std::ranges::equal(download(range + 300 * kMiB + 8, bytes.size()), bytes.first(bytes.size())));
    device_->unreserve(range, kBytes);
    EXPECT_GE(device_->free_bytes() + kSlack, before);
  }
}

TEST_F(CudaRangesTest, a_piece_that_is_refused_leaves_those_before_it) {
  if (plain()) GTEST_SKIP() << "there all of a range is allocated when it is reserved";
  const std::uint64_t before = device_->free_bytes();
  const std::size_t bytes = os::round_up(before, 2 * kMiB) + 4 * kGiB;
  std::byte* range = device_->reserve(bytes).value();
  device_->map(range, 0, 4 * kMiB).value();
  check(cudaMemsetAsync(range, 7, 4 * kMiB, reinterpret_cast<cudaStream_t>(stream_)));
  const Result<void> refused = device_->map(range, 4 * kMiB, bytes - 4 * kMiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_NE(refused.error().message.find(std::to_string(bytes - 4 * kMiB)), std::string::npos);
  EXPECT_TRUE(holds(range, 4 * kMiB, 7));
  device_->map(range, 4 * kMiB, 2 * kMiB).value();
  check(cudaMemsetAsync(range + 2 * kMiB, 8, 4 * kMiB, reinterpret_cast<cudaStream_t>(stream_)));
  EXPECT_TRUE(holds(range + 2 * kMiB, 4 * kMiB, 8));
  EXPECT_THROW(static_cast<void>(device_->map(range, 8 * kMiB, 2 * kMiB)), std::logic_error) << "a gap";
  EXPECT_THROW(static_cast<void>(device_->map(range, 6 * kMiB, kMiB)), std::logic_error) << "no granule";
  device_->unreserve(range, bytes);
  EXPECT_GE(device_->free_bytes() + kSlack, before);
}

TEST_F(CudaRangesTest, pieces_of_host_memory_are_pinned_one_by_one) {
  constexpr std::size_t kPiece = 4 * kMiB, kPieces = 8;
  std::byte* const host = os::map_pages(kPieces * kPiece).value();
  std::byte* const there = device_->allocate(kPieces * kPiece).value();
  const auto type = [&](std::size_t at) {
    cudaPointerAttributes attributes;
    check(cudaPointerGetAttributes(&attributes, host + at));
    return attributes.type;
  };
  test::Buffer bytes(kPiece);
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    os::populate(host + piece * kPiece, kPiece).value();
    device_->pin(host + piece * kPiece, kPiece).value();
    EXPECT_EQ(type(piece * kPiece), cudaMemoryTypeHost);
    EXPECT_EQ(type(piece * kPiece + kPiece - 1), cudaMemoryTypeHost);
    if (piece + 1 < kPieces) {
      EXPECT_EQ(type((piece + 1) * kPiece), cudaMemoryTypeUnregistered);
    }
    bytes.scramble(piece);
    std::ranges::copy(bytes.first(kPiece), host + piece * kPiece);
    ASSERT_TRUE(copy_and_wait(stream_, there + piece * kPiece, host + piece * kPiece, kPiece));
    ASSERT_TRUE(std::ranges::equal(download(there + piece * kPiece, kPiece), bytes.first(kPiece)));
    ASSERT_TRUE(copy_and_wait(stream_, host + piece * kPiece, there, kPiece));
    ASSERT_TRUE(std::equal(host, host + kPiece, host + piece * kPiece));
  }

  const Result<void> crossing = device_->copy(stream_, there, host + kPiece - 4096, 8192);
  ASSERT_FALSE(crossing);
  EXPECT_EQ(crossing.error().code, Errc::io_error);
  EXPECT_NE(crossing.error().message.find("cudaErrorInvalidValue"), std::string::npos) << crossing.error().message;
  EXPECT_FALSE(device_->copy(stream_, host + kPiece - 4096, there, 8192));
  EXPECT_TRUE(copy_and_wait(stream_, there, host + kPiece - 4096, 4096)) << "the device is none the worse";
  EXPECT_TRUE(copy_and_wait(stream_, there + 4096, host + kPiece, 4096));

  const Result<void> twice = device_->pin(host, kPiece);
  ASSERT_FALSE(twice) << "it is pinned already";
  EXPECT_NE(twice.error().message.find(std::to_string(kPiece)), std::string::npos) << twice.error().message;
  EXPECT_EQ(type(0), cudaMemoryTypeHost);
  for (std::size_t piece = 0; piece < kPieces; ++piece) device_->unpin(host + piece * kPiece, kPiece);
  EXPECT_EQ(type(0), cudaMemoryTypeUnregistered);
  EXPECT_TRUE(copy_and_wait(stream_, there, host, kPieces * kPiece)) << "pageable again";
  device_->free(there, kPieces * kPiece);
  os::unmap_pages(host, kPieces * kPiece);
}

}  // namespace
}  // namespace ebb::device
