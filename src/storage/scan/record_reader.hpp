#pragma once
// One record of a store from its header to its last byte, piece by piece, and no byte before its checksum held.
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::storage {

/// Whether the process that writes has dropped this very record since `head` was read: its payload may be a hole.
bool is_dropped(platform::Files& files, const std::filesystem::path& directory, const RecordHead& head);

/// Thread safety: used by one thread at a time. `files` must outlive it.
///
/// Errors of open() and next(): damaged; unknown_version (it was dropped meanwhile, which is looked at before anything
/// is called damaged); io_error. Each message names file, offset and checkpoint; last_damage() has them apart.
class RecordReader {
 public:
  static constexpr std::size_t kPiece = 4 << 20;  // bytes of one, about

  RecordReader(platform::Files& files, const std::filesystem::path& directory, const RecordHead& head);

  /// Reads and checks the header. Before anything else, once.
  Result<void> open();
  const Header& header() const { return *header_; }
  /// The payload's next bytes, checked; none behind the last. They stay until the next call.
  Result<std::span<const std::byte>> next();
  /// Where and what the last error was.
  const Damage& last_damage() const { return last_damage_; }

 private:
  Error fail(Errc code, std::uint64_t offset, const std::string& what);
  Error damaged(std::uint64_t offset, const std::string& what);
  Result<void> read(std::span<std::byte> into, std::uint64_t offset);

  platform::Files& files_;
  const std::filesystem::path directory_, path_;
  const RecordHead head_;
  platform::File file_;
  std::optional<Header> header_;
  std::vector<std::byte> piece_;
  std::uint64_t at_ = 0;  // of the payload: what comes next
  Damage last_damage_;
};

}  // namespace ebb::storage
