#pragma once
// A store looked at from outside, for a person: what is in it, where, and everything that is not as it should be.
// Nothing is written and no lock is taken; another process may be writing.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/admin.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

/// A checkpoint whose header is whole.
struct Inspected {
  RecordHead head;
  std::string history;
  bool superseded = false;  // of its name there is one, live or dropped, with a higher sequence: it is never offered
};

/// Damage, and which checkpoint it hit if anything intact still says so.
struct InspectedDamage {
  Damage damage;
  std::optional<std::string> history;
  std::optional<Version> version;
};

struct Inspection {
  std::filesystem::path directory;  // absolute
  StoreHead head;
  ScannedStore scanned;                     // what all below is made of
  std::vector<Inspected> records;           // ascending by history, version; of one name the one that counts first
  std::vector<admin::SegmentUse> segments;  // ascending
  std::vector<InspectedDamage> damages;
  std::vector<std::string> left_over;  // store.new, index.new: of a crash, and of no meaning
  std::vector<std::string> others;     // files that are no store's
  bool index = false;                  // there is one, and it is whole
};

/// Reads all heads and names, and the index, and holds them against each other; no payload. Errors as of scan_store():
/// not_a_store, unsupported, not_permitted, io_error, and damaged if it is the file `store` that is.
/// `settle` as there.
Result<Inspection> inspect(platform::Files& files, const std::filesystem::path& directory, bool settle = false);

/// How a record was found; `damage` is of one that is damaged or unreadable.
struct Verified {
  admin::Verdict::Kind kind = admin::Verdict::Kind::unknown;
  Damage damage;
};

/// Reads and checks all bytes of these records, several at once; a verdict on each, in their order. No `threads`: as in
/// admin::ReadOptions.
std::vector<Verified> verify_all(platform::Files& files, const std::filesystem::path& directory,
                                 const std::vector<RecordHead>& records, unsigned threads,
                                 const admin::Progress& progress = {});

}  // namespace ebb::storage
