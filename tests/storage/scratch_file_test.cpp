// The scratch file in particular: opening, placement of bytes, faults. And that its double is late.
#include "storage/scratch/scratch_file.hpp"

#include <cerrno>
#include <gtest/gtest.h>
#include <stdexcept>

#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/fake_storage.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/os/test_files.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::storage {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;
using test::Buffer;

class ScratchFileTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Storage>> open(std::uint64_t capacity = 1 << 20, bool direct = true) {
    ScratchOptions options{test::disk_directory(), capacity, direct, {}};
    options.engine.kind = transfer::FileEngineOptions::Kind::threads;
    options.engine.request_bytes = 16384;
    return open_scratch_file(files_, options, completions_.done());
  }
  void expect_refused(Errc code, const char* word, bool direct = true) {
    const auto refused = open(1 << 20, direct);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, code) << refused.error().message;
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(test::disk_directory().string()), std::string::npos);
    EXPECT_EQ(files_.open_files(), 0u);
  }
  os::PosixFiles posix_;
  FaultyFiles files_{posix_, 1};
  test::Completions completions_;
};

TEST_F(ScratchFileTest, refuses_memory_file_systems_by_name) {
  files_.pretend({"tmpfs", true, 1 << 30, 1 << 30});
  expect_refused(Errc::unsupported, "tmpfs");
}

TEST_F(ScratchFileTest, refuses_more_than_is_free) {
  files_.pretend({"ext4", false, (1 << 20) - 1, 1 << 30});
  expect_refused(Errc::no_space, "1048575 are free");
}

TEST_F(ScratchFileTest, every_call_of_opening_that_fails_is_a_refusal_by_name) {
  files_.fail_nth(FileCall::describe, 1, ENOENT);
  expect_refused(Errc::io_error, "ENOENT");
  files_.fail_nth(FileCall::open, 1, EACCES);
  expect_refused(Errc::io_error, "EACCES");
  files_.fail_nth(FileCall::open, 1, EINVAL);
  expect_refused(Errc::unsupported, "O_DIRECT");
  files_.fail_nth(FileCall::open, 1, EINVAL);
  expect_refused(Errc::io_error, "EINVAL", false);
  files_.fail_nth(FileCall::truncate, 1, EFBIG);
  expect_refused(Errc::no_space, "EFBIG");
  files_.fail_nth(FileCall::truncate, 1, EIO);
  expect_refused(Errc::io_error, "EIO");
  files_.fail_nth(FileCall::preallocate, 1, ENOSPC);
  expect_refused(Errc::no_space, "ENOSPC");
}

TEST_F(ScratchFileTest, without_fallocate_it_is_sparse_and_says_so) {
  files_.fail_nth(FileCall::preallocate, 1, EOPNOTSUPP);
  auto storage = open().value();
  EXPECT_NE(storage->describe().find("sparse beyond 0 bytes: fallocate answered EOPNOTSUPP"), std::string::npos)
      << storage->describe();
  Buffer out(8192, std::byte{4});
  storage->put(1, 1, 8192, 0, out.data(), 8192).value();
  EXPECT_TRUE(completions_.of(1));
}

TEST_F(ScratchFileTest, says_what_it_is) {
  const auto direct = open().value(), buffered = open(1 << 20, false).value();
  EXPECT_NE(direct->describe().find("O_DIRECT, threads, preallocated"), std::string::npos) << direct->describe();
  EXPECT_NE(buffered->describe().find("buffered"), std::string::npos);
}

TEST_F(ScratchFileTest, an_object_scattered_over_gaps_comes_back_whole) {
  auto storage = open(64 * 4096).value();
  Buffer out(64 * 4096), in(64 * 4096);
  out.scramble(8);
  Token token = 0;
  for (ObjectId id = 1; id <= 32; ++id) {
    storage->put(++token, id, 8192, 0, out.data(), 8192).value();
    completions_.of(token).value();
  }
  for (ObjectId id = 1; id <= 32; id += 2) storage->drop(id);
  EXPECT_EQ(storage->use().largest_gap, 8192u);
  constexpr std::size_t kTotal = 30 * 4096 - 5;
  // In chunks that end within extents.
  for (std::uint64_t offset = 0; offset < kTotal; offset += 3 * 4096) {
    const std::size_t bytes = std::min<std::size_t>(3 * 4096, kTotal - offset);
    storage->put(++token, 100, kTotal, offset, out.data() + offset, bytes).value();
    completions_.of(token).value();
  }
  EXPECT_EQ(storage->use().extents, 16u + 15u);
  for (std::uint64_t offset = 0; offset < kTotal; offset += 5 * 4096) {
    const std::size_t bytes = std::min<std::size_t>(5 * 4096, kTotal - offset);
    storage->get(++token, 100, offset, in.data() + offset, bytes).value();
    completions_.of(token).value();
  }
  EXPECT_TRUE(std::ranges::equal(in.first(kTotal), out.first(kTotal)));
}

TEST_F(ScratchFileTest, each_nth_failing_transfer_is_reported_and_its_object_can_be_dropped) {
  auto storage = open().value();
  Buffer out(65536), in(65536);
  out.scramble(9);
  Token token = 0;
  for (const FileCall call : {FileCall::write, FileCall::read}) {
    for (std::uint64_t n = 1; n <= 4; ++n) {
      for (const int error : {EIO, ENOSPC}) {
        const ObjectId id = ++token;
        if (call == FileCall::write) files_.fail_nth(call, n, error);
        storage->put(token, id, 65536, 0, out.data(), 65536).value();
        Result<void> how = completions_.of(token);
        if (call == FileCall::read) {
          ASSERT_TRUE(how);
          files_.fail_nth(call, n, error);
          storage->get(++token, id, 0, in.data(), 65536).value();
          how = completions_.of(token);
        }
        ASSERT_FALSE(how);
        EXPECT_EQ(how.error().code, error == EIO ? Errc::io_error : Errc::no_space);
        files_.clear_faults();
        // The same again succeeds: the failure left the object where it was.
        storage->put(++token, id, 65536, 0, out.data(), 65536).value();
        ASSERT_TRUE(completions_.of(token));
        storage->get(++token, id, 0, in.data(), 65536).value();
        ASSERT_TRUE(completions_.of(token));
        EXPECT_TRUE(std::ranges::equal(in.first(65536), out.first(65536)));
        storage->drop(id);
        EXPECT_EQ(storage->use().used, 0u);
      }
    }
  }
}

TEST_F(ScratchFileTest, an_object_with_transfers_under_way_cannot_be_dropped) {
  auto storage = open().value();
  Buffer out(4096);
  files_.hold(FileCall::write);
  storage->put(1, 1, 4096, 0, out.data(), 4096).value();
  EXPECT_THROW(storage->drop(1), std::logic_error);
  EXPECT_THROW(static_cast<void>(storage->put(1, 2, 4096, 0, out.data(), 4096)), std::logic_error) << "token in use";
  files_.release(FileCall::write);
  ASSERT_TRUE(completions_.of(1));
  storage->drop(1);
}

TEST_F(ScratchFileTest, closes_its_file) {
  open().value();
  EXPECT_EQ(files_.open_files(), 0u);
}

TEST(FakeStorageTest, is_late_and_only_on_command) {
  test::Completions completions;
  testing::FakeStorage storage({.seed = 1, .automatic = false}, completions.done());
  Buffer memory(4096, std::byte{1});
  storage.put(1, 1, 4096, 0, memory.data(), 4096).value();
  EXPECT_EQ(storage.unfinished(), 1u);
  EXPECT_THROW(storage.drop(1), std::logic_error);
  EXPECT_THROW(static_cast<void>(storage.get(2, 1, 0, memory.data(), 4096)), std::logic_error) << "not put yet";
  std::ranges::fill(memory.first(4096), std::byte{2});  // too early
  EXPECT_TRUE(storage.step());
  EXPECT_FALSE(storage.step());
  ASSERT_TRUE(completions.of(1));

  storage.get(2, 1, 0, memory.data(), 4096).value();
  EXPECT_TRUE(doubles::is_poison(memory.data(), 4096));
  EXPECT_EQ(storage.run(), 1u);
  EXPECT_EQ(memory.data()[0], std::byte{2});
}

TEST(FakeStorageTest, fails_the_nth_as_it_is_told) {
  test::Completions completions;
  testing::FakeStorage storage({.seed = 1, .automatic = false}, completions.done());
  Buffer memory(4096, std::byte{1});
  storage.fail_nth_put(2, {Errc::io_error, "put"});
  storage.fail_nth_get(1, {Errc::io_error, "get"});
  for (Token t = 1; t <= 3; ++t) {
    storage.put(t, 1, 4096, 0, memory.data(), 4096).value();
    storage.run();
    EXPECT_EQ(static_cast<bool>(completions.of(t)), t != 2);
  }
  for (Token t = 4; t <= 5; ++t) {
    storage.get(t, 1, 0, memory.data(), 4096).value();
    storage.run();
    EXPECT_EQ(static_cast<bool>(completions.of(t)), t == 5);
  }
}

}  // namespace
}  // namespace ebb::storage
