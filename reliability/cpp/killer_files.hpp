#pragma once
// Files of the system that end the process at a call of theirs.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>

#include "tests/doubles/forward_files.hpp"

namespace ebb::trials {

using doubles::FileCall;

/// Where a process is killed: at the n-th call of a kind, before it, behind it, or (of a write) when a part of it is
/// done.
struct Killing {
  enum class When : std::uint8_t { before, within, after } when = When::before;
  FileCall call = FileCall::write;
  std::uint64_t nth = 0;  // from 1; 0: never
};

/// Thread safety: every method may be called from any thread.
class KillerFiles final : public doubles::ForwardFiles<KillerFiles> {
 public:
  explicit KillerFiles(const Killing& killing) : ForwardFiles(posix_), killing_(killing) {}

  std::uint64_t calls(FileCall call) const { return counts_[static_cast<std::size_t>(call)]; }

  os::SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    return at(
        FileCall::write, [&] { return inner_.write(fd, memory, bytes, offset); },
        [&] {  // whole blocks, or it might be refused
          const std::size_t part = bytes / 2 / os::kBlock * os::kBlock;
          if (part) static_cast<void>(inner_.write(fd, memory, part, offset));
        });
  }
  os::SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override {
    return at(
        FileCall::punch, [&] { return inner_.punch(fd, offset, bytes); },
        [&] { static_cast<void>(inner_.punch(fd, offset, bytes / 2 + 1)); });
  }
  /// None: every transfer is to be seen.
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned) override {
    static_cast<void>(at(FileCall::open_ring, [] { return os::SysResult::failed(ENOSYS); }, [] {}));
    return Error{Errc::unsupported, "transfers are to be seen one by one"};
  }

 private:
  friend ForwardFiles;
  using When = Killing::When;
  [[noreturn]] static void die() {
    std::raise(SIGKILL);
    for (;;) {
    }
  }
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& call, Whole&& whole) noexcept {
    return at(call.call, whole, [] {});
  }
  template <class Whole, class Part>
  os::SysResult at(FileCall call, Whole&& whole, Part&& part) noexcept {
    const std::uint64_t number = ++counts_[static_cast<std::size_t>(call)];
    const bool here = call == killing_.call && number == killing_.nth;
    if (here && killing_.when == When::within) part();
    if (here && killing_.when != When::after) die();
    const os::SysResult result = whole();
    if (here) die();
    return result;
  }

  os::PosixFiles posix_;
  const Killing killing_;
  std::atomic<std::uint64_t> counts_[doubles::kFileCalls]{};
};

}  // namespace ebb::trials
