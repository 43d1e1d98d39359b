#pragma once
// A persistent store in its own directory, on files that fail on command.
#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <unistd.h>

#include "storage/persistent_storage.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/os/test_files.hpp"
#include "tests/storage/persisted_objects.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::storage {

using doubles::FaultyFiles;
using doubles::FileCall;
using doubles::FileRecord;
using test::Buffer;
using Kind = transfer::FileEngineOptions::Kind;

class SegmentStoreFixture : public ::testing::Test {
 protected:
  static constexpr ObjectId kFirst = ObjectId{1} << 62;

  SegmentStoreFixture() {
    static std::atomic<int> count{0};
    directory_ = test::disk_directory() / ("kept-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    options_.directory = directory_;
    options_.capacity = 64 << 20;
    options_.segment_bytes = 1 << 20;
    options_.block_bytes = 8192;
    options_.sync_interval = std::chrono::milliseconds(1);
    options_.engine.kind = Kind::threads;
    options_.engine.request_bytes = 16384;
  }
  ~SegmentStoreFixture() override {
    storage_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }

  Result<std::unique_ptr<PersistentStorage>> try_open(const PersistentOptions& options) {
    return open_persistent_storage(files_, clock_, options, completions_.done(), persisted_.callback());
  }
  void open() { storage_ = try_open(options_).value(); }
  void reopen() {
    storage_->stop();
    storage_.reset();
    open();
  }

  static std::shared_ptr<const Description> describe(Version version, std::uint64_t bytes, std::string metadata = "m") {
    Description out{"adjoint", version, {}};
    if (bytes) out.info.regions.push_back({7, bytes, 0});
    out.info.metadata = std::move(metadata);
    out.info.bytes = bytes;
    return std::make_shared<const Description>(std::move(out));
  }
  Result<void> put(ObjectId id, std::uint64_t total, std::uint64_t offset, const std::byte* memory, std::size_t bytes) {
    const Token token = next_++;
    if (auto taken = storage_->put(token, id, total, offset, memory, bytes); !taken) return taken;
    return completions_.of(token);
  }
  Result<void> get(ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
    const Token token = next_++;
    if (auto taken = storage_->get(token, id, offset, memory, bytes); !taken) return taken;
    return completions_.of(token);
  }
  /// A checkpoint with bytes that depend on the version, put in one range.
  Result<void> write(ObjectId id, Version version, std::size_t bytes) {
    if (auto begun = storage_->begin(id, describe(version, bytes)); !begun) return begun;
    if (bytes == 0) return {};
    Buffer out(bytes);
    out.scramble(static_cast<std::uint64_t>(version));
    return put(id, bytes, 0, out.data(), bytes);
  }
  Result<void> persist(ObjectId id, Version version, std::size_t bytes) {
    if (auto written = write(id, version, bytes); !written) return written;
    storage_->commit();
    return persisted_.of(id);
  }
  /// Whether all of it comes back, in ranges of `step`.
  void expect_back(ObjectId id, Version version, std::size_t bytes, std::size_t step = 1 << 20) {
    Buffer out(bytes), in(bytes);
    out.scramble(static_cast<std::uint64_t>(version));
    for (std::size_t at = 0; at < bytes; at += step) {
      const auto got = get(id, at, in.data() + at, std::min(step, bytes - at));
      ASSERT_TRUE(got) << got.error().message;
    }
    EXPECT_TRUE(std::ranges::equal(in.first(bytes), out.first(bytes))) << "version " << version;
  }
  std::vector<std::filesystem::path> segments() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (segment_number(entry.path().filename())) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  std::uint64_t allocated() {
    std::uint64_t all = 0;
    for (const auto& path : segments()) {
      os::FileStatus status;
      EXPECT_TRUE(files_.status(path, status));
      all += status.allocated;
    }
    return all;
  }
  /// What the committer has left to do is done.
  void settle() {
    static_cast<void>(persist(kFirst + 1'000'000 + next_, 1'000'000 + static_cast<Version>(next_), 0));
    const ObjectId last = kFirst + 2'000'000 + next_;
    static_cast<void>(persist(last, 2'000'000 + static_cast<Version>(next_), 0));
  }
  void flip(const std::filesystem::path& path, std::uint64_t offset) {
    const auto opened = files_.open(path, os::Open::write, false);
    ASSERT_TRUE(opened);
    const os::File file(files_, static_cast<int>(opened.value), path, false);
    std::byte one{};
    ASSERT_TRUE(files_.read(file.fd(), &one, 1, offset));
    one ^= std::byte{0x10};
    ASSERT_TRUE(files_.write(file.fd(), &one, 1, offset));
    ASSERT_TRUE(files_.sync(file.fd()));  // O_DIRECT reads see it
  }

  os::PosixFiles posix_;
  FaultyFiles files_{posix_, 1};
  os::SteadyClock clock_;
  test::Completions completions_;
  PersistedObjects persisted_;
  PersistentOptions options_;
  std::filesystem::path directory_;
  std::unique_ptr<PersistentStorage> storage_;
  Token next_ = 1;
};

}  // namespace ebb::storage
