#include "storage/scan/store_directory.hpp"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/scan/segment_scan.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/os/test_files.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::storage {
namespace {

namespace fs = std::filesystem;
using doubles::FaultyFiles;
using doubles::FileCall;
using ::testing::HasSubstr;

class StoreDirectoryTest : public ::testing::Test {
 protected:
  StoreDirectoryTest() {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~StoreDirectoryTest() override { fs::remove_all(root_); }

  Result<StoreDirectory> open(const fs::path& path, bool readonly = false) {
    return open_store_directory(files_, path, {.readonly = readonly});
  }
  void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  void write(const fs::path& path, const test::Bytes& bytes) {
    write(path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    ::chmod(path.c_str(), 0600);
  }
  unsigned mode(const fs::path& path) {
    struct stat status;
    return ::lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
  }
  void expect_refused(const fs::path& path, Errc code, const std::string& word, bool readonly = false) {
    const auto refused = open(path, readonly);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, code) << refused.error().message;
    EXPECT_THAT(refused.error().message, HasSubstr(word));
    EXPECT_THAT(refused.error().message, HasSubstr(store_.string()));
    EXPECT_EQ(files_.open_files(), 0u);
  }

  os::PosixFiles posix_;
  FaultyFiles files_{posix_, 1};
  const fs::path root_ = test::disk_directory() / ("store_directory_test." + std::to_string(::getpid()));
  const fs::path store_ = root_ / "store";
};

TEST_F(StoreDirectoryTest, MakesAStoreForItsOwnerAloneAndFindsItAgain) {
  StoreHead head;
  {
    auto made = open(store_).value();
    EXPECT_TRUE(made.created());
    EXPECT_EQ(made.path(), fs::absolute(store_));
    EXPECT_EQ(made.head().owner, ::geteuid());
    EXPECT_GT(made.head().created_ns, 0);
    EXPECT_NE(made.head().store, Uuid{});
    head = made.head();
    EXPECT_EQ(mode(store_), 0700u);
    EXPECT_EQ(mode(store_ / "store"), 0600u);
    EXPECT_EQ(mode(store_ / "lock"), 0600u);
    EXPECT_FALSE(fs::exists(store_ / "store.new"));
  }
  auto again = open(store_).value();
  EXPECT_FALSE(again.created());
  EXPECT_EQ(again.head(), head);
  EXPECT_NE(open(root_ / "second").value().head().store, head.store);
}

TEST_F(StoreDirectoryTest, AStoreStaysOfTheLevelThatItWasMadeWith) {
  EXPECT_FALSE(find_store(files_, store_).value());
  EXPECT_FALSE(find_store(files_, root_).value());
  EXPECT_EQ(open_store_directory(files_, store_, {.level = Durability::process}).value().head().level,
            Durability::process);
  expect_refused(store_, Errc::invalid_argument, "\"process\"");
  EXPECT_EQ(open(store_, true).value().head().level, Durability::process);
  EXPECT_TRUE(open_store_directory(files_, store_, {.level = Durability::process}));
  const fs::path synced = root_ / "synced";
  EXPECT_EQ(open(synced).value().head().level, Durability::storage);
  const auto refused = open_store_directory(files_, synced, {.level = Durability::process});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(refused.error().message, HasSubstr("durability \"storage\""));
  EXPECT_EQ(find_store(files_, synced).value().value().level, Durability::storage);
  EXPECT_EQ(find_store(files_, store_).value().value().level, Durability::process);
}

TEST_F(StoreDirectoryTest, NothingIsNamedBeforeItIsOnTheDisk) {
  open(store_).value();
  std::vector<std::string> steps;
  for (const auto& record : files_.records()) {
    if (record.call == FileCall::make_directory) steps.push_back("mkdir");
    if (record.call == FileCall::write && record.bytes == 4096) steps.push_back("write");
    if (record.call == FileCall::sync) steps.push_back("sync");
    if (record.call == FileCall::rename) steps.push_back("rename " + record.to.filename().string());
    if (record.call == FileCall::sync_directory) steps.push_back("sync " + record.path.filename().string());
  }
  EXPECT_THAT(steps, ::testing::ElementsAre("mkdir", "write", "sync", "rename store", "sync store",
                                            "sync " + root_.filename().string()));
}

TEST_F(StoreDirectoryTest, OneWriterAndAnyNumberOfReaders) {
  auto writer = open(store_).value();
  const auto second = open(store_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::in_use);
  EXPECT_THAT(second.error().message, HasSubstr("process " + std::to_string(::getpid())));
  EXPECT_THAT(second.error().message, HasSubstr(store_.string()));
  auto reader = open(store_, true).value();
  EXPECT_EQ(reader.head(), writer.head());
  {
    StoreDirectory gone = std::move(writer);
  }
  EXPECT_TRUE(open(store_));
}

TEST_F(StoreDirectoryTest, ALockFileThatSaysAnythingElseHarmsNoMessage) {
  auto writer = open(store_).value();
  write(store_ / "lock", "process \x1b[31m\n");
  EXPECT_THAT(open(store_).error().message, HasSubstr("another process"));
}

TEST_F(StoreDirectoryTest, AHolderInAnotherPidNamespaceIsNotThisProcess) {
  auto writer = open(store_).value();
  EXPECT_THAT(open(store_).error().message, HasSubstr("(this process)"));
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const std::string holder = "process " + std::to_string(::getpid()) + " on " + host + " in PID namespace 7";
  write(store_ / "lock", holder + "\n");
  const std::string told = open(store_).error().message;
  EXPECT_THAT(told, HasSubstr(holder));
  EXPECT_THAT(told, ::testing::Not(HasSubstr("this process")));
  EXPECT_THAT(told, ::testing::Not(HasSubstr("not there any more")));
}

TEST_F(StoreDirectoryTest, WhatACrashLeftOfMakingOneIsEmpty) {
  for (const char* left : {"", "store.new", "lock", "store.new lock"}) {
    fs::remove_all(store_);
    fs::create_directory(store_);
    for (const char* name : {"store.new", "lock"}) {
      if (std::string(left).find(name) == std::string::npos) continue;
      write(store_ / name, "half");
      ::chmod((store_ / name).c_str(), 0600);
    }
    auto made = open(store_);
    ASSERT_TRUE(made) << left << ": " << made.error().message;
    EXPECT_TRUE(made->created());
    EXPECT_FALSE(fs::exists(store_ / "store.new"));
  }
}

TEST_F(StoreDirectoryTest, ADirectoryOfOtherThingsIsLeftAlone) {
  fs::create_directory(store_);
  write(store_ / "thesis.tex", "precious");
  expect_refused(store_, Errc::not_a_store, "'thesis.tex'");
  expect_refused(store_, Errc::not_a_store, "'thesis.tex'", true);
  EXPECT_FALSE(fs::exists(store_ / "lock"));
  EXPECT_FALSE(fs::exists(store_ / "store"));
  fs::remove(store_ / "thesis.tex");
  write(store_ / "segment-00000001.ebb", "");
  expect_refused(store_, Errc::not_a_store, "no file 'store'");
  fs::remove_all(store_);
  write(store_, "a file");
  expect_refused(store_, Errc::not_a_store, "not a directory");
}

TEST_F(StoreDirectoryTest, AReaderMakesNothing) {
  expect_refused(store_, Errc::not_a_store, "no such directory", true);
  EXPECT_FALSE(fs::exists(store_));
  fs::create_directory(store_);
  expect_refused(store_, Errc::not_a_store, "no store in it", true);
  EXPECT_TRUE(fs::is_empty(store_));
  expect_refused(store_ / "a" / "b", Errc::io_error, "make that one first");
}

TEST_F(StoreDirectoryTest, NewerAndDamagedStoresAreToldApart) {
  open(store_).value();
  test::Bytes bytes = encode(StoreHead{Uuid{std::byte{1}}, 0, 0});
  bytes[100] ^= std::byte{1};
  write(store_ / "store", bytes);
  expect_refused(store_, Errc::damaged, "checksum", true);
  bytes[100] ^= std::byte{1};
  write(store_ / "store", bytes);
  EXPECT_TRUE(open(store_));
  bytes.push_back(std::byte{0});
  write(store_ / "store", bytes);
  expect_refused(store_, Errc::damaged, "longer");
  write(store_ / "store", "");
  expect_refused(store_, Errc::damaged, "truncated");
  bytes[8] = std::byte{9};
  const Checksum sum = checksum_of(std::span(bytes).first(496));
  std::copy(sum.begin(), sum.end(), bytes.begin() + 496);
  write(store_ / "store", bytes);
  expect_refused(store_, Errc::unsupported, "format 9; this program knows formats up to 1");
}

TEST_F(StoreDirectoryTest, SomebodyElsesIsRefused) {
  open(store_).value();
  const auto refused = open_store_directory(files_, store_, {.readonly = true, .user = ::geteuid() + 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::not_permitted);
  EXPECT_THAT(refused.error().message, HasSubstr("belongs to user " + std::to_string(::geteuid())));
}

TEST_F(StoreDirectoryTest, WhatOthersMayWriteToIsRefused) {
  open(store_).value();
  write(store_ / "segment-00000001.ebb", "");
  write(store_ / "index", "");
  ::chmod((store_ / "segment-00000001.ebb").c_str(), 0600);
  ::chmod((store_ / "index").c_str(), 0600);
  ASSERT_TRUE(open(store_));
  for (const fs::path& path :
       {store_, store_ / "store", store_ / "lock", store_ / "index", store_ / "segment-00000001.ebb"}) {
    const unsigned before = mode(path);
    for (const unsigned bit : {0020u, 0002u}) {
      ::chmod(path.c_str(), before | bit);
      expect_refused(store_, Errc::not_permitted, "go-w");
      expect_refused(store_, Errc::not_permitted, path.string(), true);
    }
    ::chmod(path.c_str(), before);
  }
  EXPECT_TRUE(open(store_));
}

TEST_F(StoreDirectoryTest, LinksAreNeverFollowed) {
  const fs::path target = root_ / "target";
  open(target).value();
  fs::create_directory_symlink(target, store_);
  for (const char* end : {"", "/", "/.", "//./"}) {
    expect_refused(store_.string() + end, Errc::not_permitted, "symbolic link");
    expect_refused(store_.string() + end, Errc::not_permitted, "symbolic link", true);
  }
  fs::remove(store_);
  open(store_).value();
  const fs::path victim = root_ / "victim";
  for (const char* name : {"store", "lock", "index", "index.new", "store.new", "segment-00000001.ebb"}) {
    const fs::path aside = root_ / "aside";
    write(victim, "untouched");
    const bool there = fs::exists(store_ / name);
    if (there) fs::rename(store_ / name, aside);
    fs::create_symlink(victim, store_ / name);
    expect_refused(store_, Errc::not_permitted, "symbolic link");
    EXPECT_EQ(fs::file_size(victim), 9u) << name;
    fs::remove(store_ / name);
    if (there) fs::rename(aside, store_ / name);
  }
  EXPECT_TRUE(open(store_));
}

TEST_F(StoreDirectoryTest, AFileSystemWithoutLocksIsRefusedWithWhatToDo) {
  open(store_).value();
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    files_.fail_nth(FileCall::lock, 1, error);
    expect_refused(store_, Errc::unsupported, os::describe_errno(error));
    files_.fail_nth(FileCall::lock, 1, error);
    expect_refused(store_, Errc::unsupported, "name a directory on a local disk");
  }
  EXPECT_TRUE(open(store_));
}

// Each system call fails in turn: opening reports it or succeeds, and the next opening succeeds.
TEST_F(StoreDirectoryTest, EveryCallThatFailsIsARefusalByNameAndTheNextTrySucceeds) {
  for (const bool there : {false, true}) {
    for (const FileCall call :
         {FileCall::open, FileCall::read, FileCall::write, FileCall::truncate, FileCall::sync, FileCall::sync_directory,
          FileCall::make_directory, FileCall::rename, FileCall::list, FileCall::status, FileCall::lock}) {
      for (std::uint64_t n = 1;; ++n) {
        fs::remove_all(store_);
        if (there) open(store_).value();
        const std::uint64_t before = files_.count(call);
        files_.fail_nth(call, n, EIO);
        {
          const auto opened = open(store_);
          if (!opened) {
            EXPECT_EQ(opened.error().code, Errc::io_error) << opened.error().message;
            EXPECT_THAT(opened.error().message, HasSubstr("EIO"));
            EXPECT_THAT(opened.error().message, HasSubstr(store_.string()));
          }
        }
        files_.clear_faults();
        EXPECT_EQ(files_.open_files(), 0u);
        const bool reached = files_.count(call) - before >= n;
        const auto again = open(store_);
        ASSERT_TRUE(again) << again.error().message;
        if (!reached) break;
      }
    }
  }
}

TEST_F(StoreDirectoryTest, ShortAndInterruptedCallsAreContinued) {
  files_.shorten_nth(FileCall::write, 1, 3, 5);
  files_.fail_nth(FileCall::read, 1, EINTR);
  files_.shorten_nth(FileCall::read, 2, 3, 100);
  const auto made = open(store_);
  ASSERT_TRUE(made) << made.error().message;
}

TEST(SegmentName, IsOneOfANumberAndNothingElse) {
  EXPECT_EQ(segment_path("/d", 1), "/d/segment-00000001.ebb");
  for (const std::uint64_t n :
       {std::uint64_t{1}, std::uint64_t{99'999'999}, std::uint64_t{100'000'000}, ~std::uint64_t{0}}) {
    EXPECT_EQ(segment_number(segment_name(n)), n);
  }
  for (const char* name : {"", "segment-1.ebb", "segment-00000000.ebb", "segment-000000001.ebb",
                           "segment-00000001.ebb2", "segment-0000000x.ebb", "segment--0000001.ebb",
                           "Segment-00000001.ebb", "segment-99999999999999999999999.ebb"}) {
    EXPECT_FALSE(segment_number(name)) << name;
  }
}

}  // namespace
}  // namespace ebb::storage
