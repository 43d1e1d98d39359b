#pragma once
// A file's record: written last, it says of which pieces the file consists.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"
#include "files/piece_layout.hpp"

namespace ebb::files {

/// A piece that has bytes. It ends with zeros where it has fewer than its place; a piece that is missing has none.
struct RecordedPiece {
  std::uint64_t index = 0, bytes = 0;
  Version version = 0;  // of the piece's history
  bool operator==(const RecordedPiece&) const = default;
};

inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;  // of a file

struct FileRecord {
  std::uint64_t bytes = 0;  // of the file
  PieceLayout layout;
  std::vector<RecordedPiece> pieces;  // ascending
};

/// The bytes of a record, in the format of docs/format.md.
std::vector<std::byte> encode(const FileRecord& record);
/// Error damaged: these are no bytes of a record.
Result<FileRecord> decode(std::span<const std::byte> bytes);

}  // namespace ebb::files
