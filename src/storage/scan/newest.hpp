#pragma once
// Which of several records of one name counts.
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

/// Of the records of one history and version that one alone counts which has the highest sequence, live or dropped. An
/// older one that could not be read for a while, or whose drop a crash took, is never offered again.
class Newest {
 public:
  /// All records of a segment as it was scanned.
  void add(const ScannedSegment& segment);
  /// Whether none that was met is newer than this live one.
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
