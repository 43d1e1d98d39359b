#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/os/test_files.hpp"

namespace ebb::os {
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

class PosixStore : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(name_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(name_); }
  std::string at(const char* name) const { return name_ + "/" + name; }
  std::string name_ = test::disk_directory() / "posix-XXXXXX";
  PosixFiles files_;
};

TEST_F(PosixStore, a_planted_link_is_not_followed) {
  const int target = static_cast<int>(files_.open(at("target"), Open::create, false).value);
  ASSERT_GE(target, 0);
  File closes(files_, target, "target", false);
  std::filesystem::create_symlink(at("target"), at("link"));
  std::filesystem::create_symlink(at("nowhere"), at("dangling"));
  EXPECT_EQ(files_.open(at("link"), Open::read, false).error, ELOOP);
  EXPECT_EQ(files_.open(at("link"), Open::write, false).error, ELOOP);
  EXPECT_EQ(files_.open(at("dangling"), Open::create, false).error, EEXIST);
  EXPECT_FALSE(std::filesystem::exists(at("nowhere")));
  EXPECT_EQ(files_.make_directory(at("dangling")).error, EEXIST);
  FileStatus found;
  ASSERT_TRUE(files_.status(at("link"), found));
  EXPECT_EQ(found.kind, FileStatus::Kind::link);
  ASSERT_TRUE(files_.remove(at("link")));
  EXPECT_TRUE(std::filesystem::exists(at("target")));
}

TEST_F(PosixStore, a_planted_pipe_is_refused_without_waiting_for_its_other_end) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_EQ(files_.open(at("pipe"), Open::read, false).error, ENXIO);
  EXPECT_EQ(files_.open(at("pipe"), Open::write, false).error, ENXIO);
  FileStatus found;
  ASSERT_TRUE(files_.status(at("pipe"), found));
  EXPECT_EQ(found.kind, FileStatus::Kind::other);
}

TEST_F(PosixStore, descriptors_close_on_exec_and_keep_their_flags) {
  for (const bool direct : {false, true}) {
    const SysResult opened = files_.open(at(direct ? "direct" : "plain"), Open::create, direct);
    if (direct && opened.error == EINVAL) GTEST_SKIP() << "the file system of the build tree has no O_DIRECT";
    const File file(files_, static_cast<int>(opened.value), "file", direct);
    EXPECT_EQ(::fcntl(file.fd(), F_GETFD), FD_CLOEXEC);
    const int flags = ::fcntl(file.fd(), F_GETFL);
    EXPECT_EQ(flags & O_NONBLOCK, 0);
    EXPECT_EQ((flags & O_DIRECT) != 0, direct);
    FileStatus found;
    ASSERT_TRUE(files_.status(file.fd(), found));
    EXPECT_EQ(found.mode, 0600u);
  }
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

// A child that outlives its parent, or a parent that releases the lock: pipes report their progress.
class LockedBesideAChild : public ::testing::Test {
 protected:
  static bool take(PosixFiles& files, const std::string& path) {
    const SysResult taken = files.lock(path, Open::create);
    EXPECT_TRUE(taken || taken.error == EWOULDBLOCK);
    const FileLock lock(files, taken ? static_cast<int>(taken.value) : -1);
    return static_cast<bool>(taken);
  }
  LockedBesideAChild() {
    EXPECT_EQ(::pipe(said_), 0);
    EXPECT_EQ(::pipe(goes_on_), 0);
  }
  ~LockedBesideAChild() override {
    for (const int end : {said_[0], said_[1], goes_on_[0], goes_on_[1]}) ::close(end);
    ::unlink(path_.c_str());
  }
  static void say(const int (&pipe)[2]) { EXPECT_EQ(::write(pipe[1], "x", 1), 1); }
  static void hear(const int (&pipe)[2]) {
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
  }
  const std::string path_ = test::disk_directory() / ("locked-" + std::to_string(::getpid()));
  int said_[2], goes_on_[2];
};

TEST_F(LockedBesideAChild, the_lock_is_given_back_by_its_own_process_alone) {
  PosixFiles files;
  auto lock = std::make_unique<FileLock>(files, static_cast<int>(files.lock(path_, Open::create).value));
  const int fd = lock->fd();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    struct stat found;
    if (::fstat(fd, &found) == 0 || files.unlock(fd).error != EBADF || take(files, path_)) ::_exit(1);
    const int other = ::open("/dev/null", O_RDONLY);
    lock.reset();
    if (other == fd && ::fstat(other, &found) != 0) ::_exit(2);
    say(said_);
    hear(goes_on_);  // the parent has released it
    ::_exit(take(files, path_) ? 0 : 3);
  }
  hear(said_);
  EXPECT_FALSE(take(files, path_)) << "the child unlocked it";
  lock.reset();
  EXPECT_TRUE(take(files, path_)) << "the child lives";
  say(goes_on_);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LockedBesideAChild, a_child_keeps_nothing_for_a_parent_that_was_killed) {
  PosixFiles files;
  const pid_t parent = ::fork();
  if (parent == 0) {
    const FileLock lock(files, static_cast<int>(files.lock(path_, Open::create).value));
    if (::fork() == 0) {
      ::alarm(60);
      say(said_);
      hear(goes_on_);
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  hear(said_);
  EXPECT_FALSE(take(files, path_));
  ASSERT_EQ(::kill(parent, SIGKILL), 0);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  EXPECT_TRUE(take(files, path_));
  say(goes_on_);
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
}  // namespace ebb::os
