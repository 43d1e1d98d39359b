#pragma once
// Where in a file each piece begins and ends.
#include <algorithm>
#include <bit>
#include <cstdint>

namespace ebb::files {

/// Pieces grow with the file, so that a small one wastes little and a large one has few: eight of `smallest` bytes,
/// then four of each power of two more, up to `largest`. Both are powers of two.
struct PieceLayout {
  std::uint64_t smallest = 0, largest = 0;

  struct PiecePlace {
    std::uint64_t index = 0, start = 0, bytes = 0;
  };
  PiecePlace at(std::uint64_t offset) const {
    const auto doublings = static_cast<std::uint64_t>(std::countr_zero(largest / smallest));
    const std::uint64_t quarters = offset / (4 * smallest);
    if (doublings == 0 || quarters < 2) return place(0, 0, smallest, offset);
    const std::uint64_t doubled =
        std::min<std::uint64_t>(doublings, static_cast<std::uint64_t>(std::bit_width(quarters) - 1));
    return place(8 + 4 * (doubled - 1), 4 * (smallest << doubled), smallest << doubled, offset);
  }

 private:
  /// In a row of pieces of one size that begins with piece `index` at `start`.
  static PiecePlace place(std::uint64_t index, std::uint64_t start, std::uint64_t bytes, std::uint64_t offset) {
    const std::uint64_t n = (offset - start) / bytes;
    return {index + n, start + n * bytes, bytes};
  }
};

}  // namespace ebb::files
