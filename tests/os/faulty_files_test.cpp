#include "tests/doubles/faulty_files.hpp"

#include <cerrno>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include "tests/doubles/memory_files.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::os::testing {
namespace {

class FaultyFilesTest : public ::testing::Test {
 protected:
  SysResult write(std::size_t bytes, std::uint64_t offset = 0) {
    return files_.write(file_.fd(), memory_.data(), bytes, offset);
  }
  PosixFiles inner_;
  doubles::FaultyFiles files_{inner_, 7};
  File file_ = test::open_file(files_, false, 1 << 20);
  test::Buffer memory_{1 << 16, std::byte{5}};
};

TEST_F(FaultyFilesTest, fails_exactly_the_calls_it_is_told_to_and_records_all) {
  files_.fail_nth(doubles::FileCall::write, 2, ENOSPC, 2);
  EXPECT_EQ(write(10).value, 10);
  EXPECT_EQ(write(10, 100).error, ENOSPC);
  EXPECT_EQ(write(10).error, ENOSPC);
  EXPECT_EQ(write(10).value, 10);
  EXPECT_EQ(files_.count(doubles::FileCall::write), 4u);
  const doubles::FileRecord last_failed = files_.records().at(3);  // after open and truncate
  EXPECT_EQ(last_failed.call, doubles::FileCall::write);
  EXPECT_EQ(last_failed.offset, 100u);
  EXPECT_EQ(last_failed.bytes, 10u);
  EXPECT_EQ(last_failed.result.error, ENOSPC);
}

TEST_F(FaultyFilesTest, every_kind_of_call_can_fail) {
  FileSystem file_system;
  std::byte byte{};
  files_.fail_nth(doubles::FileCall::open, 1, EMFILE);
  EXPECT_EQ(files_.open_unlinked(test::disk_directory(), false).error, EMFILE);
  files_.fail_nth(doubles::FileCall::read, 1, EIO);
  EXPECT_EQ(files_.read(file_.fd(), &byte, 1, 0).error, EIO);
  files_.fail_nth(doubles::FileCall::truncate, 1, EFBIG);
  EXPECT_EQ(files_.truncate(file_.fd(), 1).error, EFBIG);
  files_.fail_nth(doubles::FileCall::preallocate, 1, EOPNOTSUPP);
  EXPECT_EQ(files_.preallocate(file_.fd(), 0, 1).error, EOPNOTSUPP);
  files_.fail_nth(doubles::FileCall::punch, 1, EOPNOTSUPP);
  EXPECT_EQ(files_.punch(file_.fd(), 0, 1).error, EOPNOTSUPP);
  files_.fail_nth(doubles::FileCall::drop_cached, 1, EIO);
  EXPECT_EQ(files_.drop_cached(file_.fd()).error, EIO);
  files_.fail_nth(doubles::FileCall::next_data, 1, EINVAL);
  EXPECT_EQ(files_.next_data(file_.fd(), 7).error, EINVAL);
  EXPECT_EQ(files_.records().back().offset, 7u);
  files_.fail_nth(doubles::FileCall::describe, 1, EACCES);
  EXPECT_EQ(files_.describe(test::disk_directory(), file_system).error, EACCES);
  files_.fail_nth(doubles::FileCall::open_ring, 1, EPERM);
  EXPECT_EQ(files_.open_ring(4).error().code, Errc::unsupported);
  files_.fail_nth(doubles::FileCall::close, 1, EIO);
  EXPECT_EQ(files_.open_files(), 1u);
  file_ = File();
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST_F(FaultyFilesTest, calls_on_names_fail_too_and_are_recorded_with_them) {
  doubles::MemoryFiles inner;
  doubles::FaultyFiles files(inner, 1);
  const int fd = static_cast<int>(files.open("/f", Open::create, false).value);
  FileStatus status;
  std::vector<std::string> names;
  const std::vector<std::pair<doubles::FileCall, std::function<SysResult()>>> calls{
      {doubles::FileCall::open, [&] { return files.open("/g", Open::create, false); }},
      {doubles::FileCall::sync, [&] { return files.sync(fd); }},
      {doubles::FileCall::lock, [&] { return files.lock("/f", Open::write); }},
      {doubles::FileCall::status, [&] { return files.status(fd, status); }},
      {doubles::FileCall::status, [&] { return files.status("/f", status); }},
      {doubles::FileCall::list, [&] { return files.list("/", names); }},
      {doubles::FileCall::sync_directory, [&] { return files.sync_directory("/"); }},
      {doubles::FileCall::make_directory, [&] { return files.make_directory("/d"); }},
      {doubles::FileCall::rename, [&] { return files.rename("/f", "/h"); }},
      {doubles::FileCall::remove, [&] { return files.remove("/h"); }},
  };
  for (const auto& [call, make] : calls) {
    const std::size_t before = inner.changes();
    files.fail_nth(call, 1, EIO);
    EXPECT_EQ(make().error, EIO) << static_cast<int>(call);
    EXPECT_EQ(inner.changes(), before) << static_cast<int>(call);
    EXPECT_EQ(files.records().back().call, call);
    EXPECT_EQ(files.records().back().result.error, EIO);
    EXPECT_TRUE(make()) << static_cast<int>(call);
  }
  const std::vector<doubles::FileRecord> records = files.records();
  EXPECT_EQ(records.at(1).path, "/g");
  EXPECT_EQ(records.at(3).path, "/f");  // of the descriptor that is synced
  EXPECT_EQ(records.at(records.size() - 3).path, "/f");
  EXPECT_EQ(records.at(records.size() - 3).to, "/h");
  EXPECT_EQ(files.open_files(), 3u);  // one of them locked
}

TEST_F(FaultyFilesTest, a_shortened_transfer_moves_no_more_than_it_says) {
  files_.shorten_nth(doubles::FileCall::write, 1);
  const SysResult put = write(1000);
  ASSERT_TRUE(put);
  ASSERT_GT(put.value, 0);
  ASSERT_LT(put.value, 1000);
  test::Buffer seen(1000);
  ASSERT_EQ(inner_.read(file_.fd(), seen.data(), 1000, 0).value, 1000);
  EXPECT_EQ(seen.data()[put.value - 1], std::byte{5});
  EXPECT_EQ(seen.data()[put.value], std::byte{0});

  ASSERT_EQ(write(1000).value, 1000);
  files_.shorten_nth(doubles::FileCall::read, 1, 1, 10);
  test::Buffer back(1000, std::byte{9});
  EXPECT_EQ(files_.read(file_.fd(), back.data(), 1000, 0).value, 10);
  EXPECT_EQ(back.data()[9], std::byte{5});
  EXPECT_EQ(back.data()[10], std::byte{9});
}

TEST_F(FaultyFilesTest, the_rest_of_a_cut_block_of_a_direct_file_is_poison) {
  File direct = test::open_file(files_, true, 1 << 20);
  files_.shorten_nth(doubles::FileCall::write, 1, 1, 5000);
  EXPECT_EQ(files_.write(direct.fd(), memory_.data(), 12288, 0).value, 5000);
  test::Buffer seen(12288, std::byte{1});
  ASSERT_EQ(inner_.read(direct.fd(), seen.data(), 12288, 0).value, 12288);
  EXPECT_EQ(seen.data()[4999], std::byte{5});
  EXPECT_EQ(seen.data()[5000], std::byte{0xEB});
  EXPECT_EQ(seen.data()[8191], std::byte{0xEB});
  EXPECT_EQ(seen.data()[8192], std::byte{0});
  EXPECT_EQ(memory_.data()[5000], std::byte{5});  // the caller's memory stays as it was

  files_.shorten_nth(doubles::FileCall::read, 1, 1, 4999);
  test::Buffer back(12288, std::byte{9});
  EXPECT_EQ(files_.read(direct.fd(), back.data(), 12288, 0).value, 4999);
  EXPECT_EQ(back.data()[4998], std::byte{5});
  EXPECT_EQ(back.data()[4999], std::byte{0xEB});
  EXPECT_EQ(back.data()[8192], std::byte{9});
}

TEST_F(FaultyFilesTest, rates_come_from_the_seed) {
  const auto errors = [&](std::uint64_t seed) {
    doubles::FaultyFiles files(inner_, seed);
    files.fail_at_rate(doubles::FileCall::write, 0.3, EIO);
    std::vector<int> all;
    for (int i = 0; i < 200; ++i) all.push_back(files.write(file_.fd(), memory_.data(), 1, 0).error);
    return all;
  };
  const std::vector<int> once = errors(1);
  EXPECT_EQ(once, errors(1));
  EXPECT_NE(once, errors(2));
  const auto failed = std::ranges::count(once, EIO);
  EXPECT_GT(failed, 20);
  EXPECT_LT(failed, 120);
}

TEST_F(FaultyFilesTest, what_is_held_stands_until_it_is_released) {
  files_.hold(doubles::FileCall::write);
  std::thread writer([&] { EXPECT_EQ(write(10).value, 10); });
  files_.await_held(doubles::FileCall::write, 1);
  test::Buffer seen(10, std::byte{1});
  ASSERT_EQ(files_.read(file_.fd(), seen.data(), 10, 0).value, 10);  // reads are not held
  EXPECT_EQ(seen.data()[0], std::byte{0});
  files_.release(doubles::FileCall::write);
  writer.join();
  ASSERT_EQ(files_.read(file_.fd(), seen.data(), 10, 0).value, 10);
  EXPECT_EQ(seen.data()[0], std::byte{5});
}

TEST_F(FaultyFilesTest, pretends_to_be_another_file_system_and_forgets_faults) {
  files_.pretend({"tmpfs", true, 5, 6});
  FileSystem file_system;
  ASSERT_TRUE(files_.describe(test::disk_directory(), file_system));
  EXPECT_EQ(file_system.kind, "tmpfs");
  EXPECT_EQ(file_system.free_bytes, 5u);
  files_.fail_at_rate(doubles::FileCall::write, 1, EIO);
  EXPECT_EQ(write(1).error, EIO);
  files_.clear_faults();
  EXPECT_EQ(write(1).value, 1);
}

}  // namespace
}  // namespace ebb::os::testing
