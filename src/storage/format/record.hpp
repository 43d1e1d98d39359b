#pragma once
// The layout of a checkpoint in a segment file, as docs/format.md says: `header | payload | padding` or, of a small one
// (format 2), a compact record, which has its payload in the header. Bytes in, values out: no I/O here.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"
#include "ebbtide/options.hpp"

namespace ebb::storage {

inline constexpr std::uint32_t kFormat = 3;                // the newest; each sector has the oldest that describes it
inline constexpr std::size_t kSector = 512;                // the unit that a disk writes whole or not at all
inline constexpr std::uint64_t kCompactBelow = 4096;       // bytes: only compact records have shorter headers
inline constexpr std::uint64_t kMaxHeader = 1ull << 30;    // bytes of a header; larger ones are damaged
inline constexpr std::uint64_t kRegionBytes = 20;          // of a region in a header: id, length, offset
inline constexpr std::uint64_t kMaxName = 64 << 10;        // bytes of a history's name, of any kind
inline constexpr std::uint32_t kMaxBlock = 64 << 20;       // bytes of payload under one checksum
inline constexpr std::uint64_t kMaxOffset = 1ull << 62;    // in a segment, and the end of a record
inline constexpr std::uint64_t kMaxSequence = 1ull << 62;  // of a record; higher ones are damaged
using Uuid = std::array<std::byte, 16>;
using Checksum = std::array<std::byte, 16>;  // XXH3-128, canonical (big-endian)

Checksum checksum_of(std::span<const std::byte> bytes);
/// From the halves of an XXH3-128.
Checksum checksum_from(std::uint64_t low, std::uint64_t high);

/// Names the packed bytes of one snapshot of a history, whatever becomes of its version: two snapshots with one id have
/// the same packed bytes. Chosen at the cut, before anything is stored. Zeros: none.
struct SnapshotId {
  std::uint64_t cut = 0;  // ns since 1970, but later than the cuts of the snapshots that it has zones from
  std::uint64_t random = 0;
  bool operator==(const SnapshotId&) const = default;
};

/// The name and contents of a checkpoint.
struct Description {
  std::string history;
  Version version = 0;
  CheckpointInfo info;
  std::uint64_t sequence = 0;  // that its record gets, of two directories of one store; 0: the storage's next one
};

/// The store and place of a record. A record that names another one is not valid.
struct RecordPlace {
  Uuid store{};
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;  // of the header, in the segment
  bool operator==(const RecordPlace&) const = default;
};

/// The first sector of a record: enough to find the next one. Only this sector is ever rewritten, when the record is
/// dropped; of a record that shares a block, nothing is (see Drop).
struct RecordHead {
  enum class Kind : std::uint32_t {
    live = 1,     // complete: header and payload match their checksums
    dropped = 2,  // it was live; the payload may be freed
    nothing = 3,  // never became a checkpoint
    drops = 4,    // no record: lists what became of others (see Drop)
    written = 5,  // complete, and not synced: it counts while the system runs that wrote it, as `history` says
  } kind = Kind::live;
  RecordPlace place;
  std::uint64_t header_bytes = 0;  // this sector and the body; a multiple of 4096, or of 512 if compact
  std::uint64_t payload_bytes = 0;
  std::uint64_t record_bytes = 0;  // header, payload and padding; a multiple of 4096, or of 512 if compact
  std::uint64_t sequence = 0;      // of the records of one version, the highest is valid, live or dropped
  std::int64_t version = 0;
  std::int64_t written_ns = 0;   // since 1970, by the writer's clock; for display
  std::uint32_t name_bytes = 0;  // of the history's name, UTF-8
  std::uint32_t regions = 0;     // or drops that it lists
  std::uint32_t metadata_bytes = 0;
  std::uint32_t block_bytes = 0;  // of the payload under one checksum; a multiple of 4096. 0: payload unchecked
  Checksum body{};                // of the header after this sector
  Checksum history{};             // of its name, if dropped, so that older ones stay hidden. Zeros: unknown. If
                                  // written, the running system's os::boot_id()
  bool operator==(const RecordHead&) const = default;

  /// Whether its header holds the payload too, and it shares a block of 4096 bytes with others of its kind.
  bool compact() const { return (kind == Kind::live || kind == Kind::dropped) && header_bytes < kCompactBelow; }
  /// Whether its block may hold other records, so that it is never rewritten.
  bool shares_block() const { return record_bytes % kCompactBelow != 0 || place.offset % kCompactBelow != 0; }
  /// The oldest format that has such records.
  std::uint32_t format() const;
};

/// A parsed header: its head, the checkpoint, and a checksum for each block of the payload.
struct Header {
  RecordHead head;
  Description description;
  std::vector<Checksum> blocks;
  std::vector<std::byte> payload;  // if compact
};

/// Whether a record can hold such a checkpoint. Errors: invalid_argument (a name that is too long; regions that are not
/// ascending, overlap, share an id or exceed the payload; block_bytes), too_large (its header would be longer than
/// kMaxHeader).
Result<void> check(const Description& description, std::uint32_t block_bytes);
/// The number of checksums of a payload: one for each block, the last of which may be short.
constexpr std::uint64_t block_count(std::uint64_t payload_bytes, std::uint32_t block_bytes) {
  return block_bytes == 0 ? 0 : payload_bytes / block_bytes + (payload_bytes % block_bytes != 0);
}
/// The length of the header of such a checkpoint.
std::uint64_t header_bytes(const Description& description, std::uint32_t block_bytes);
/// The length of the compact record of such a checkpoint; 0: it is too large for one.
std::uint64_t compact_bytes(const Description& description);
/// Fills in the head's sizes and body checksum; the caller sets place, kind, sequence, block_bytes and written_ns. The
/// result is head.header_bytes long. Throws std::logic_error for what check() refuses.
std::vector<std::byte> encode(RecordHead& head, const Description& description, std::span<const Checksum> blocks);
/// The same of a compact record. The caller also sets record_bytes, which may exceed the header up to the block's end.
std::vector<std::byte> encode_compact(RecordHead& head, const Description& description,
                                      std::span<const std::byte> payload);
/// One sector: of a dropped record (see tombstone()), or of a place without a record (place and record_bytes;
/// everything else is 0).
std::array<std::byte, kSector> encode(const RecordHead& head);
/// The head of a live record, as it is written before a sync; and the other way round.
RecordHead written_head(RecordHead head, const Uuid& boot);
RecordHead live_head(RecordHead written);
/// The head that drops a live record. It identifies the history, because the body may be freed.
RecordHead tombstone(RecordHead head, std::string_view history);
/// Whether a head at the place of `was` says that this very record is dropped, or that there is none.
bool is_tombstone_of(const RecordHead& now, const RecordHead& was);

/// What a record that shares a block became. A list in a later block of the same segment says so: nothing is written to
/// blocks that hold durable records.
struct Drop {
  std::uint64_t offset = 0;                          // of the record, in the segment
  RecordHead::Kind now = RecordHead::Kind::dropped;  // or nothing
  bool operator==(const Drop&) const = default;
};
inline constexpr std::size_t kDropsInSector = 44;
inline constexpr std::uint64_t kDropsInBlock = kDropsInSector * kCompactBelow / kSector;
/// Whole blocks for `place`, the start of one: lists of one sector each, so that a disk writes each whole or not at
/// all.
std::vector<std::byte> encode(RecordPlace place, std::span<const Drop> drops);
/// The bytes that encode() makes of so many.
constexpr std::uint64_t drops_bytes(std::size_t drops) {
  return (drops + kDropsInBlock - 1) / kDropsInBlock * kCompactBelow;
}
/// Of an intact sector of kind drops.
std::vector<Drop> parse_drops(std::span<const std::byte> sector, const RecordHead& head);

/// Parses the first 512 bytes of a record expected at `place`. No field is trusted before the checksum matches and the
/// sizes are consistent; a live record must end within `segment_bytes` (others have nothing to read). Errors: damaged
/// (what is wrong, and where), unsupported (a newer format).
Result<RecordHead> parse_head(std::span<const std::byte> sector, const RecordPlace& place, std::uint64_t segment_bytes);
/// Empty if the sizes of a head are consistent and none overflows; otherwise what is wrong.
std::string misfit(const RecordHead& head);
/// Whether the name in the header of a live record, of which the first block is given, begins so.
bool is_named(std::span<const std::byte> block, const RecordHead& head, std::string_view history);
/// The history's name as the first bytes of a live record have it, unchecked; shorter if they end within it.
std::string name_in(std::span<const std::byte> bytes, const RecordHead& head);
/// From head.header_bytes bytes. Error damaged.
Result<Header> parse_header(std::span<const std::byte> bytes, const RecordHead& head);

/// The first 4096 bytes of a segment.
struct SegmentHead {
  Uuid store{};
  std::uint64_t segment = 0;
  bool operator==(const SegmentHead&) const = default;
};
std::vector<std::byte> encode(const SegmentHead& head);
Result<SegmentHead> parse_segment(std::span<const std::byte> bytes);

/// The file "store", which makes a directory a store.
struct StoreHead {
  Uuid store{};
  std::uint64_t owner = 0;  // the user who created it
  std::int64_t created_ns = 0;
  Durability level = Durability::storage;  // of everything in it; never ephemeral
  bool operator==(const StoreHead&) const = default;
};
std::vector<std::byte> encode(const StoreHead& head);
Result<StoreHead> parse_store(std::span<const std::byte> bytes);

}  // namespace ebb::storage
