// Files that are written in the background, against a model in memory.
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
#include <veloc/cache.hpp>

namespace {

using veloc::cached_file_t;

constexpr int kAnew = O_RDWR | O_CREAT | O_TRUNC;

class CachedFile : public ::testing::Test {
 protected:
  CachedFile() {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    at_ = std::filesystem::path(::testing::TempDir()) / ("cached_" + name + std::to_string(::getpid()));
    std::filesystem::remove_all(at_);
    std::filesystem::create_directories(at_ / "scratch");
  }
  ~CachedFile() override { std::filesystem::remove_all(at_); }

  std::string scratch() const { return (at_ / "scratch").string(); }
  std::string path(const std::string& name) const { return (at_ / name).string(); }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  bool scratch_is_empty() const { return std::filesystem::is_empty(at_ / "scratch"); }

  std::filesystem::path at_;
};

// Writes that overlap, in any order, of three threads; reads in between, and files that are closed and opened again.
TEST_F(CachedFile, HasWhatWasWritten) {
  const auto write_one = [&](unsigned seed) {
    constexpr std::size_t kBytes = 3 << 20;
    std::mt19937 random(seed);
    const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
    const std::string name = path("out" + std::to_string(seed));
    std::string model(kBytes, '\0');
    auto file = std::make_unique<cached_file_t>(scratch());
    ASSERT_TRUE(file->open(name, kAnew, 0644));
    ASSERT_TRUE(file->pwrite(model.data(), kBytes, 0));
    for (int i = 0; i < 300; ++i) {
      const std::size_t at = below(kBytes), count = 1 + below(std::min<std::size_t>(kBytes - at, 200'000));
      const auto begin = model.begin() + static_cast<std::ptrdiff_t>(at);
      std::fill_n(begin, count, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(file->pwrite(&model[at], count, static_cast<off_t>(at)));
      if (below(20) == 0) {
        std::string out(count, '?');
        ASSERT_TRUE(file->pread(out.data(), count, static_cast<off_t>(at)));
        ASSERT_EQ(out, std::string(begin, begin + static_cast<std::ptrdiff_t>(count)));
      }
      if (below(40) == 0) {
        file->close();
        ASSERT_TRUE(file->open(name, O_RDWR, 0));
      }
    }
    file.reset();  // as close()
    ASSERT_TRUE(cached_file_t::flush());
    EXPECT_TRUE(content(name) == model);
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 3; ++seed) threads.emplace_back(write_one, seed);
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(scratch_is_empty()) << "what is killed leaves nothing there";
}

TEST_F(CachedFile, FlushSaysWhatCouldNotBeWrittenOnce) {
  std::string bytes(100, 'x');
  cached_file_t full(scratch()), good(scratch());
  ASSERT_TRUE(full.open("/dev/full", O_RDWR, 0));
  ASSERT_TRUE(good.open(path("good"), kAnew, 0644));
  EXPECT_TRUE(full.pwrite(bytes.data(), bytes.size(), 0)) << "it is in the scratch directory";
  EXPECT_TRUE(good.pwrite(bytes.data(), bytes.size(), 0));
  EXPECT_FALSE(full.pread(bytes.data(), bytes.size(), 0)) << "it would not be what was written";
  EXPECT_FALSE(cached_file_t::flush());
  EXPECT_EQ(content(path("good")), bytes);
  full.close();
  EXPECT_TRUE(cached_file_t::flush());
}

TEST_F(CachedFile, WrongCallsAnswerFalseAndDoNothing) {
  std::string bytes(100, 'x');
  std::ofstream(path("there")) << "old";
  cached_file_t file(scratch()), nowhere(path("no scratch"));
  EXPECT_FALSE(file.pwrite(bytes.data(), 1, 0)) << "no file is open";
  EXPECT_FALSE(file.pread(bytes.data(), 1, 0));
  EXPECT_FALSE(file.open(path("no/such"), kAnew, 0644));
  EXPECT_FALSE(nowhere.open(path("there"), kAnew, 0644));
  EXPECT_EQ(content(path("there")), "old") << "a file that cannot be written is not truncated";
  EXPECT_FALSE(file.open(path("there"), O_RDWR | O_APPEND, 0));
  EXPECT_FALSE(file.open(path("there"), O_RDWR | O_DIRECT, 0));
  ASSERT_TRUE(file.open(path("there"), O_RDWR, 0));
  EXPECT_FALSE(file.open(path("other"), kAnew, 0644)) << "one is open";
  EXPECT_FALSE(file.pread(bytes.data(), 4, 0)) << "it has three bytes";
  EXPECT_FALSE(file.pwrite(bytes.data(), 1, -1));
  EXPECT_FALSE(file.pwrite(nullptr, 1, 0));
  file.close();
  ASSERT_TRUE(nowhere.open(path("there"), O_RDONLY, 0)) << "reading needs no scratch directory";
  EXPECT_FALSE(nowhere.pwrite(bytes.data(), 1, 0));
  ASSERT_TRUE(nowhere.pread(bytes.data(), 3, 0));
  EXPECT_EQ(bytes.substr(0, 3), "old");
  EXPECT_TRUE(cached_file_t::flush());
}

TEST_F(CachedFile, AConfigurationNamesTheScratchDirectory) {
  std::ofstream(path("veloc.cfg")) << "scratch = " << scratch() << "\n";
  cached_file_t file(path("veloc.cfg"));
  ASSERT_TRUE(file.open(path("out"), kAnew, 0644));
  EXPECT_TRUE(file.pwrite("four", 4, 2));
  file.close();
  EXPECT_TRUE(cached_file_t::flush());
  EXPECT_EQ(content(path("out")), std::string("\0\0four", 6));
}

// In another process, because nothing can be written after it.
TEST_F(CachedFile, TheEndOfAProcessAndShutdownWaitForTheFiles) {
  for (const bool told : {false, true}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::string name = path(told ? "told" : "ended");
      ::execl(CACHED_FILE_PROGRAM, CACHED_FILE_PROGRAM, scratch().c_str(), name.c_str(), told ? "shutdown" : "end",
              nullptr);
      ::_exit(99);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(content(path(told ? "told" : "ended")), std::string(1 << 22, 'y'));
  }
}

}  // namespace
