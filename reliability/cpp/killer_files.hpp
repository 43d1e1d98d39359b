#pragma once
// Files of the system that end the process at a call of theirs.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>

#include "os/files.hpp"
#include "tests/doubles/faulty_files.hpp"

namespace ebb::trials {

using platform::testing::FileCall;

/// Where a process is killed: at the n-th call of a kind, before it, behind it, or (of a write) when a part of it is
/// done.
struct Killing {
  enum class When : std::uint8_t { before, within, after } when = When::before;
  FileCall call = FileCall::write;
  std::uint64_t nth = 0;  // from 1; 0: never
};

/// Thread safety: every method may be called from any thread.
class KillerFiles final : public platform::Files {
 public:
  using SysResult = platform::SysResult;
  using Path = std::filesystem::path;
  explicit KillerFiles(const Killing& killing) : killing_(killing) {}

  std::uint64_t calls(FileCall call) const { return counts_[static_cast<std::size_t>(call)]; }

  SysResult open_unlinked(const Path& directory, bool direct) noexcept override {
    return at(FileCall::open, [&] { return posix_.open_unlinked(directory, direct); });
  }
  SysResult open_read(const Path& path) noexcept override { return posix_.open_read(path); }
  SysResult open_write(const Path& path) noexcept override { return posix_.open_write(path); }
  SysResult open(const Path& path, platform::Open how, bool direct) noexcept override {
    return at(FileCall::open, [&] { return posix_.open(path, how, direct); });
  }
  SysResult close(int fd) noexcept override {
    return at(FileCall::close, [&] { return posix_.close(fd); });
  }
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    return at(FileCall::read, [&] { return posix_.read(fd, memory, bytes, offset); });
  }
  SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    return at(
        FileCall::write, [&] { return posix_.write(fd, memory, bytes, offset); },
        [&] {  // whole blocks, or it might be refused
          const std::size_t part = bytes / 2 / platform::kBlock * platform::kBlock;
          if (part) static_cast<void>(posix_.write(fd, memory, part, offset));
        });
  }
  SysResult truncate(int fd, std::uint64_t bytes) noexcept override {
    return at(FileCall::truncate, [&] { return posix_.truncate(fd, bytes); });
  }
  SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override {
    return at(FileCall::preallocate, [&] { return posix_.preallocate(fd, offset, bytes); });
  }
  SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override {
    return at(
        FileCall::punch, [&] { return posix_.punch(fd, offset, bytes); },
        [&] { static_cast<void>(posix_.punch(fd, offset, bytes / 2 + 1)); });
  }
  SysResult sync(int fd) noexcept override {
    return at(FileCall::sync, [&] { return posix_.sync(fd); });
  }
  SysResult drop_cached(int fd) noexcept override {
    return at(FileCall::drop_cached, [&] { return posix_.drop_cached(fd); });
  }
  SysResult next_data(int fd, std::uint64_t from) noexcept override {
    return at(FileCall::next_data, [&] { return posix_.next_data(fd, from); });
  }
  SysResult sync_directory(const Path& directory) noexcept override {
    return at(FileCall::sync_directory, [&] { return posix_.sync_directory(directory); });
  }
  SysResult make_directory(const Path& path) noexcept override {
    return at(FileCall::make_directory, [&] { return posix_.make_directory(path); });
  }
  SysResult rename(const Path& from, const Path& to) noexcept override {
    return at(FileCall::rename, [&] { return posix_.rename(from, to); });
  }
  SysResult remove(const Path& path) noexcept override {
    return at(FileCall::remove, [&] { return posix_.remove(path); });
  }
  SysResult list(const Path& directory, std::vector<std::string>& out) noexcept override {
    return at(FileCall::list, [&] { return posix_.list(directory, out); });
  }
  SysResult status(const Path& path, platform::FileStatus& out) noexcept override {
    return at(FileCall::status, [&] { return posix_.status(path, out); });
  }
  SysResult status(int fd, platform::FileStatus& out) noexcept override {
    return at(FileCall::status, [&] { return posix_.status(fd, out); });
  }
  SysResult lock(const Path& path, platform::Open how) noexcept override {
    return at(FileCall::lock, [&] { return posix_.lock(path, how); });
  }
  SysResult unlock(int fd) noexcept override {
    return at(FileCall::close, [&] { return posix_.unlock(fd); });
  }
  SysResult describe(const Path& directory, platform::FileSystem& out) noexcept override {
    return at(FileCall::describe, [&] { return posix_.describe(directory, out); });
  }
  /// None: every transfer is to be seen.
  Result<std::unique_ptr<platform::Ring>> open_ring(unsigned) override {
    static_cast<void>(at(FileCall::open_ring, [] { return SysResult::failed(ENOSYS); }));
    return Error{Errc::unsupported, "transfers are to be seen one by one"};
  }

 private:
  using When = Killing::When;
  [[noreturn]] static void die() {
    std::raise(SIGKILL);
    for (;;) {
    }
  }
  template <class Call>
  SysResult at(FileCall call, Call&& whole) noexcept {
    return at(call, whole, [] {});
  }
  template <class Call, class Part>
  SysResult at(FileCall call, Call&& whole, Part&& part) noexcept {
    const std::uint64_t number = ++counts_[static_cast<std::size_t>(call)];
    const bool here = call == killing_.call && number == killing_.nth;
    if (here && killing_.when == When::within) part();
    if (here && killing_.when != When::after) die();
    const SysResult result = whole();
    if (here) die();
    return result;
  }

  platform::PosixFiles posix_;
  const Killing killing_;
  std::atomic<std::uint64_t> counts_[platform::testing::kFileCalls]{};
};

}  // namespace ebb::trials
