#pragma once
// What a segment store knows of its objects and of the segment files that they are in.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/segments/kept_transfers.hpp"
#include "storage/storage.hpp"

namespace ebb::storage {

struct KeptObject;
struct RangeRead;
using SharedObject = std::shared_ptr<KeptObject>;

/// A segment file. Guarded by the table's lock, but for `number`, which is constant.
struct KeptSegment {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;               // that its file may hold
  std::uint64_t end = platform::kBlock;  // where the next record goes
  SharedFile file;       // held from its making until no more header is to come: a sync that is asked of
                         // a descriptor tells of all writes since that one was opened
  bool closed = false;   // no more records
  bool broken = false;   // a sync or header failed: it is never written again, drops excepted
  bool unnamed = false;  // its file was removed or replaced by somebody else, and that was told
  bool suspect = false;  // damage was found in it: it stays as it is, drops excepted
  std::map<std::uint64_t, SharedObject> records;  // by offset: all that is not known to be dead
};
using SharedSegment = std::shared_ptr<KeptSegment>;

/// An object and its record. `id`, `history`, `segment` and the head's place and sizes are constant once it is in the
/// table; the table's lock guards the rest, but for `sums` (see SegmentWriter 2 and ObjectReader 3).
///
///   writing --all ranges reported--> ready --taken by the committer--> committing --header durable--> kept
///   writing, ready, committing --its segment broke, or the store closed--> failed
struct KeptObject {
  enum class State : std::uint8_t { writing, ready, committing, kept, failed } state = State::writing;
  ObjectId id = 0;
  std::string history;
  std::shared_ptr<const Description> description;  // none: on the disk, or handed out
  RecordHead head;
  SharedSegment segment;
  std::shared_ptr<std::vector<Checksum>> sums;       // none: on the disk
  std::vector<bool> put;                             // which blocks were reported well
  std::size_t missing = 0;                           // how many were not
  std::size_t puts = 0;                              // under way, or being reported
  std::uint64_t commits = 0;                         // the committer's count of calls when all of it was put
  std::size_t under_way = 0;                         // puts and gets not reported
  std::vector<std::shared_ptr<RangeRead>> awaiting;  // gets: the first of them is having the header read
  bool described = false;                            // its description was asked for
  bool marked = false;                               // its header may be on the disk
  bool dropped = false;
  bool forgotten = false;  // its bytes could not be read: it is left until it is written anew
  Error error;             // of one that failed

  /// 'version 3 of "adjoint"'
  std::string name() const { return "version " + std::to_string(head.version) + " of \"" + history + "\""; }
  std::uint64_t payload_place() const { return head.place.offset + head.header_bytes; }
  std::uint64_t space() const { return platform::round_up(head.payload_bytes); }
  Error named(const Error& why) const { return {why.code, name() + ": " + why.message}; }
  Error was_dropped() const { return {Errc::unknown_version, name() + " was dropped"}; }
  void fail(const Error& why) {
    state = State::failed;
    error = named(why);
  }
};

}  // namespace ebb::storage
