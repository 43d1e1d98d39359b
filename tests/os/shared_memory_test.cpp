#include "os/shared_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/files.hpp"
#include "tests/doubles/fake_shared_memory.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::os::testing {
namespace {

namespace fs = std::filesystem;

// A directory in memory, deleted at the end.
class MemoryDirectory {
 public:
  MemoryDirectory() {
    std::string name = "/dev/shm/ebb-test-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory for the test: " + name);
    path_ = name;
  }
  MemoryDirectory(const MemoryDirectory&) = delete;
  ~MemoryDirectory() { fs::remove_all(path_); }
  fs::path path() const { return path_; }

 private:
  fs::path path_;
};

struct Place {
  std::unique_ptr<MemoryDirectory> directory;
  std::unique_ptr<SharedMemory> memory;
};
using MakePlace = std::function<Place()>;

Place on_tmpfs() {
  auto directory = std::make_unique<MemoryDirectory>();
  auto memory = std::make_unique<TmpfsSharedMemory>(directory->path() / "ebbtide");
  return {std::move(directory), std::move(memory)};
}
Place doubled() { return {nullptr, std::make_unique<doubles::FakeSharedMemory>()}; }

class SharedMemoryContract : public ::testing::TestWithParam<std::pair<const char*, MakePlace>> {
 protected:
  std::unique_ptr<SharedFile> make(const std::string& name, std::uint64_t blocks) {
    auto file = memory_.create(name).value();
    if (!file) throw std::runtime_error("the name is taken");
    if (blocks) file->allocate({0, blocks * kBlock}).value();
    return file;
  }
  static void fill(const SharedMapping& mapping, std::size_t block, int byte) {
    std::memset(mapping.data() + block * kBlock, byte, kBlock);
  }
  static std::string blocks(const SharedMapping& mapping) {
    std::string all;
    for (std::size_t at = 0; at < mapping.size(); at += kBlock) all += std::to_integer<char>(mapping.data()[at]);
    return all;
  }
  static FileRange at(std::uint64_t block, std::uint64_t count = 1) { return {block * kBlock, count * kBlock}; }
  Place place_ = GetParam().second();
  SharedMemory& memory_ = *place_.memory;
};

TEST_P(SharedMemoryContract, a_file_is_created_once_and_found_by_its_name) {
  EXPECT_EQ(memory_.open("pool").value(), nullptr);
  const auto first = make("pool", 0);
  EXPECT_EQ(memory_.create("pool").value(), nullptr);
  EXPECT_EQ(first->size().value(), 0u);
  first->allocate(at(0, 2)).value();
  const auto second = memory_.open("pool").value();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->size().value(), 2 * kBlock);
  make("other", 0);
  auto names = memory_.list().value();
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"other", "pool"}));
}

TEST_P(SharedMemoryContract, ranges_from_anywhere_are_mapped_next_to_each_other) {
  const auto file = make("pool", 6);
  const SharedMapping whole = file->map(std::array{at(0, 6)}).value();
  for (int i = 0; i < 6; ++i) fill(whole, static_cast<std::size_t>(i), 'a' + i);
  const auto other = memory_.open("pool").value();
  const SharedMapping some = other->map(std::array{at(4), at(0, 2), at(5), at(4)}).value();
  EXPECT_EQ(blocks(some), "eabfe");
  fill(some, 3, 'F');
  fill(some, 4, 'E');
  EXPECT_EQ(blocks(whole), "abcdEF");
  EXPECT_EQ(blocks(some), "EabFE");
  EXPECT_EQ(file->map({}).value().data(), nullptr);
}

TEST_P(SharedMemoryContract, a_mapping_outlives_its_file_and_its_name) {
  SharedMapping mapping;
  const auto file = make("pool", 1);
  mapping = file->map(std::array{at(0)}).value();
  EXPECT_TRUE(file->named());
  fill(mapping, 0, 'x');
  memory_.remove("pool").value();
  memory_.remove("pool").value();
  EXPECT_FALSE(file->named());
  EXPECT_EQ(memory_.open("pool").value(), nullptr);
  const SharedMapping moved = std::move(mapping);
  EXPECT_EQ(mapping.data(), nullptr);
  EXPECT_EQ(blocks(moved), "x");
  EXPECT_EQ(make("pool", 1)->map(std::array{at(0)}).value().data()[0], std::byte{0});
}

TEST_P(SharedMemoryContract, allocated_bytes_keep_their_values_and_punched_ones_are_zeros) {
  const auto file = make("pool", 2);
  const SharedMapping two = file->map(std::array{at(0, 2)}).value();
  fill(two, 0, 'a');
  fill(two, 1, 'b');
  file->allocate(at(0, 4)).value();
  EXPECT_EQ(file->size().value(), 4 * kBlock);
  EXPECT_EQ(blocks(two), "ab");
  file->punch(at(0)).value();
  EXPECT_EQ(file->size().value(), 4 * kBlock);
  file->allocate(at(0)).value();
  EXPECT_EQ(two.data()[0], std::byte{0});
  EXPECT_EQ(two.data()[kBlock], std::byte{'b'});
  file->punch(at(9)).value();  // beyond the end: nothing to return
  EXPECT_EQ(file->size().value(), 4 * kBlock);
}

TEST_P(SharedMemoryContract, what_is_held_is_not_a_childs_and_ends_with_its_process) {
  const ProcessId user{1234, 56789}, next{1235, 56789}, later{1234, 56790}, agent{};
  auto mine = make("pool", 1);
  const auto other = memory_.open("pool").value();
  mine->hold(user).value();
  mine->hold(user).value();
  EXPECT_TRUE(other->held(user).value());
  EXPECT_FALSE(mine->held(user).value()) << "not by another";
  for (const ProcessId& free : {next, later, agent}) EXPECT_FALSE(other->held(free).value());
  other->hold(user).value();  // by two
  EXPECT_TRUE(mine->held(user).value());
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {  // has none of its parent's, and holds as another until it is killed
    const auto its = memory_.open("pool").value();
    its->hold(later).value();
    static_cast<void>(!::write(ends[1], "h", 1));
    for (;;) ::pause();
  }
  char word = 0;
  ASSERT_EQ(::read(ends[0], &word, 1), 1);
  EXPECT_TRUE(mine->held(later).value());
  mine.reset();
  const auto again = memory_.open("pool").value();
  EXPECT_FALSE(other->held(user).value()) << "the forked child does not hold it on";
  EXPECT_TRUE(again->held(user).value());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(again->held(later).value());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(SharedMemoryContract, what_is_no_range_is_refused) {
  const auto file = make("pool", 4);
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 63;
  for (const FileRange wrong : {FileRange{1, kBlock},
                                {0, kBlock + 1},
                                {kHigh, kBlock},
                                {0, 0},
                                {kHigh - kBlock, 2 * kBlock},
                                {kBlock, ~std::uint64_t{0} - kBlock + 1}}) {
    EXPECT_EQ(file->allocate(wrong).error().code, Errc::invalid_argument) << wrong.offset << " " << wrong.bytes;
    EXPECT_EQ(file->punch(wrong).error().code, Errc::invalid_argument);
    EXPECT_EQ(file->map(std::array{at(0), wrong}).error().code, Errc::invalid_argument);
  }
  EXPECT_EQ(file->map(std::array{at(3, 2)}).error().code, Errc::invalid_argument);  // it would end in SIGBUS
  EXPECT_EQ(file->size().value(), 4 * kBlock);
}

TEST_P(SharedMemoryContract, what_is_no_name_is_refused) {
  for (const std::string& wrong : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                   std::string("a\0b", 3), std::string(256, 'n')}) {
    EXPECT_EQ(memory_.create(wrong).error().code, Errc::invalid_argument) << wrong;
    EXPECT_EQ(memory_.open(wrong).error().code, Errc::invalid_argument) << wrong;
    EXPECT_EQ(memory_.remove(wrong).error().code, Errc::invalid_argument) << wrong;
  }
  EXPECT_NE(memory_.create(std::string(255, 'n')).value(), nullptr);
}

TEST_P(SharedMemoryContract, a_child_has_neither_the_mapping_nor_the_descriptor) {
  const auto file = make("pool", 1);
  const SharedMapping mapping = file->map(std::array{at(0)}).value();
  const pid_t child = ::fork();
  if (child == 0) {
    unsigned char present = 0;
    const bool unmapped = ::mincore(mapping.data(), kBlock, &present) != 0 && errno == ENOMEM;
    static_cast<void>(::open("/dev/null", O_RDONLY));  // it may have the descriptor's number
    std::_Exit(unmapped && !file->size() && !file->punch(at(0)) ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(file->size());
}

INSTANTIATE_TEST_SUITE_P(, SharedMemoryContract,
                         ::testing::Values(std::pair<const char*, MakePlace>("tmpfs", on_tmpfs),
                                           std::pair<const char*, MakePlace>("double", doubled)),
                         [](const auto& info) { return std::string(info.param.first); });

class TmpfsSharedMemoryTest : public ::testing::Test {
 protected:
  // How opening "pool" is refused.
  Error refusal() {
    auto opened = TmpfsSharedMemory(directory_).open("pool");
    if (opened) throw std::logic_error("it was opened");
    return opened.error();
  }
  void expect_refused(Errc code, const std::string& why) {
    const Error error = refusal();
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_NE(error.message.find(why), error.message.npos) << error.message;
  }
  MemoryDirectory parent_;
  fs::path directory_ = parent_.path() / "ebbtide";
};

TEST_F(TmpfsSharedMemoryTest, all_is_this_users_alone) {
  ASSERT_NE(TmpfsSharedMemory(directory_).create("pool").value(), nullptr);
  struct stat found{};
  ASSERT_EQ(::lstat(directory_.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  ASSERT_EQ(::lstat((directory_ / "pool").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0600u);
  EXPECT_EQ(found.st_uid, ::geteuid());
  EXPECT_EQ(TmpfsSharedMemory::usual_directory(), "/dev/shm/ebbtide-" + std::to_string(::geteuid()));
}

TEST_F(TmpfsSharedMemoryTest, no_link_is_followed) {
  TmpfsSharedMemory memory(directory_);
  memory.create("target").value();
  fs::create_symlink(directory_ / "target", directory_ / "pool");
  expect_refused(Errc::not_permitted, "ELOOP");
  EXPECT_EQ(memory.create("pool").value(), nullptr);  // taken, and not followed
  fs::rename(directory_, parent_.path() / "moved");
  fs::create_directory_symlink(parent_.path() / "moved", directory_);
  expect_refused(Errc::not_permitted, "it is no directory");
}

TEST_F(TmpfsSharedMemoryTest, what_others_can_reach_is_refused) {
  TmpfsSharedMemory(directory_).create("pool").value();
  for (const mode_t mode : {0640, 0604, 0620, 0601}) {
    ASSERT_EQ(::chmod((directory_ / "pool").c_str(), mode), 0);
    expect_refused(Errc::not_permitted, "others have access to it");
  }
  ASSERT_EQ(::chmod((directory_ / "pool").c_str(), 0600), 0);
  ASSERT_EQ(::chmod(directory_.c_str(), 0710), 0);
  expect_refused(Errc::not_permitted, "others may look into it");
  ASSERT_EQ(::chmod(directory_.c_str(), 0770), 0);
  expect_refused(Errc::not_permitted, "others may write to it");
  ASSERT_EQ(::chmod(directory_.c_str(), 0700), 0);
  EXPECT_NE(TmpfsSharedMemory(directory_).open("pool").value(), nullptr);
}

TEST_F(TmpfsSharedMemoryTest, what_is_no_file_is_refused_and_waited_for_by_nobody) {
  TmpfsSharedMemory memory(directory_);
  memory.list().value();  // creates the directory
  ASSERT_EQ(::mkfifo((directory_ / "pool").c_str(), 0600), 0);
  expect_refused(Errc::not_permitted, "it is no regular file");
  memory.remove("pool").value();
  fs::create_directory(directory_ / "pool");
  EXPECT_EQ(refusal().code, Errc::io_error);
}

TEST_F(TmpfsSharedMemoryTest, what_belongs_to_another_user_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  TmpfsSharedMemory(directory_).create("pool").value();
  ASSERT_EQ(::chown((directory_ / "pool").c_str(), 12345, 12345), 0);
  expect_refused(Errc::not_permitted, "it belongs to user 12345");
  ASSERT_EQ(::chown((directory_ / "pool").c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(directory_.c_str(), 12345, 12345), 0);
  expect_refused(Errc::not_permitted, "it belongs to user 12345");
}

TEST_F(TmpfsSharedMemoryTest, a_directory_on_a_disk_is_refused) {
  struct statfs found{};
  ASSERT_EQ(::statfs(test::disk_directory().c_str(), &found), 0);
  if (found.f_type == 0x01021994) GTEST_SKIP() << "the test runs on a tmpfs";
  std::string name = test::disk_directory() / "shared-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const auto opened = TmpfsSharedMemory(name).open("pool");
  fs::remove_all(name);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Errc::unsupported);
  EXPECT_NE(opened.error().message.find("is not on a tmpfs"), std::string::npos);
}

TEST_F(TmpfsSharedMemoryTest, a_full_tmpfs_is_an_error_that_changes_nothing) {
  const auto file = TmpfsSharedMemory(directory_).create("pool").value();
  file->allocate({0, kBlock}).value();
  struct statfs found{};
  ASSERT_EQ(::statfs(directory_.c_str(), &found), 0);
  const auto whole = round_up(static_cast<std::uint64_t>(found.f_blocks) * static_cast<std::uint64_t>(found.f_bsize));
  if (whole == 0) GTEST_SKIP() << "this tmpfs has no limit";
  const auto refused = file->allocate({kBlock, whole + kBlock});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_space) << refused.error().message;
  EXPECT_EQ(file->size().value(), kBlock);
}

TEST(FakeSharedMemoryTest, a_call_fails_on_command_and_changes_nothing) {
  doubles::FakeSharedMemory memory;
  const auto file = memory.create("pool").value();
  memory.faults().fail_nth(doubles::SharedCall::allocate, 2, ENOSPC);
  file->allocate({0, kBlock}).value();
  EXPECT_EQ(file->allocate({kBlock, kBlock}).error().code, Errc::no_space);
  EXPECT_EQ(file->size().value(), kBlock);
  file->allocate({kBlock, kBlock}).value();
  memory.faults().fail_nth(doubles::SharedCall::map, 1, ENOMEM);
  EXPECT_EQ(file->map(std::array{FileRange{0, kBlock}}).error().code, Errc::out_of_memory);
  memory.faults().fail_nth(doubles::SharedCall::open, 1, EIO);
  EXPECT_EQ(memory.open("pool").error().code, Errc::io_error);
  EXPECT_NE(memory.open("pool").value(), nullptr);
  EXPECT_EQ(memory.faults().count(doubles::SharedCall::allocate), 3u);
}

}  // namespace
}  // namespace ebb::os::testing
