#pragma once
// Reads one record of a store from start to end, in pieces, and returns no byte before its checksum has matched.
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::storage {

/// Whether the writing process has dropped this very record since `head` was read, so that its payload may be a hole.
bool is_dropped(os::Files& files, const std::filesystem::path& directory, const RecordHead& head);

/// Thread safety: used by one thread at a time. `files` must outlive it.
///
/// Errors of open() and next(): damaged; unknown_version (it was dropped meanwhile, which is checked before anything is
/// called damaged); io_error. Each message names file, offset and checkpoint; trouble() has them separately.
class RecordReader {
 public:
  static constexpr std::size_t kPiece = 4 << 20;  // bytes of a piece, about

  RecordReader(os::Files& files, const std::filesystem::path& directory, const RecordHead& head);

  /// Reads and checks the header. Call this first, once.
  Result<void> open();
  const Header& header() const { return *header_; }
  /// The next checked bytes of the payload, valid until the next call; empty at the end.
  Result<std::span<const std::byte>> next();
  /// Place and reason of the last error.
  const Damage& trouble() const { return trouble_; }

 private:
  Error fail(Errc code, std::uint64_t offset, const std::string& what);
  Error damaged(std::uint64_t offset, const std::string& what);
  Result<void> read(std::span<std::byte> into, std::uint64_t offset);

  os::Files& files_;
  const std::filesystem::path directory_, path_;
  const RecordHead head_;
  os::File file_;
  std::optional<Header> header_;
  std::vector<std::byte> piece_;
  std::uint64_t at_ = 0;  // of the payload: the next byte
  Damage trouble_;
};

}  // namespace ebb::storage
