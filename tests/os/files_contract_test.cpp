#include <cerrno>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <unistd.h>

#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/memory_files.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::os::testing {
namespace {

// An implementation, and an empty directory on it.
struct Place {
  std::unique_ptr<Files> inner, files;
  std::filesystem::path directory;
  std::filesystem::path to_delete;
  ~Place() {
    if (!to_delete.empty()) std::filesystem::remove_all(to_delete);
  }
};
using MakePlace = std::function<std::unique_ptr<Place>()>;

std::unique_ptr<Place> on_disk() {
  auto place = std::make_unique<Place>();
  std::string name = test::disk_directory() / "files-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no directory for the test: " + name);
  place->directory = place->to_delete = name;
  place->files = std::make_unique<PosixFiles>();
  return place;
}

std::unique_ptr<Place> in_memory() {
  auto place = std::make_unique<Place>();
  place->directory = "/store";
  place->files = std::make_unique<doubles::MemoryFiles>();
  if (!place->files->make_directory("/store")) throw std::runtime_error("no directory for the test");
  return place;
}

std::unique_ptr<Place> without_a_fault() {
  auto place = in_memory();
  place->inner = std::move(place->files);
  place->files = std::make_unique<doubles::FaultyFiles>(*place->inner, 1);
  return place;
}

class FilesContract : public ::testing::TestWithParam<std::pair<const char*, MakePlace>> {
 protected:
  std::filesystem::path at(const char* name) const { return place_->directory / name; }
  int open(const char* name, Open how, bool direct = false) {
    const SysResult opened = files_.open(at(name), how, direct);
    EXPECT_TRUE(opened) << name << ": " << describe_errno(opened.error);
    return static_cast<int>(opened.value);
  }
  void put(int fd, const std::string& text, std::uint64_t offset = 0) {
    EXPECT_EQ(files_.write(fd, text.data(), text.size(), offset).value, static_cast<std::int64_t>(text.size()));
  }
  std::string get(int fd, std::size_t bytes, std::uint64_t offset = 0) {
    std::string text(bytes, '?');
    const SysResult got = files_.read(fd, text.data(), bytes, offset);
    EXPECT_TRUE(got);
    text.resize(static_cast<std::size_t>(got.value));
    return text;
  }
  FileStatus status(int fd) {
    FileStatus found;
    EXPECT_TRUE(files_.status(fd, found));
    return found;
  }
  std::vector<std::string> names() {
    std::vector<std::string> all{"left from before"};
    EXPECT_TRUE(files_.list(place_->directory, all));
    std::ranges::sort(all);
    return all;
  }
  void make(const char* name, const std::string& text = "") {
    const int fd = open(name, Open::create);
    put(fd, text);
    EXPECT_TRUE(files_.close(fd));
  }
  using Names = std::vector<std::string>;
  std::unique_ptr<Place> place_ = GetParam().second();
  Files& files_ = *place_->files;
};

TEST_P(FilesContract, create_is_the_first_and_the_others_find_it) {
  EXPECT_EQ(files_.open(at("f"), Open::read, false).error, ENOENT);
  EXPECT_EQ(files_.open(at("f"), Open::write, false).error, ENOENT);
  EXPECT_EQ(files_.open(at("none/f"), Open::create, false).error, ENOENT);
  const int fd = open("f", Open::create);
  EXPECT_EQ(files_.open(at("f"), Open::create, false).error, EEXIST);
  put(fd, "hello");
  EXPECT_EQ(get(fd, 5), "hello");
  const int second = open("f", Open::write), third = open("f", Open::read);
  put(second, "J");
  EXPECT_EQ(get(third, 100), "Jello");
  EXPECT_EQ(get(third, 100, 3), "lo");
  EXPECT_EQ(get(third, 100, 5), "");
  EXPECT_EQ(files_.write(third, "x", 1, 0).error, EBADF);
  EXPECT_EQ(files_.open(at("f/below"), Open::read, false).error, ENOTDIR);
  EXPECT_EQ(files_.open(place_->directory, Open::read, false).error, EISDIR);
  EXPECT_EQ(files_.open(at(std::string(256, 'n').c_str()), Open::create, false).error, ENAMETOOLONG);
  for (const int each : {fd, second, third}) EXPECT_TRUE(files_.close(each));
  char byte = 0;
  EXPECT_EQ(files_.read(fd, &byte, 1, 0).error, EBADF);
  EXPECT_EQ(files_.close(fd).error, EBADF);
}

TEST_P(FilesContract, status_tells_of_files_and_directories) {
  make("f", "hello");
  FileStatus found;
  ASSERT_TRUE(files_.status(at("f"), found));
  EXPECT_EQ(found.kind, FileStatus::Kind::file);
  EXPECT_EQ(found.bytes, 5u);
  EXPECT_EQ(found.mode, 0600u);
  EXPECT_EQ(found.owner, ::geteuid());
  EXPECT_EQ(found.links, 1u);
  ASSERT_TRUE(files_.make_directory(at("d")));
  ASSERT_TRUE(files_.status(at("d"), found));
  EXPECT_EQ(found.kind, FileStatus::Kind::directory);
  EXPECT_EQ(found.mode, 0700u);
  EXPECT_EQ(files_.status(at("none"), found).error, ENOENT);
  EXPECT_EQ(files_.status(-1, found).error, EBADF);
}

TEST_P(FilesContract, names_are_made_listed_moved_and_removed) {
  EXPECT_EQ(names(), Names());
  make("b", "b");
  make("a", "a");
  ASSERT_TRUE(files_.make_directory(at("d")));
  EXPECT_EQ(files_.make_directory(at("d")).error, EEXIST);
  EXPECT_EQ(files_.make_directory(at("a")).error, EEXIST);
  EXPECT_EQ(files_.make_directory(at("none/d")).error, ENOENT);
  EXPECT_EQ(names(), Names({"a", "b", "d"}));
  ASSERT_TRUE(files_.rename(at("a"), at("b")));
  EXPECT_EQ(names(), Names({"b", "d"}));
  EXPECT_EQ(get(open("b", Open::read), 9), "a");
  EXPECT_EQ(files_.rename(at("a"), at("c")).error, ENOENT);
  EXPECT_EQ(files_.rename(at("b"), at("d")).error, EISDIR);
  EXPECT_EQ(files_.rename(at("d"), at("b")).error, ENOTDIR);
  EXPECT_EQ(files_.rename(at("d"), at("d/e")).error, EINVAL);
  ASSERT_TRUE(files_.rename(at("b"), at("d/b")));
  EXPECT_EQ(files_.remove(at("d")).error, ENOTEMPTY);
  ASSERT_TRUE(files_.remove(at("d/b")));
  EXPECT_EQ(files_.remove(at("d/b")).error, ENOENT);
  ASSERT_TRUE(files_.remove(at("d")));
  EXPECT_EQ(names(), Names());
  Names all;
  EXPECT_EQ(files_.list(at("d"), all).error, ENOENT);
}

TEST_P(FilesContract, a_file_lives_without_its_name_while_it_is_open) {
  const int fd = open("f", Open::create);
  put(fd, "hello");
  ASSERT_TRUE(files_.remove(at("f")));
  EXPECT_EQ(status(fd).links, 0u);
  put(fd, "J");
  EXPECT_EQ(get(fd, 5), "Jello");
  make("f", "new");
  EXPECT_EQ(get(fd, 5), "Jello");
  EXPECT_TRUE(files_.close(fd));
  const SysResult unlinked = files_.open_unlinked(place_->directory, false);
  ASSERT_TRUE(unlinked);
  EXPECT_EQ(names(), Names({"f"}));
  EXPECT_TRUE(files_.close(static_cast<int>(unlinked.value)));
}

TEST_P(FilesContract, lengths_holes_and_punches_read_as_zeros) {
  const int fd = open("f", Open::create);
  put(fd, std::string(8192, 'x'), 65536);
  EXPECT_EQ(status(fd).bytes, 65536u + 8192);
  EXPECT_EQ(get(fd, 4, 65534), std::string("\0\0xx", 4));
  ASSERT_TRUE(files_.truncate(fd, 65537));
  ASSERT_TRUE(files_.truncate(fd, 65540));
  EXPECT_EQ(get(fd, 100, 65536), std::string("x\0\0\0", 4));
  EXPECT_EQ(files_.truncate(-1, 0).error, EBADF);
  EXPECT_EQ(files_.punch(fd, 0, 0).error, EINVAL);
  put(fd, std::string(65536, 'y'));
  const SysResult punched = files_.punch(fd, 4095, 8193);
  if (punched.error == EOPNOTSUPP) GTEST_SKIP() << "the file system of the build tree punches no holes";
  ASSERT_TRUE(punched);
  EXPECT_EQ(get(fd, 2, 4094), std::string("y\0", 2));
  EXPECT_EQ(get(fd, 2, 12287), std::string("\0y", 2));
  EXPECT_EQ(get(fd, 8193, 4095), std::string(8193, '\0'));
  EXPECT_EQ(status(fd).bytes, 65540u);
  EXPECT_TRUE(files_.close(fd));
}

TEST_P(FilesContract, nothing_that_was_written_is_passed_over) {
  constexpr std::int64_t kAt = 1 << 20;
  const int fd = open("f", Open::create);
  ASSERT_TRUE(files_.truncate(fd, 4 << 20));
  put(fd, "x", kAt);
  for (const bool synced : {false, true}) {
    SCOPED_TRACE(synced);
    for (const std::int64_t from : {std::int64_t{0}, std::int64_t{4096}, kAt - 1, kAt}) {
      const SysResult next = files_.next_data(fd, static_cast<std::uint64_t>(from));
      ASSERT_TRUE(next) << from;
      EXPECT_GE(next.value, from);
      EXPECT_LE(next.value, kAt);
    }
    EXPECT_EQ(files_.next_data(fd, 4 << 20).error, ENXIO);
    EXPECT_TRUE(files_.sync(fd));
    EXPECT_TRUE(files_.drop_cached(fd));
    EXPECT_EQ(get(fd, 1, kAt), "x") << "it is on the disk";
  }
  EXPECT_EQ(files_.next_data(-1, 0).error, EBADF);
  EXPECT_EQ(files_.drop_cached(-1).error, EBADF);
  EXPECT_TRUE(files_.close(fd));
}

TEST_P(FilesContract, allocation_is_taken_and_given_back) {
  const int fd = open("f", Open::create);
  ASSERT_TRUE(files_.truncate(fd, 1 << 20));
  EXPECT_LT(status(fd).allocated, 1u << 19);
  const SysResult taken = files_.preallocate(fd, 0, 2 << 20);
  if (taken.error == EOPNOTSUPP) GTEST_SKIP() << "the file system of the build tree has no fallocate";
  ASSERT_TRUE(taken);
  EXPECT_EQ(status(fd).bytes, 2u << 20);
  EXPECT_GE(status(fd).allocated, 2u << 20);
  ASSERT_TRUE(files_.punch(fd, 0, 2 << 20));
  EXPECT_LT(status(fd).allocated, 1u << 19);
  EXPECT_EQ(files_.preallocate(fd, 0, 0).error, EINVAL);
  EXPECT_TRUE(files_.close(fd));
}

TEST_P(FilesContract, direct_files_keep_what_is_written) {
  const SysResult opened = files_.open(at("f"), Open::create, true);
  if (opened.error == EINVAL) GTEST_SKIP() << "the file system of the build tree has no O_DIRECT";
  const int fd = static_cast<int>(opened.value);
  test::Buffer out(8192), in(8192);
  out.scramble(3);
  EXPECT_EQ(files_.write(fd, out.data(), 8192, 4096).value, 8192);
  EXPECT_EQ(files_.read(fd, in.data(), 8192, 4096).value, 8192);
  EXPECT_TRUE(std::ranges::equal(out.first(8192), in.first(8192)));
  EXPECT_TRUE(files_.close(fd));
}

TEST_P(FilesContract, a_lock_is_for_one_until_it_is_given_back) {
  EXPECT_EQ(files_.lock(at("lock"), Open::read).error, ENOENT);
  const SysResult first = files_.lock(at("lock"), Open::create);
  ASSERT_TRUE(first);
  put(static_cast<int>(first.value), "mine");
  for (const Open how : {Open::read, Open::write, Open::create}) {
    EXPECT_EQ(files_.lock(at("lock"), how).error, EWOULDBLOCK);
  }
  EXPECT_TRUE(files_.unlock(static_cast<int>(first.value)));
  EXPECT_EQ(files_.unlock(static_cast<int>(first.value)).error, EBADF);
  char byte = 0;
  EXPECT_EQ(files_.read(static_cast<int>(first.value), &byte, 1, 0).error, EBADF);
  for (const Open how : {Open::read, Open::write, Open::create}) {
    const SysResult next = files_.lock(at("lock"), how);
    ASSERT_TRUE(next);
    EXPECT_EQ(get(static_cast<int>(next.value), 10), "mine");
    EXPECT_TRUE(files_.unlock(static_cast<int>(next.value)));
  }
  const FileLock held(files_, static_cast<int>(files_.lock(at("lock"), Open::write).value));
  {
    const FileLock other(files_, static_cast<int>(files_.lock(at("other"), Open::create).value));
  }
  EXPECT_EQ(files_.lock(at("lock"), Open::write).error, EWOULDBLOCK);
  {
    FileLock other(files_, static_cast<int>(files_.lock(at("other"), Open::write).value)), moved = std::move(other);
  }
  EXPECT_TRUE(files_.lock(at("other"), Open::write));
}

TEST_P(FilesContract, a_name_tells_which_file_it_is_of) {
  make("f"), make("g");
  const int fd = open("f", Open::read);
  FileStatus f, g, directory;
  ASSERT_TRUE(files_.status(at("f"), f) && files_.status(at("g"), g) && files_.status(place_->directory, directory));
  EXPECT_TRUE(f.is(status(fd)));
  EXPECT_FALSE(g.is(f));
  EXPECT_FALSE(g.is(directory));
  ASSERT_TRUE(files_.rename(at("g"), at("f")));
  ASSERT_TRUE(files_.status(at("f"), f));
  EXPECT_TRUE(f.is(g));
  EXPECT_FALSE(f.is(status(fd)));
  EXPECT_EQ(status(fd).links, 0u);
  EXPECT_TRUE(files_.close(fd));
}

TEST_P(FilesContract, syncs_ask_for_what_is_there) {
  const int fd = open("f", Open::create);
  put(fd, "x");
  EXPECT_TRUE(files_.sync(fd));
  EXPECT_TRUE(files_.close(fd));
  EXPECT_EQ(files_.sync(-1).error, EBADF);
  EXPECT_TRUE(files_.sync_directory(place_->directory));
  EXPECT_EQ(files_.sync_directory(at("none")).error, ENOENT);
  EXPECT_EQ(files_.sync_directory(at("f")).error, ENOTDIR);
}

TEST_P(FilesContract, open_write_empties_and_open_read_reads) {
  make("f", "hello");
  const SysResult write = files_.open_write(at("f"));
  ASSERT_TRUE(write);
  put(static_cast<int>(write.value), "J");
  EXPECT_TRUE(files_.close(static_cast<int>(write.value)));
  const SysResult read = files_.open_read(at("f"));
  ASSERT_TRUE(read);
  EXPECT_EQ(get(static_cast<int>(read.value), 9), "J");
  EXPECT_TRUE(files_.close(static_cast<int>(read.value)));
  FileSystem system;
  ASSERT_TRUE(files_.describe(place_->directory, system));
  EXPECT_GT(system.free_bytes, 0u);
  EXPECT_EQ(files_.describe(at("none"), system).error, ENOENT);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, FilesContract,
                         ::testing::Values(std::pair<const char*, MakePlace>{"posix", on_disk},
                                           std::pair<const char*, MakePlace>{"memory", in_memory},
                                           std::pair<const char*, MakePlace>{"faulty", without_a_fault}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace ebb::os::testing
