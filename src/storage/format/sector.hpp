#pragma once
// What the first sector of every structure has in common, in all formats: 8 letters that say what it is, the format's
// number, and in the last 16 bytes a checksum of the others.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "storage/format/bytes.hpp"
#include "storage/format/record.hpp"

namespace ebb::storage {

inline constexpr std::string_view kRecordMagic = "EBBRECRD", kSegmentMagic = "EBBSEGMT", kStoreMagic = "EBBSTORE",
                                  kIndexMagic = "EBBINDEX";
inline constexpr std::size_t kSealed = kSector - sizeof(Checksum);  // bytes of a sector under its checksum

// A compact record has its body in the first sector, behind the head's fields, and in the sectors that follow.
inline constexpr std::size_t kCompactBody = 144;
inline constexpr std::size_t kCompactHead = kCompactBody + sizeof(Checksum);  // bytes of a record that are not its body

/// The length of a compact record. No argument may be over 2^32.
constexpr std::uint64_t compact_bytes(std::uint64_t name, std::uint64_t regions, std::uint64_t metadata,
                                      std::uint64_t payload) {
  const std::uint64_t bytes = kCompactHead + name + regions * kRegionBytes + metadata + payload;
  return (bytes + kSector - 1) / kSector * kSector;
}

inline BytesWriter begin_sector(std::byte* sector, std::string_view magic, std::uint32_t format = 1) {
  BytesWriter out(sector);
  out.text(magic);
  out.number(format);
  return out;
}

inline void seal_sector(std::byte* sector) { BytesWriter(sector + kSealed).bytes(checksum_of({sector, kSealed})); }

inline bool has_magic(std::span<const std::byte> bytes, std::string_view magic) {
  return BytesReader(bytes).text(magic.size()) == magic;
}

/// A reader positioned after the format's number of an intact sector. `what` begins the sentence: "the record's head".
/// `found`: receives the format; without it, there is only format 1 of such a sector.
inline Result<BytesReader> open_sector(std::span<const std::byte> bytes, std::string_view magic, std::string_view what,
                                       std::uint32_t* found = nullptr) {
  const std::string name(what);
  if (bytes.size() < kSector) return Error{Errc::damaged, name + " is truncated"};
  if (!has_magic(bytes, magic)) return Error{Errc::damaged, name + " does not begin with " + std::string(magic)};
  const Checksum sum = BytesReader(bytes.subspan(kSealed)).array<Checksum>();
  if (sum != checksum_of(bytes.first(kSealed))) return Error{Errc::damaged, name + " does not match its checksum"};
  BytesReader in(bytes.first(kSealed));
  in.bytes(magic.size());
  const auto format = in.number<std::uint32_t>();
  const std::uint32_t newest = found != nullptr ? kFormat : 1;
  if (format > newest) {
    return Error{Errc::unsupported, name + " is of format " + std::to_string(format) +
                                        "; this program knows formats up to " + std::to_string(newest)};
  }
  if (format == 0)
    return Error{Errc::damaged, name + " is of format " + std::to_string(format) + ", which does not exist"};
  if (found != nullptr) *found = format;
  return in;
}

}  // namespace ebb::storage
