#include "storage/format/snapshot_layout.hpp"

#include <bit>
#include <unordered_set>

#include "storage/format/bytes.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::storage {
namespace {

constexpr std::string_view kLayoutMagic = "EBBPARTS";
constexpr std::uint64_t kLayoutHead = 8 + 2 * 4;  // letters, counts
constexpr std::uint64_t kPartBytes = 12, kSourcePieceBytes = 8;

Error wrong_layout(const std::string& what) { return {Errc::damaged, "the layout of the snapshot " + what}; }

}  // namespace

std::string misfit(const SnapshotLayout& layout, const ZoneMap& map) {
  if (layout.parts.size() != map.regions.size()) return "does not have one part for each region of the map";
  if (layout.piece_bytes.size() != map.sources.size()) return "does not have the pieces of each source of the map";
  for (const std::uint64_t bytes : layout.piece_bytes) {
    if (!std::has_single_bit(bytes) || bytes < kMinZone || bytes > kMaxZone) {
      return "has pieces of " + std::to_string(bytes) + " bytes: not a power of two from 4096 to 64 MiB";
    }
  }
  std::unordered_set<std::uint32_t> regions;
  std::uint64_t end = 0;  // of the parts of a region so far
  for (std::size_t i = 0; i < layout.parts.size(); ++i) {
    const SnapshotLayout::RegionPart& part = layout.parts[i];
    const bool begins = i == 0 || part.region != layout.parts[i - 1].region;
    if (begins && !regions.insert(part.region).second) return "has parts of one region that do not follow each other";
    if (begins) end = 0;
    if (part.at != end) return "has parts of a region that overlap or leave a gap";
    end += map.regions[i].bytes;
    if (end > kMaxOffset) return "has a region larger than any file";
  }
  for (const ZoneMap::Extent& extent : map.extents) {
    // A zone that is not at a multiple of its size would reach into the next piece somewhere.
    const std::uint64_t zone = map.regions[extent.zones.region].zone_bytes, piece = layout.piece_bytes[extent.source];
    if (zone <= piece && extent.offset % zone == 0) continue;
    const std::uint64_t bytes = map.regions[extent.zones.region].bytes_of(extent.zones.first, extent.zones.count);
    if (extent.offset % piece + bytes > piece) return "has a zone that is in two pieces";
  }
  return {};
}

std::vector<std::byte> encode(const SnapshotLayout& layout) {
  std::vector<std::byte> out(kLayoutHead + layout.parts.size() * kPartBytes +
                             layout.piece_bytes.size() * kSourcePieceBytes + sizeof(Checksum));
  BytesWriter to(out.data());
  to.text(kLayoutMagic);
  to.number(static_cast<std::uint32_t>(layout.parts.size()));
  to.number(static_cast<std::uint32_t>(layout.piece_bytes.size()));
  for (const SnapshotLayout::RegionPart& part : layout.parts) {
    to.number(part.region);
    to.number(part.at);
  }
  for (const std::uint64_t bytes : layout.piece_bytes) to.number(bytes);
  to.bytes(checksum_of(std::span(out).first(out.size() - sizeof(Checksum))));
  return out;
}

Result<SnapshotLayout> parse_layout(std::span<const std::byte> bytes) {
  BytesReader in(bytes);
  if (in.text(kLayoutMagic.size()) != kLayoutMagic) return wrong_layout("does not begin with EBBPARTS");
  const auto parts = in.number<std::uint32_t>(), sources = in.number<std::uint32_t>();
  if (bytes.size() != kLayoutHead + parts * kPartBytes + sources * kSourcePieceBytes + sizeof(Checksum)) {
    return wrong_layout("is longer or shorter than its contents");
  }
  const auto sealed = bytes.first(bytes.size() - sizeof(Checksum));
  if (BytesReader(bytes.subspan(sealed.size())).array<Checksum>() != checksum_of(sealed)) {
    return wrong_layout("does not match its checksum");
  }
  SnapshotLayout out;
  out.parts.resize(parts);
  for (SnapshotLayout::RegionPart& part : out.parts) {
    part.region = in.number<std::uint32_t>();
    part.at = in.number<std::uint64_t>();
  }
  out.piece_bytes.resize(sources);
  for (std::uint64_t& one : out.piece_bytes) one = in.number<std::uint64_t>();
  return out;
}

}  // namespace ebb::storage
