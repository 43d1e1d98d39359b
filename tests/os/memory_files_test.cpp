#include "tests/doubles/memory_files.hpp"

#include <cerrno>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/os/test_files.hpp"

namespace ebb::os::testing {
namespace {

int create(doubles::MemoryFiles& files, const char* path) {
  return static_cast<int>(files.open(path, Open::create, false).value);
}

TEST(MemoryFiles, room_that_is_full_takes_what_fits_and_then_nothing) {
  doubles::MemoryFiles files(4 * kBlock);
  const int fd = create(files, "/f");
  const std::vector<std::byte> bytes(6 * kBlock, std::byte{7});
  EXPECT_EQ(files.write(fd, bytes.data(), bytes.size(), 0).value, static_cast<std::int64_t>(4 * kBlock));
  EXPECT_EQ(files.write(fd, bytes.data(), 1, 4 * kBlock).error, ENOSPC);
  EXPECT_EQ(files.preallocate(fd, 4 * kBlock, 1).error, ENOSPC);
  EXPECT_EQ(files.write(fd, bytes.data(), bytes.size(), kBlock).value, static_cast<std::int64_t>(3 * kBlock));
  FileSystem system;
  ASSERT_TRUE(files.describe("/", system));
  EXPECT_EQ(system.free_bytes, 0u);
  ASSERT_TRUE(files.punch(fd, 0, kBlock));
  EXPECT_EQ(files.write(fd, bytes.data(), 1, 4 * kBlock).value, 1);
  files.set_capacity(6 * kBlock);
  EXPECT_TRUE(files.preallocate(fd, 0, 6 * kBlock));
}

TEST(MemoryFiles, a_file_without_a_name_gives_its_room_back_when_it_is_closed) {
  doubles::MemoryFiles files(2 * kBlock);
  const int fd = create(files, "/f");
  ASSERT_TRUE(files.preallocate(fd, 0, 2 * kBlock));
  ASSERT_TRUE(files.remove("/f"));
  const int next = create(files, "/g");
  EXPECT_EQ(files.write(next, "x", 1, 0).error, ENOSPC);
  ASSERT_TRUE(files.close(fd));
  EXPECT_EQ(files.write(next, "x", 1, 0).value, 1);
  EXPECT_EQ(files.open_files(), 1u);
}

TEST(MemoryFiles, the_journal_tells_what_changed_in_order_and_nothing_else) {
  doubles::MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/d"));
  const int fd = create(files, "/d/f");
  ASSERT_TRUE(files.write(fd, "abc", 3, 10));
  char byte = 0;
  ASSERT_TRUE(files.read(fd, &byte, 1, 0));
  EXPECT_FALSE(files.write(-1, "abc", 3, 10));
  ASSERT_TRUE(files.sync(fd));
  files.note("said");
  ASSERT_TRUE(files.truncate(fd, 5));
  ASSERT_TRUE(files.preallocate(fd, 0, 4096));
  ASSERT_TRUE(files.punch(fd, 0, 4096));
  ASSERT_TRUE(files.rename("/d/f", "/d/g"));
  ASSERT_TRUE(files.remove("/d/g"));
  ASSERT_TRUE(files.sync_directory("/d"));
  using Kind = doubles::Change::Kind;
  const std::vector<Kind> expected{Kind::make_directory, Kind::create,   Kind::write,         Kind::sync,
                                   Kind::note,           Kind::truncate, Kind::preallocate,   Kind::punch,
                                   Kind::rename,         Kind::remove,   Kind::sync_directory};
  const doubles::Journal journal = files.journal();
  ASSERT_EQ(journal.changes.size(), expected.size());
  EXPECT_EQ(files.changes(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(journal.changes[i].kind, expected[i]) << i;
    EXPECT_EQ(journal.changes[i].number, i + 1);
  }
  const doubles::Change& write = journal.changes[2];
  EXPECT_EQ(write.offset, 10u);
  EXPECT_EQ(write.length_before, 0u);
  EXPECT_EQ(write.length_after, 13u);
  ASSERT_EQ(write.pieces->size(), 1u);
  EXPECT_EQ((*write.pieces)[0].page->at(11), std::byte{'b'});
}

TEST(MemoryFiles, what_was_written_down_stays_when_the_file_changes) {
  doubles::MemoryFiles files;
  const int fd = create(files, "/f");
  const std::vector<std::byte> first(kBlock, std::byte{1}), second(kBlock, std::byte{2});
  ASSERT_TRUE(files.write(fd, first.data(), kBlock, 0));
  ASSERT_TRUE(files.write(fd, second.data(), 10, 5));
  const doubles::Journal journal = files.journal();
  EXPECT_EQ((*journal.changes[1].pieces)[0].page->at(5), std::byte{1});
  std::byte now{};
  ASSERT_TRUE(files.read(fd, &now, 1, 5));
  EXPECT_EQ(now, std::byte{2});
}

// Stricter than some file systems, which take less than 4096.
TEST(MemoryFiles, direct_files_take_whole_blocks_of_aligned_memory_alone) {
  doubles::MemoryFiles files;
  const int fd = static_cast<int>(files.open("/f", Open::create, true).value);
  const test::Buffer memory(8192);
  EXPECT_EQ(files.write(fd, memory.data(), 4096, 4096).value, 4096);
  EXPECT_EQ(files.write(fd, memory.data(), 512, 0).error, EINVAL);
  EXPECT_EQ(files.write(fd, memory.data() + 512, 4096, 0).error, EINVAL);
  EXPECT_EQ(files.read(fd, memory.data(), 512, 4096).error, EINVAL);
  EXPECT_EQ(files.read(fd, memory.data(), 4096, 512).error, EINVAL);
}

TEST(MemoryFiles, has_no_ring) { EXPECT_EQ(doubles::MemoryFiles().open_ring(8).error().code, Errc::unsupported); }

TEST(MemoryFiles, many_threads_write_beside_each_other) {
  doubles::MemoryFiles files;
  const int fd = create(files, "/f");
  constexpr int kThreads = 4, kWrites = 100;
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&files, fd, id] {
      for (int i = 0; i < kWrites; ++i) {
        const auto offset = static_cast<std::uint64_t>(i * kThreads + id);
        const char byte = static_cast<char>('a' + id);
        EXPECT_EQ(files.write(fd, &byte, 1, offset).value, 1);
        EXPECT_TRUE(files.sync(fd));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::string text(kThreads * kWrites, '?');
  ASSERT_EQ(files.read(fd, text.data(), text.size(), 0).value, static_cast<std::int64_t>(text.size()));
  for (std::size_t i = 0; i < text.size(); ++i) ASSERT_EQ(text[i], static_cast<char>('a' + i % kThreads)) << i;
  EXPECT_EQ(files.changes(), 1u + 2 * kThreads * kWrites);
}

}  // namespace
}  // namespace ebb::os::testing
