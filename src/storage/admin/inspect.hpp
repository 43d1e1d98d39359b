#pragma once
// A store looked at from outside, for a person: what is in it, where, and everything that is not as it should be.
// Nothing is written and no lock is taken; another process may be writing.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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

/// One segment's bytes: all of them, each counted once (but for what dead records count behind the file's end).
struct SegmentUse {
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;      // length of the file
  std::uint64_t allocated = 0;  // on the disk
  std::uint64_t live = 0;       // in `records` checkpoints that are not superseded
  std::uint64_t records = 0;
  std::uint64_t superseded = 0;
  std::uint64_t dropped = 0;  // dropped records, and what never became one
  std::uint64_t gaps = 0;     // given to what was never finished
  std::uint64_t damaged = 0;
  std::uint64_t unused = 0;  // behind the last record
};

struct Inspection {
  std::filesystem::path directory;  // absolute
  StoreHead head;
  ScannedStore scanned;              // what all below is made of
  std::vector<Inspected> records;    // ascending by history, version; of one name the one that counts first
  std::vector<SegmentUse> segments;  // ascending
  std::vector<InspectedDamage> damages;
  std::vector<std::string> left_over;  // store.new, index.new: of a crash, and of no meaning
  std::vector<std::string> others;     // files that are no store's
  bool index = false;                  // there is one, and it is whole
};

/// Reads all heads and names, and the index, and holds them against each other; no payload. Errors as of scan_store():
/// not_a_store, unsupported, not_permitted, io_error, and damaged if it is the file `store` that is.
/// `settle` as there.
Result<Inspection> inspect(platform::Files& files, const std::filesystem::path& directory, bool settle = false);

/// Hears of bytes that were read, on any of the threads; false ends the reading as soon as it can.
using ReadProgress = std::function<bool(std::uint64_t bytes)>;

struct Verdict {
  enum class Kind {
    intact,
    damaged,
    unreadable,
    gone,
    unknown
  } kind = Kind::unknown;  // unknown: the reading was ended
  Damage damage;           // of what is damaged or cannot be read
};

/// Reads and checks all bytes of these records, several at once; a verdict on each, in their order.
std::vector<Verdict> verify_all(platform::Files& files, const std::filesystem::path& directory,
                                const std::vector<RecordHead>& records, unsigned threads,
                                const ReadProgress& progress = {});

}  // namespace ebb::storage
