#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ebb::storage {

/// A contiguous part of the file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  bool operator==(const Extent&) const = default;
};

/// Which bytes of a file are free. First fit: the lowest gap that holds all; when none does, the longest gaps together,
/// so that an object is refused only when fewer bytes are free than it needs.
///
/// Thread safety: none. Invariants: gaps do not overlap, do not touch and are not empty; free_bytes() is their sum.
class ExtentAllocator {
 public:
  /// A file of `capacity` bytes, all free.
  explicit ExtentAllocator(std::uint64_t capacity);

  /// `bytes` in one or more extents, in the order in which to fill them; none when fewer are free. Sizes
  /// that are multiples of 4096 always give extents that are.
  std::optional<std::vector<Extent>> allocate(std::uint64_t bytes);
  /// Frees the result of allocate(). Throws std::logic_error when part of it is free already or outside the file.
  void free(const Extent& extent);

  std::uint64_t capacity() const noexcept { return capacity_; }
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }
  std::uint64_t largest_gap() const;

 private:
  Extent take_from(std::map<std::uint64_t, std::uint64_t>::iterator gap, std::uint64_t bytes);

  std::uint64_t capacity_ = 0, free_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> gaps_;  // offset to length
};

}  // namespace ebb::storage
