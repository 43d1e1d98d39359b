#pragma once
// Lists a store's contents and damage for a person. Writes nothing and takes no lock; another process may be writing.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/admin.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

/// A checkpoint with an intact header.
struct Inspected {
  RecordHead head;
  std::string history;
  bool superseded = false;  // a record of its version, live or dropped, has a higher sequence: it is never offered
};

/// Damage, and the checkpoint there if intact data still names it.
struct InspectedDamage {
  Damage damage;
  std::optional<std::string> history;
  std::optional<Version> version;
};

struct Inspection {
  std::filesystem::path directory;  // absolute
  StoreHead head;
  ScannedStore scanned;                     // the source of all fields below
  std::vector<Inspected> records;           // ascending by history, version; the valid one of a version first
  std::vector<admin::SegmentUse> segments;  // ascending
  std::vector<InspectedDamage> damages;
  std::vector<std::string> left_over;  // store.new, index.new: left by a crash; ignored
  std::vector<std::string> others;     // files that do not belong to the store
  bool index = false;                  // there is a valid one
  bool paired = false;                 // it is one of two: what is stored in it may need what is in the other one
};

/// Reads all heads and names, and the index, and compares them; no payload. Errors as of scan_store():
/// not_a_store, unsupported, not_permitted, io_error, and damaged for the file `store`.
/// `settle` as there.
Result<Inspection> inspect(os::Files& files, const std::filesystem::path& directory, bool settle = false);

/// The state of a record; `damage` if it is damaged or unreadable.
struct Verified {
  admin::Verdict::Kind kind = admin::Verdict::Kind::unknown;
  Damage damage;
};

/// Reads and checks all bytes of these records, several at once; one verdict each, in the same order. `threads` 0: as
/// in admin::ReadOptions.
std::vector<Verified> verify_all(os::Files& files, const std::filesystem::path& directory,
                                 const std::vector<RecordHead>& records, unsigned threads,
                                 const admin::Progress& progress = {});

}  // namespace ebb::storage
