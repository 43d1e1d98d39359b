#include <gtest/gtest.h>

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/platform/test_files.hpp"

namespace ebb::platform {
namespace {

TEST(PosixFiles, an_unlinked_file_is_private_and_nameless) {
  PosixFiles files;
  const File file = test::open_file(files, false, 8192);
  struct stat found;
  ASSERT_EQ(::fstat(file.fd(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  EXPECT_EQ(found.st_nlink, 0u);
  EXPECT_EQ(found.st_size, 8192);
}

TEST(PosixFiles, reads_back_what_was_written_direct_and_buffered) {
  PosixFiles files;
  for (const bool direct : {false, true}) {
    const File file = test::open_file(files, direct, 1 << 20);
    test::Buffer out(65536), in(65536);
    out.scramble(1);
    EXPECT_EQ(files.write(file.fd(), out.data(), out.size(), 8192).value, 65536);
    EXPECT_EQ(files.read(file.fd(), in.data(), in.size(), 8192).value, 65536);
    EXPECT_TRUE(std::ranges::equal(out.first(65536), in.first(65536)));
  }
}

TEST(PosixFiles, preallocate_takes_space_and_punch_gives_it_back) {
  PosixFiles files;
  const File file = test::open_file(files, false, 16 << 20);
  const auto blocks = [&] {
    struct stat found;
    EXPECT_EQ(::fstat(file.fd(), &found), 0);
    return static_cast<std::uint64_t>(found.st_blocks) * 512;
  };
  const SysResult taken = files.preallocate(file.fd(), 0, 16 << 20);
  if (taken.error == EOPNOTSUPP) GTEST_SKIP() << "the file system of the build tree has no fallocate";
  ASSERT_TRUE(taken);
  EXPECT_GE(blocks(), 16u << 20);
  ASSERT_TRUE(files.punch(file.fd(), 0, 16 << 20));
  EXPECT_LT(blocks(), 1u << 20);
}

TEST(PosixFiles, failures_are_errnos) {
  PosixFiles files;
  EXPECT_EQ(files.open_unlinked("/nonexistent/directory", false).error, ENOENT);
  FileSystem file_system;
  EXPECT_EQ(files.describe("/nonexistent/directory", file_system).error, ENOENT);
  std::byte byte{};
  EXPECT_EQ(files.read(-1, &byte, 1, 0).error, EBADF);
  EXPECT_EQ(files.write(-1, &byte, 1, 0).error, EBADF);
  EXPECT_EQ(files.truncate(-1, 0).error, EBADF);
  EXPECT_EQ(files.preallocate(-1, 0, 1).error, EBADF);
  EXPECT_EQ(files.close(-1).error, EBADF);
  EXPECT_EQ(describe_errno(ENOSPC), "ENOSPC (No space left on device)");
}

TEST(PosixFiles, tells_a_memory_file_system_from_a_disk) {
  PosixFiles files;
  FileSystem disk;
  ASSERT_TRUE(files.describe(test::disk_directory(), disk));
  EXPECT_FALSE(disk.in_memory);
  EXPECT_FALSE(disk.kind.empty());
  EXPECT_GT(disk.total_bytes, disk.free_bytes);
  EXPECT_GT(disk.free_bytes, 0u);
  FileSystem memory;
  if (!files.describe("/dev/shm", memory) || memory.kind != "tmpfs") GTEST_SKIP() << "/dev/shm is not a tmpfs here";
  EXPECT_TRUE(memory.in_memory);
}

TEST(File, closes_once_and_its_move_leaves_nothing) {
  PosixFiles files;
  int fd = -1;
  {
    File first = test::open_file(files, false);
    fd = first.fd();
    File second = std::move(first);
    EXPECT_EQ(first.fd(), -1);
    EXPECT_EQ(second.fd(), fd);
    second = File();
    struct stat found;
    EXPECT_EQ(::fstat(fd, &found), -1);
  }
}

}  // namespace
}  // namespace ebb::platform
