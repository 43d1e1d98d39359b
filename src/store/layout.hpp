#pragma once
// How regions are laid out in a checkpoint: one after another in the order given, each at a multiple of 256.
#include <span>
#include <vector>

#include "ebbtide/store.hpp"

namespace ebb::store {

inline constexpr std::uint64_t kRegionAlignment = 256;

/// A region's place in the checkpoint and in the application's memory (only read when writing a checkpoint).
struct PlacedRegion {
  std::uint64_t offset = 0;
  std::size_t bytes = 0;
  std::byte* memory = nullptr;
};

/// Errors invalid_argument: an id twice, a size without data (unless `sizes_only`), more bytes than can be counted.
Result<CheckpointInfo> lay_out(std::span<const Source> sources, const std::string& metadata, bool sizes_only);

std::vector<PlacedRegion> pieces_of(const CheckpointInfo& info, std::span<const Source> sources);

/// Of the regions in their order; with `some`, those without a target are left out. Errors size_mismatch naming ids and
/// sizes: a region without a target, a target without a region, a size that differs.
Result<std::vector<PlacedRegion>> pieces_of(const CheckpointInfo& info, std::span<const Target> targets,
                                            bool some = false);

/// The number of the region that a piece of `pieces_of` is of, at `from` or behind it. Two of no bytes are alike.
std::size_t region_index(const CheckpointInfo& info, const PlacedRegion& piece, std::size_t from = 0);

/// For what try_touch() refused: `reads` it, or writes it: invalid_argument.
Error unusable_memory(std::uint32_t region, bool reads);
Error prefixed(const std::string& key, Error error);

/// Calls `copy(memory, offset from the range's first byte, bytes)` for each part of bytes [offset, offset + length).
template <class Copy>
void for_each_part(std::span<const PlacedRegion> pieces, std::uint64_t offset, std::uint64_t length, Copy&& copy) {
  const std::uint64_t end = offset + length;
  for (const PlacedRegion& piece : pieces) {
    if (piece.offset >= end) return;  // pieces are in order
    const std::uint64_t from = std::max(offset, piece.offset), to = std::min(end, piece.offset + piece.bytes);
    if (from < to) copy(piece.memory + (from - piece.offset), from - offset, static_cast<std::size_t>(to - from));
  }
}

/// Where region `id` is; throws std::invalid_argument when there is none.
const RegionInfo& region_of(const CheckpointInfo& info, std::uint32_t id);

}  // namespace ebb::store
