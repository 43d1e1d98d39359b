#pragma once
// A checkpoint in VELOC's format: a file `<name>-<rank>-<version>.dat` with a table of its regions and their bytes, one
// after the other. No I/O here. docs/veloc.md has the layout.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/editions.hpp"
#include "ebbtide/error.hpp"

namespace ebb::storage {

inline constexpr std::uint64_t kMostVelocName = 127;  // bytes of a checkpoint's name
/// In a name's place of a rank: the file is *aggregated*, it has the checkpoints of all ranks one after the other.
inline constexpr int kAllRanks = -1;

/// Alone in a checkpoint, it is a file that the program wrote itself: VELOC's file is that one, without a table.
inline constexpr std::uint32_t kVelocFileRegion = 0x80000000;
bool is_program_file(const CheckpointInfo& info);
/// Such a checkpoint.
CheckpointInfo program_file(std::uint64_t bytes);

/// What VELOC calls a version, of which there may be several editions (kVelocEdition).
constexpr Version veloc_number(Version version) { return version % kVelocEdition; }

/// What the name of a file says, and which edition it is: file_name() has the same for all.
struct VelocName {
  std::string name;
  int rank = 0;
  Version version = 0;
  bool operator==(const VelocName&) const = default;
};

/// Whether VELOC can have a checkpoint of this name and version. Error invalid_argument.
Result<void> check_veloc_name(std::string_view name, Version version);
std::string file_name(const VelocName& name);
/// Nothing: it is no checkpoint's file.
std::optional<VelocName> parse_file_name(std::string_view file);

/// Where a checkpoint's bytes are in its file. Regions stand there in the order of their ids as signed numbers, without
/// gaps, and in the payload where the checkpoint has them, with gaps between.
struct VelocLayout {
  struct Extent {
    std::uint64_t offset = 0, bytes = 0;  // in the payload
    std::uint64_t at = 0;                 // in the file
  };
  std::vector<Extent> extents;  // ascending by offset; none is empty
  std::uint64_t header_bytes = 0, file_bytes = 0;

  static VelocLayout of(const CheckpointInfo& info);
  /// Calls `extent(from, bytes, at)` for each part of payload bytes [offset, offset + bytes) that the file has: `from`
  /// counts from `offset`.
  template <class Call>
  void for_each(std::uint64_t offset, std::uint64_t bytes, Call&& extent) const;
  /// Sets the bytes of `memory`, which are the payload's from `offset` on, that lie between regions to zero.
  void clear_gaps(std::uint64_t offset, std::span<std::byte> memory) const;
  bool has_gaps(std::uint64_t offset, std::uint64_t bytes) const;
};

/// The table in front of the regions' bytes; nothing for a program's file.
std::vector<std::byte> encode_veloc_header(const CheckpointInfo& info);
/// How many bytes the table of a file has; 0: `begin`, its first 8 bytes or fewer, is of no such file.
std::uint64_t veloc_header_bytes(std::span<const std::byte> begin, std::uint64_t file_bytes);
/// Where an aggregated file has the checkpoint of one rank.
struct VelocPart {
  std::uint64_t begin = 0, bytes = 0;
};
/// From the table of an aggregated file: the number of ranks, and where each of them begins. Error damaged: it is cut
/// off, does not fit the file, or has no such rank.
Result<VelocPart> parse_veloc_table(std::span<const std::byte> table, int rank, std::uint64_t file_bytes);
/// From the whole table. The checkpoint lays its regions out in the file's order. Error damaged: the table does not fit
/// the file, or names a region twice.
Result<CheckpointInfo> parse_veloc_header(std::span<const std::byte> header, std::uint64_t file_bytes);

template <class Call>
void VelocLayout::for_each(std::uint64_t offset, std::uint64_t bytes, Call&& extent) const {
  const std::uint64_t end = offset + bytes;
  auto one = extents.begin();
  for (std::size_t left = extents.size(); left > 0;) {  // the first that ends after `offset`
    const std::size_t half = left / 2;
    const auto middle = one + static_cast<std::ptrdiff_t>(half);
    if (middle->offset + middle->bytes > offset) {
      left = half;
    } else {
      one = middle + 1;
      left -= half + 1;
    }
  }
  for (; one != extents.end() && one->offset < end; ++one) {
    const std::uint64_t from = std::max(offset, one->offset), to = std::min(end, one->offset + one->bytes);
    extent(from - offset, to - from, one->at + (from - one->offset));
  }
}

}  // namespace ebb::storage
