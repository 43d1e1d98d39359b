#pragma once
// What tests that touch real files share.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

#include "os/files.hpp"

namespace ebb::test {

/// A directory on a disk: $EBB_TEST_DIR, else where the test runs (the build tree; /tmp is often a tmpfs).
inline std::filesystem::path disk_directory() {
  const char* named = std::getenv("EBB_TEST_DIR");
  return named ? std::filesystem::path(named) : std::filesystem::current_path();
}

/// 4096-aligned memory, sized up to a multiple of 4096, filled with one byte.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, std::byte fill = std::byte{0})
      : size_(os::round_up(bytes ? bytes : 1)),
        data_(static_cast<std::byte*>(::operator new(size_, std::align_val_t{os::kBlock}))) {
    std::fill_n(data_, size_, fill);
  }
  Buffer(Buffer&& other) noexcept : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() {
    if (data_) ::operator delete(data_, std::align_val_t{os::kBlock});
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> first(std::size_t bytes) const { return {data_, bytes}; }
  /// Fills it with bytes that differ from seed to seed and from place to place.
  void scramble(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t i = 0; i + 8 <= size_; i += 8) {
      const std::uint64_t word = random();
      std::memcpy(data_ + i, &word, 8);
    }
  }

 private:
  std::size_t size_;
  std::byte* data_;
};

/// An unlinked file in disk_directory(); direct() returns the requested mode.
inline os::File open_file(os::Files& files, bool direct, std::uint64_t bytes = 0) {
  const os::SysResult opened = files.open_unlinked(disk_directory(), direct);
  if (!opened) throw std::runtime_error("cannot open a test file: " + os::describe_errno(opened.error));
  os::File file(files, static_cast<int>(opened.value), "test file", direct);
  if (const auto sized = files.truncate(file.fd(), bytes); !sized) {
    throw std::runtime_error("cannot size a test file: " + os::describe_errno(sized.error));
  }
  return file;
}

}  // namespace ebb::test
