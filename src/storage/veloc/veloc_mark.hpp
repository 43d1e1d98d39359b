#pragma once
// What VELOC's format has no room for, in a file beside the checkpoint's own: checksums, metadata, which write it was.
// No I/O here.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "storage/format/record.hpp"

namespace ebb::storage {

/// Ties a mark to the file it was made for: one that has changed since is somebody else's.
struct VelocFileState {
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;
  bool operator==(const VelocFileState&) const = default;
};

/// The beginning of a mark, of kVelocMarkBegin bytes.
struct VelocMarkBegin {
  VelocFileState file;
  Checksum body{};  // as Found::body
  RecordHead head;  // of a record of the checkpoint, for its names and sizes; its place says nothing
};
inline constexpr std::size_t kVelocMarkBegin = 2 * kSector;

/// `raw`: checksums of the blocks as they were put, with whatever was between the regions, where `blocks` has zeros.
/// Only to find Found::body: a copy of the same checkpoint in another storage has those, and names the history with
/// `prefix` before it.
struct VelocMarkOf {
  const Description& description;
  VelocFileState file;
  std::uint32_t block_bytes = 0;
  std::uint64_t sequence = 0;
  std::int64_t written_ns = 0;
  std::span<const Checksum> blocks, raw;
  std::span<const std::byte> payload;  // of a checkpoint that fits a compact record
  std::string_view prefix = {};
};
std::vector<std::byte> encode_veloc_mark(const VelocMarkOf& mark);
/// Errors: damaged, unsupported.
Result<VelocMarkBegin> parse_veloc_mark_begin(std::span<const std::byte> bytes);
/// All of it: the description and the checksums of the blocks. Errors as above.
Result<Header> parse_veloc_mark(std::span<const std::byte> bytes);

}  // namespace ebb::storage
