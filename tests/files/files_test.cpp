// Files in a store: any sequence of calls gives what it would give on an ordinary file.
#include <array>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>

#include "tests/store/support.hpp"

namespace ebb::files {
namespace {

using namespace store::testing_support;

std::vector<std::byte> read_all(File& file) {
  std::vector<std::byte> bytes(file.size() + 1);
  file.seek(0).value();
  bytes.resize(file.read(bytes).value());
  return bytes;
}

// Transfers that were under way end first.
void expect_empty(Store& store) {
  const auto used = [&] {
    std::uint64_t sum = 0;
    for (const auto& tier : store.stats().tiers) sum += tier.used;
    return sum;
  };
  for (int polls = 0; polls < 10'000 && used() > 0; ++polls) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  EXPECT_EQ(used(), 0u);
}

class Files : public ::testing::TestWithParam<Backend> {
 protected:
  Rig rig_{GetParam(), {.device = 256 * kKiB, .host = 512 * kKiB, .disk = 32768 * kKiB}};
  Store& store_ = rig_.store();
};
std::vector<Backend> backends() {
  std::vector<Backend> all = {Backend::uring, Backend::threads, Backend::gpu};
  if (device::current_cuda_device()) all.push_back(Backend::cuda);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Backends, Files, ::testing::ValuesIn(backends()), [](const auto& tested) {
  return std::string(tested.param == Backend::uring     ? "uring"
                     : tested.param == Backend::threads ? "threads"
                     : tested.param == Backend::gpu     ? "gpu"
                                                        : "cuda");
});

TEST_P(Files, CreatingOneReadsNothingOfTheOthersOfItsName) {
  for (Version version = 0; version < 4; ++version) {
    File file = store_.create_file("f", version).value();
    file.write(std::vector<std::byte>(100'000)).value();
    file.close().value();
  }
  const std::uint64_t before = store_.stats().restores;
  store_.create_file("f", 4).value();
  EXPECT_EQ(store_.stats().restores, before);
}

// Larger than the caches, so that pieces come back from the disk.
TEST_P(Files, AnySequenceOfCallsGivesWhatAnOrdinaryFileWould) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t end) { return random() % end; };
    const std::uint64_t span = seed % 2 == 0 ? 64 * kKiB : 1024 * kKiB;
    std::vector<std::byte> expected;
    std::uint64_t at = 0;
    File file = store_.create_file("f", static_cast<Version>(seed)).value();
    for (int call = 0; call < 200; ++call) {
      const std::uint64_t kind = below(10);
      if (kind < 5) {
        const auto bytes = bytes_of(call, below(kind == 0 ? span / 2 : 6000));
        file.write(bytes).value();
        if (!bytes.empty() && expected.size() < at + bytes.size()) expected.resize(at + bytes.size());
        std::ranges::copy(bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
        at += bytes.size();
      } else if (kind < 7) {
        file.seek(at = below(span)).value();
      } else if (kind < 9) {
        std::vector<std::byte> bytes(below(span / 4));
        const std::uint64_t got = file.read(bytes).value();
        ASSERT_EQ(got, at < expected.size() ? std::min<std::uint64_t>(bytes.size(), expected.size() - at) : 0);
        ASSERT_TRUE(
            std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(got),
                       expected.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(at, expected.size()))))
            << "call " << call;
        at += got;
      } else if (below(3) == 0) {
        const std::uint64_t bytes = below(expected.size() + 5000);
        file.truncate(bytes).value();
        expected.resize(bytes);
      }
      ASSERT_EQ(file.tell(), at);
      ASSERT_EQ(file.size(), expected.size());
    }
    ASSERT_TRUE(read_all(file) == expected);
    file.close().value();
    File again = store_.open_file("f").value();
    EXPECT_EQ(again.version(), static_cast<Version>(seed));
    ASSERT_TRUE(read_all(again) == expected);
    ASSERT_TRUE(read_all(again) == expected) << "a second time";
  }
  const auto all = store_.files("f").value();
  ASSERT_EQ(all.size(), 6u);
  for (const FileInfo& each : all) store_.drop_file(each.name, each.version).value();
  EXPECT_TRUE(store_.files().value().empty());
  expect_empty(store_);
}

TEST_P(Files, OneThatIsNotClosedLeavesNothingAndIsSeenByNobody) {
  const auto bytes = bytes_of(1, 900 * kKiB);
  {
    File file = store_.create_file("f", 1).value();
    file.write(bytes).value();
    EXPECT_TRUE(store_.files().value().empty());
    EXPECT_EQ(store_.open_file("f").error().code, Errc::unknown_version);
    const auto twice = store_.create_file("f", 1);
    ASSERT_FALSE(twice);
    EXPECT_EQ(twice.error().code, Errc::version_exists);
    EXPECT_NE(twice.error().message.find("is being written"), std::string::npos) << twice.error().message;
    File other = store_.create_file("f", 2).value();
    other.write(bytes).value();
    EXPECT_EQ(file.size(), bytes.size()) << "another version's writer leaves it alone";
    other.close().value();
    EXPECT_TRUE(read_all(file) == bytes);
  }
  store_.drop_file("f", 2).value();
  expect_empty(store_);
  File again = store_.create_file("f", 1).value();
  again.close().value();
  EXPECT_EQ(store_.open_file("f", 1).value().size(), 0u);
  EXPECT_EQ(store_.create_file("f", 1).error().code, Errc::version_exists);
}

TEST_P(Files, WhatIsWrongIsRefusedByName) {
  EXPECT_EQ(store_.create_file("", 1).error().code, Errc::invalid_argument);
  EXPECT_EQ(store_.create_file(std::string(70'000, 'x'), 1).error().code, Errc::invalid_argument);
  const auto none = store_.open_file("no such", 3);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::unknown_version);
  EXPECT_NE(none.error().message.find("version 3 of file \"no such\""), std::string::npos) << none.error().message;
  EXPECT_EQ(store_.drop_file("no such", 3).error().code, Errc::unknown_version);
  File file = store_.create_file("f", 1).value();
  const auto bytes = bytes_of(1, 100);
  file.seek(~std::uint64_t{0} - 3).value();
  EXPECT_EQ(file.write(bytes).error().code, Errc::too_large);
  EXPECT_EQ(file.truncate(std::uint64_t{1} << 61).error().code, Errc::too_large);
  EXPECT_EQ(file.wait("ephemeral").error().code, Errc::invalid_argument);
  file.close().value();
  file.close().value();
  file.wait("ephemeral").value();
  EXPECT_EQ(file.write(bytes).error().code, Errc::closed);
  File reading = store_.open_file("f").value();
  EXPECT_EQ(reading.write(bytes).error().code, Errc::unsupported);
  EXPECT_EQ(reading.truncate(0).error().code, Errc::unsupported);
  File writing = store_.create_file("f", 2).value();
  writing.write(bytes).value();
  store_.close().value();
  EXPECT_EQ(writing.close().error().code, Errc::closed);
  EXPECT_EQ(store_.create_file("g", 1).error().code, Errc::closed);
}

// Any number may be open, and a store may have smaller caches than the one that wrote them.
TEST_P(Files, ManyAreReadAtOnceAByteAtATime) {
  constexpr int kFiles = 40;
  const auto bytes = bytes_of(3, 100 * kKiB);
  std::vector<File> open;
  for (Version v = 0; v < kFiles; ++v) {
    File file = store_.create_file("f", v).value();
    file.write(bytes).value();
    file.close().value();
    open.push_back(store_.open_file("f", v).value());
  }
  for (std::size_t at = 0; at < bytes.size(); at += 7'001) {
    for (File& file : open) {
      std::array<std::byte, 3> found{};
      file.seek(at).value();
      const std::uint64_t count = file.read(found).value();
      ASSERT_EQ(count, std::min<std::size_t>(3, bytes.size() - at));
      ASSERT_TRUE(std::ranges::equal(std::span(found).first(count), std::span(bytes).subspan(at, count)));
    }
  }
}

TEST(FilesWithoutADisk, OneThatIsLargerThanTheCachesIsRefusedAndLeavesNothing) {
  Rig rig(Backend::threads, {.device = 256 * kKiB, .host = 256 * kKiB, .disk = 0});
  Store& store = rig.store();
  const auto bytes = bytes_of(1, 1024 * kKiB);
  {
    File file = store.create_file("f", 1, Seconds{0}).value();
    const auto written = file.write(bytes);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, Errc::no_space) << written.error().message;
    EXPECT_NE(written.error().message.find("version 1 of file \"f\""), std::string::npos) << written.error().message;
    EXPECT_GT(file.tell(), 0u);
  }
  expect_empty(store);
}

TEST_P(Files, ThreadsWriteManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (Version v = 0; v < 4; ++v) {
        const auto bytes = bytes_of(v * 10 + t, 700 * kKiB);
        File file = store_.create_file("f" + std::to_string(t), v).value();
        for (std::size_t at = 0; at < bytes.size(); at += 10'000)
          file.write(std::span(bytes).subspan(at, std::min<std::size_t>(10'000, bytes.size() - at))).value();
        file.close().value();
        File again = store_.open_file("f" + std::to_string(t), v).value();
        EXPECT_TRUE(read_all(again) == bytes);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store_.files().value().size(), 12u);
}

}  // namespace
}  // namespace ebb::files
