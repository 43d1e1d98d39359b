#pragma once
// Snapshots of a store that is not open: what their maps say, and the memory that they restore.
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "storage/format/stored_snapshot.hpp"
#include "storage/scan/record_reader.hpp"

namespace ebb::storage {

/// The snapshot whose map this record has; none: it has no map. Errors: those of RecordReader.
Result<std::optional<StoredSnapshot>> read_snapshot(RecordReader& opened);

/// Pieces by their history, and that of the snapshots: all heads of a store, each with the directory that has it. A
/// shared directory may have another one.
struct PlacedHead {
  std::filesystem::path directory;
  RecordHead head;
};
using HeadsByHistory = std::multimap<std::string, PlacedHead, std::less<>>;

/// The memory that a snapshot restores, region by region, from the pieces that its map names; no byte is returned
/// before its checksum was checked. What is damaged in one directory is taken from the other.
///
/// Thread safety: used by one thread at a time. `files` and `pieces` must outlive it.
class SnapshotContent {
 public:
  SnapshotContent(os::Files& files, std::string history, StoredSnapshot snapshot, const HeadsByHistory& pieces);

  const CheckpointInfo& info() const { return snapshot_.info; }
  /// The next bytes, valid until the next call; empty at the end. Errors: damaged (also: a piece is not there),
  /// unknown_version (a piece was dropped meanwhile), io_error.
  Result<std::span<const std::byte>> next();
  /// Place and reason of the last error.
  const Damage& trouble() const { return trouble_; }

 private:
  os::SysResult read_payload(const os::File& file, const RecordHead& head, std::uint64_t offset);
  Result<void> read_from(const PlacedHead& piece, const ZonesInPiece& chunk, const std::string& needs);
  Error fail(Errc code, const PlacedHead* piece, const std::string& what);

  os::Files& files_;
  const std::string history_;
  const StoredSnapshot snapshot_;
  const HeadsByHistory& pieces_;
  std::vector<ZonesInPiece> chunks_;  // in the order of the regions
  std::size_t at_ = 0;
  std::vector<std::byte> bytes_;
  Damage trouble_;
};

/// The histories of the pieces that a restore needs.
std::vector<std::string> needed_pieces(const std::string& history, const StoredSnapshot& snapshot);

}  // namespace ebb::storage
