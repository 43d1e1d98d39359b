#pragma once
// Reads a store's directory; writes nothing.
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::storage {

std::string segment_name(std::uint64_t segment);
std::filesystem::path segment_path(const std::filesystem::path& directory,
                                   std::uint64_t segment);  // "segment-00000001.ebb"
/// The number of the segment that a file name belongs to, if any.
std::optional<std::uint64_t> segment_number(const std::string& name);
/// The segments that have files, ascending. Error io_error.
Result<std::vector<std::uint64_t>> list_segments(os::Files& files, const std::filesystem::path& directory);
inline constexpr const char* kStoreFile = "store";
inline constexpr const char* kIndexFile = "index";
inline constexpr const char* kOldIndexFile = "index.old";  // the index as the last writer found it
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kNewStoreFile = "store.new";  // written under this name, then renamed
inline constexpr const char* kNewIndexFile = "index.new";

/// A record found by a scan.
struct ScannedRecord {
  RecordHead head;
  std::string history;
  bool settled = false;  // on the disk its head says `written`; the scan has synced it and read its payload
};

struct ScannedSegment {
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;             // length of the file
  std::uint64_t end = 0;               // end of the last record of any kind (maybe beyond the file's end) and of damage
  std::vector<ScannedRecord> records;  // live ones, ascending by offset
  struct Gap {
    std::uint64_t offset = 0, length = 0;
  };
  std::vector<Gap> gaps;  // before `end`: neither records nor damage
  struct Stretch {
    std::uint64_t offset = 0, length = 0;
    std::optional<RecordHead> head;  // if it is intact
    bool settled = false;            // of waste: on the disk its head says `written`
  };
  std::vector<Stretch> waste;       // dropped records, void places, lists of drops. Like `damaged` and `drops`, empty
                                    // if from an index
  std::vector<Stretch> damaged;     // where a record should be: up to the next intact head
  std::vector<Drop> drops;          // by offset: what its lists say of records, which is taken into account above
  std::uint64_t dead = 0;           // bytes of what is in `waste`
  std::uint64_t last_sequence = 0;  // of all records, dropped ones too
};

struct ScannedStore {
  StoreHead head;
  std::vector<ScannedSegment> segments;  // ascending
  std::vector<Damage> damages;
  std::uint64_t next_segment = 1, next_sequence = 1;  // beyond all that exist, or existed by the index
  bool from_index = false;
};

/// Reads the heads and names of all records, several segments at once. `use_index`: trusts an intact index if the
/// segments have the lengths in it. If the index is not trusted, or is wrong, records that it lists and that are not
/// found are damage; without an index, so are those in the previous one. A segment that disappears meanwhile does not
/// count. `settle`: syncs each segment and then reads it from the disk, because what a killed process wrote, or failed
/// to sync, may be only in memory. Records that say `written` then count, if the system that wrote them still runs,
/// and are waste if it does not; without `settle` they are gaps. Errors: not_a_store, unsupported, not_permitted,
/// io_error; damage is not an error, except of the file `store`.
Result<ScannedStore> scan_store(os::Files& files, const std::filesystem::path& directory, bool use_index,
                                bool settle = false);
/// Whether scan_store() would trust the index. Errors as for scan_store().
Result<bool> has_current_index(os::Files& files, const std::filesystem::path& directory);
/// Scans one segment from `from` on (0, or where a record begins or ends). A missing segment is empty.
Result<ScannedSegment> scan_segment(os::Files& files, const std::filesystem::path& directory, const Uuid& store,
                                    std::uint64_t segment, std::uint64_t from, std::vector<Damage>& damages,
                                    bool settle = false);

/// The index file as it is.
struct IndexFile {
  std::vector<std::byte> bytes;  // the file; if its first sector is not intact, only that sector
  std::string wrong;             // a sentence: why it could not be read; usually empty
  bool operator==(const IndexFile&) const = default;
};
/// Empty if there is none. Allocates no more than an intact first sector says.
Result<std::optional<IndexFile>> read_index(os::Files& files, const std::filesystem::path& path);
/// The index is derived: it is the result of a scan at a clean close. It is written whole or not at all.
std::vector<std::byte> encode_index(const ScannedStore& store);
Result<ScannedStore> parse_index(std::span<const std::byte> bytes, const StoreHead& store);

}  // namespace ebb::storage
