#pragma once
// The fake device's records of memory: allocations, reserved addresses and how far they are mapped, and pinned pieces
// of host memory. No lock; no byte is touched.
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::doubles {

/// Whether two ranges share a byte.
bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes);

/// Thread safety: none of its own.
class FakeMemory {
 public:
  struct Reserved {
    std::size_t bytes = 0, mapped = 0;
  };

  void allocated(std::byte* memory, std::size_t bytes) { allocated_[memory] = bytes; }
  /// False: it was not allocated.
  bool freed(std::byte* memory) { return allocated_.erase(memory) > 0; }

  void reserved(std::byte* range, std::size_t bytes) { reserved_[range] = {bytes, 0}; }
  /// Null: no such range.
  const Reserved* range(std::byte* range) const;
  /// Throws std::logic_error for a piece that does not follow the mapped part of its range.
  void mapped(std::byte* range, std::size_t at, std::size_t bytes, std::size_t granule);
  bool unreserved(std::byte* range) { return reserved_.erase(range) > 0; }

  /// Why these pages cannot be pinned; nothing: they are, from now on.
  std::optional<std::string> pin(std::byte* memory, std::size_t bytes);
  /// False: no pin() was of exactly this memory.
  bool unpin(std::byte* memory, std::size_t bytes);

  /// Whether one allocation has all of it, and none of it is pinned.
  bool is_device(const void* memory, std::size_t bytes) const;
  /// Why no copy may touch these bytes; nothing: it may.
  std::optional<std::string> unusable(const void* memory, std::size_t bytes) const;
  /// Why a copy of these bytes would cross a border of pinned memory; nothing: it does not.
  std::optional<std::string> crosses(const void* memory, std::size_t bytes) const;

  std::size_t allocated_bytes() const;  // allocated, or reserved and mapped
  std::size_t reserved_bytes() const;   // addresses, mapped or not
  std::size_t pinned_bytes() const;

  const std::map<std::byte*, std::size_t>& all_allocated() const { return allocated_; }
  const std::map<std::byte*, Reserved>& all_reserved() const { return reserved_; }

 private:
  using Pinned = std::map<std::byte*, std::size_t>;
  /// The last piece that begins at `memory` or before it, or else the first: no earlier one reaches that far, for
  /// pieces do not overlap. A store of many small pieces asks for each copy, so not every piece is looked at.
  Pinned::const_iterator pinned_before(const std::byte* memory) const;

  std::map<std::byte*, std::size_t> allocated_;
  Pinned pinned_;
  std::map<std::byte*, Reserved> reserved_;
};

}  // namespace ebb::doubles
