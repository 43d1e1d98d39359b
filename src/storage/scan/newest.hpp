#pragma once
// Which of several records of one version is valid.
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

/// Of the records of one history and version only the one with the highest sequence is valid, live or dropped. An older
/// one that was unreadable for a while, or whose tombstone a crash lost, is never offered again.
class Newest {
 public:
  /// Adds all records of a scanned segment.
  void add(const ScannedSegment& segment);
  /// Adds a live record.
  void add(const RecordHead& head, std::string_view history);
  /// Whether no newer record than this live one has been added.
  bool is_newest(const RecordHead& head, std::string_view history) const;

 private:
  struct Name {
    Checksum history{};  // of its name
    Version version = 0;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Name& name) const noexcept;
  };
  void add(const Name& name, std::uint64_t sequence);

  std::unordered_map<Name, std::uint64_t, Hash> highest_;  // sequences
};

}  // namespace ebb::storage
