#pragma once
// What is in a store's directory: read, never written.
#include <filesystem>
#include <functional>
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
/// The segment that a name in a store's directory is of; none for any other name.
std::optional<std::uint64_t> segment_number(const std::string& name);
/// The segments that have files, ascending. Error io_error.
Result<std::vector<std::uint64_t>> list_segments(platform::Files& files, const std::filesystem::path& directory);
inline constexpr const char* kStoreFile = "store";
inline constexpr const char* kIndexFile = "index";
inline constexpr const char* kOldIndexFile = "index.old";  // the index as the last opening to write found it
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kNewStoreFile = "store.new";  // written beside, then renamed
inline constexpr const char* kNewIndexFile = "index.new";

/// A record as a scan met it.
struct ScannedRecord {
  RecordHead head;
  std::string history;
};

struct ScannedSegment {
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;  // length of the file
  std::uint64_t end = 0;    // behind the last record of any kind (maybe behind the file's end), and behind damage
  std::vector<ScannedRecord> records;  // live ones, ascending by offset
  struct Gap {
    std::uint64_t offset = 0, length = 0;
  };
  std::vector<Gap> gaps;  // before `end`: no record of any kind, and nothing that was damaged
  struct Place {
    std::uint64_t offset = 0, length = 0;
    std::optional<RecordHead> head;
  };  // a head that is whole
  std::vector<Place> waste;         // dropped records and nothing. This and the next one: empty if from an index
  std::vector<Place> damaged;       // where there was to be a record: to the next head that is whole
  std::uint64_t dead = 0;           // bytes of dropped records and of nothing
  std::uint64_t last_sequence = 0;  // of all records, dropped ones too
};

struct ScannedStore {
  StoreHead head;
  std::vector<ScannedSegment> segments;  // ascending
  std::vector<Damage> damages;
  std::uint64_t next_segment = 1, next_sequence = 1;  // beyond all that is there, or that an index says was
  bool from_index = false;
};

/// Reads the heads and names of all records, of several segments at once. `use_index`: takes the index's word where
/// there is a whole one whose segments have the length that it says. Without its word, or where it is wrong, what it
/// lists and is not found any more is damage; so is what the one before it lists, where there is none. A segment that
/// disappears meanwhile is none. `settle`: each segment that is read is synced first and then read from the disk, for
/// what a killed process wrote, or failed to sync, may be in memory alone. Errors: not_a_store, unsupported,
/// not_permitted, io_error; damage is no error, but that of the file `store`.
Result<ScannedStore> scan_store(platform::Files& files, const std::filesystem::path& directory, bool use_index,
                                bool settle = false);
/// Whether scan_store() would take the index's word. Errors likewise.
Result<bool> has_current_index(platform::Files& files, const std::filesystem::path& directory);
/// What one segment holds from `from` on (0, or where a record began or ended). One that is not there holds nothing.
Result<ScannedSegment> scan_segment(platform::Files& files, const std::filesystem::path& directory, const Uuid& store,
                                    std::uint64_t segment, std::uint64_t from, std::vector<Damage>& damages,
                                    bool settle = false);

/// The index as it lies there.
struct IndexFile {
  std::vector<std::byte> bytes;  // all of it; of one that is not whole by its first sector, that sector
  std::string wrong;             // a sentence: why it was not read; mostly empty
  bool operator==(const IndexFile&) const = default;
};
/// None if there is none. No memory is taken for a length that its first sector, which is whole, does not say too.
Result<std::optional<IndexFile>> read_index(platform::Files& files, const std::filesystem::path& path);
/// The index is derived: it says what a scan would find, as of a clean close. Written whole, or not at all.
std::vector<std::byte> encode_index(const ScannedStore& store);
Result<ScannedStore> parse_index(std::span<const std::byte> bytes, const StoreHead& store);

/// All checks of one record: header, then payload, piece by piece. Error damaged names file, offset and checkpoint;
/// unknown_version: it was dropped meanwhile; io_error. `progress`, if any, hears of the bytes that were read.
Result<Header> verify_record(platform::Files& files, const std::filesystem::path& directory, const RecordHead& head,
                             const std::function<void(std::uint64_t)>& progress = {});

}  // namespace ebb::storage
