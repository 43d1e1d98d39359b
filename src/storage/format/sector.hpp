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

inline BytesWriter begin_sector(std::byte* sector, std::string_view magic) {
  BytesWriter out(sector);
  out.text(magic);
  out.number(kFormat);
  return out;
}

inline void seal_sector(std::byte* sector) { BytesWriter(sector + kSealed).bytes(checksum_of({sector, kSealed})); }

inline bool has_magic(std::span<const std::byte> bytes, std::string_view magic) {
  return BytesReader(bytes).text(magic.size()) == magic;
}

/// A reader positioned after the format's number of an intact sector. `what` begins the sentence: "the record's head".
inline Result<BytesReader> open_sector(std::span<const std::byte> bytes, std::string_view magic,
                                       std::string_view what) {
  const std::string name(what);
  if (bytes.size() < kSector) return Error{Errc::damaged, name + " is truncated"};
  if (!has_magic(bytes, magic)) return Error{Errc::damaged, name + " does not begin with " + std::string(magic)};
  const Checksum sum = BytesReader(bytes.subspan(kSealed)).array<Checksum>();
  if (sum != checksum_of(bytes.first(kSealed))) return Error{Errc::damaged, name + " does not match its checksum"};
  BytesReader in(bytes.first(kSealed));
  in.bytes(magic.size());
  const auto format = in.number<std::uint32_t>();
  if (format > kFormat) {
    return Error{Errc::unsupported, name + " is of format " + std::to_string(format) +
                                        "; this program knows formats up to " + std::to_string(kFormat)};
  }
  if (format != kFormat)
    return Error{Errc::damaged, name + " is of format " + std::to_string(format) + ", which does not exist"};
  return in;
}

}  // namespace ebb::storage
