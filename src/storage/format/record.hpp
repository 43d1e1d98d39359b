#pragma once
// How a checkpoint lies in a segment file: `header | payload | padding`, as docs/format.md says. Bytes in, values out:
// nothing is read or written here.
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

inline constexpr std::uint32_t kFormat = 1;                // of everything that is written
inline constexpr std::size_t kSector = 512;                // that a disk writes whole or not at all
inline constexpr std::uint64_t kMaxHeader = 1ull << 30;    // bytes of one; more is not believed
inline constexpr std::uint64_t kRegionBytes = 20;          // of a region in a header: id, length, offset
inline constexpr std::uint64_t kMaxName = 64 << 10;        // bytes of a history's name: any at all
inline constexpr std::uint32_t kMaxBlock = 64 << 20;       // bytes of payload under one checksum
inline constexpr std::uint64_t kMaxOffset = 1ull << 62;    // in a segment, and the end of a record
inline constexpr std::uint64_t kMaxSequence = 1ull << 62;  // of a record; a higher one is not believed
using Uuid = std::array<std::byte, 16>;
using Checksum = std::array<std::byte, 16>;  // XXH3-128, canonical (big-endian)

Checksum checksum_of(std::span<const std::byte> bytes);

/// A checkpoint by name, and what is in it.
struct Description {
  std::string history;
  Version version = 0;
  CheckpointInfo info;
};

/// The store and the place that a record is in. One that says otherwise is none.
struct RecordPlace {
  Uuid store{};
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;  // of the header, in the segment
  bool operator==(const RecordPlace&) const = default;
};

/// The first sector of a record: all that is needed to go on to the next one. It alone is ever written twice: when the
/// record is dropped.
struct RecordHead {
  enum class Kind : std::uint32_t {
    live = 1,     // complete: header and payload are as the checksums say
    dropped = 2,  // it was live; the payload may be gone
    nothing = 3,  // never became a checkpoint
  } kind = Kind::live;
  RecordPlace place;
  std::uint64_t header_bytes = 0;  // this sector and the body; a multiple of 4096
  std::uint64_t payload_bytes = 0;
  std::uint64_t record_bytes = 0;  // header, payload and padding; a multiple of 4096
  std::uint64_t sequence = 0;      // of the records of one name the highest counts, live or dropped
  std::int64_t version = 0;
  std::int64_t written_ns = 0;   // since 1970, by the writer's clock; for a person
  std::uint32_t name_bytes = 0;  // of the history's name, UTF-8
  std::uint32_t regions = 0;
  std::uint32_t metadata_bytes = 0;
  std::uint32_t block_bytes = 0;  // of the payload under one checksum; a multiple of 4096. 0: payload unchecked
  Checksum body{};                // of the header after this sector
  Checksum history{};             // of its name, where it was dropped: older ones stay hidden. Zeros: not said
  bool operator==(const RecordHead&) const = default;
};

/// A header, parsed: what it says of itself, the checkpoint, and a checksum for each block of the payload.
struct Header {
  RecordHead head;
  Description description;
  std::vector<Checksum> blocks;
};

/// Whether a record can hold such a checkpoint. Errors: invalid_argument (a name that is too long; regions that are not
/// ascending, overlap, share an id or lie outside; block_bytes), too_large (its header would be longer than
/// kMaxHeader).
Result<void> check(const Description& description, std::uint32_t block_bytes);
/// Checksums that a payload has: one for each block, and for what is left at the end.
constexpr std::uint64_t block_count(std::uint64_t payload_bytes, std::uint32_t block_bytes) {
  return block_bytes == 0 ? 0 : payload_bytes / block_bytes + (payload_bytes % block_bytes != 0);
}
/// Bytes that the header of such a checkpoint takes.
std::uint64_t header_bytes(const Description& description, std::uint32_t block_bytes);
/// The head's sizes and body checksum are filled in from the rest: its place, kind, sequence, block_bytes and
/// written_ns are the caller's. The result is as long as head.header_bytes. Throws std::logic_error for what check()
/// refuses.
std::vector<std::byte> encode(RecordHead& head, const Description& description, std::span<const Checksum> blocks);
/// One sector. For a record that is dropped (see tombstone()), or never came to be (its place and record_bytes; all
/// else is written as 0).
std::array<std::byte, kSector> encode(const RecordHead& head);
/// The head of a record that was live, when it is dropped: it says of which history it was, for the body may go.
RecordHead tombstone(RecordHead head, std::string_view history);
/// Whether a head that lies where `was` did says that this very record is dropped, or never came to be.
bool is_tombstone_of(const RecordHead& now, const RecordHead& was);

/// From the first 512 bytes of a record that is thought to be at `place`. Nothing in it is believed before its checksum
/// holds and its sizes fit each other; one that is live must end within `segment_bytes` (others may end behind: there
/// is nothing to be read). Errors: damaged (what is wrong, and where), unsupported (of a newer format).
Result<RecordHead> parse_head(std::span<const std::byte> sector, const RecordPlace& place, std::uint64_t segment_bytes);
/// Whether the sizes of a head fit each other, and none overflows. Empty, or what is wrong.
std::string misfit(const RecordHead& head);
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

/// The file "store": what makes a directory a store.
struct StoreHead {
  Uuid store{};
  std::uint64_t owner = 0;  // the user who made it
  std::int64_t created_ns = 0;
  Durability level = Durability::storage;  // that everything in it is kept at; never ephemeral
  bool operator==(const StoreHead&) const = default;
};
std::vector<std::byte> encode(const StoreHead& head);
Result<StoreHead> parse_store(std::span<const std::byte> bytes);

}  // namespace ebb::storage
