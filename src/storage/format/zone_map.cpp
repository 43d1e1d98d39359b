#include "storage/format/zone_map.hpp"

#include <algorithm>
#include <stdexcept>

#include "os/files.hpp"
#include "storage/format/bytes.hpp"

namespace ebb::storage {
namespace {

constexpr std::string_view kZonesMagic = "EBBZONES";
constexpr std::uint64_t kFrontHead = 8 + 4 * 4 + sizeof(Checksum);  // letters, counts, checksum of the rest
constexpr std::uint64_t kSourceBytes = 32, kZonedRegionBytes = 16, kExtentBytes = 16;

std::uint64_t front_bytes(std::uint64_t sources) { return kFrontHead + sources * kSourceBytes + sizeof(Checksum); }

Error wrong_map(const std::string& what) { return {Errc::damaged, "the zone map " + what}; }

std::string misfit(std::span<const ZoneMap::Source> sources) {
  if (sources.empty()) return "does not name its own snapshot";
  for (const ZoneMap::Source& source : sources) {
    if (source.id == SnapshotId{}) return "has a source without an id";
    if (source.packed_bytes % os::kBlock != 0) return "has a source that is not made of whole blocks of 4096 bytes";
    if (source.packed_bytes > kMaxOffset) return "has a source larger than any file";
  }
  const auto younger = [](const ZoneMap::Source& a, const ZoneMap::Source& b) { return a.id.cut <= b.id.cut; };
  if (std::ranges::adjacent_find(sources, younger) != sources.end()) {
    return "has a source that is not older than the one before it";
  }
  return {};
}

struct FrontCounts {
  std::uint32_t sources = 0, regions = 0, extents = 0, zones = 0;
};

// The front without its checksum.
struct Front {
  FrontCounts counts;
  Checksum back{};
  std::vector<ZoneMap::Source> sources;
};

Result<Front> parse_front(std::span<const std::byte> bytes) {
  BytesReader in(bytes);
  if (in.text(kZonesMagic.size()) != kZonesMagic) return wrong_map("does not begin with EBBZONES");
  Front out;
  FrontCounts& counts = out.counts;
  for (std::uint32_t* one : {&counts.sources, &counts.regions, &counts.extents, &counts.zones}) {
    *one = in.number<std::uint32_t>();
  }
  out.back = in.array<Checksum>();
  const std::uint64_t length = front_bytes(counts.sources);
  if (!in.ok() || length > bytes.size()) return wrong_map("is truncated");
  const auto sealed = bytes.first(length - sizeof(Checksum));
  if (BytesReader(bytes.subspan(sealed.size())).array<Checksum>() != checksum_of(sealed)) {
    return wrong_map("does not match the checksum of its front");
  }
  out.sources.resize(counts.sources);
  for (ZoneMap::Source& source : out.sources) {
    source.version = in.number<Version>();
    source.id.cut = in.number<std::uint64_t>();
    source.id.random = in.number<std::uint64_t>();
    source.packed_bytes = in.number<std::uint64_t>();
  }
  if (const std::string wrong = misfit(out.sources); !wrong.empty()) return wrong_map(wrong);
  return out;
}

// Follows the extents of a map through its regions: each begins where the one before ended.
class Coverage {
 public:
  explicit Coverage(const ZoneMap& map) : map_(map), named_(map.sources.size()) { skip_full_regions(); }

  std::string add(const ZoneMap::Extent& extent) {
    const ZoneRange& zones = extent.zones;
    if (region_ == map_.regions.size()) return "has an extent after the last zone";
    if (zones.region < region_ || (zones.region == region_ && zones.first < zone_)) {
      return "has a zone in two extents, or extents out of order";
    }
    if (zones.region > region_ || zones.first > zone_) return "has a zone in no extent";
    const ZoneMap::Region& region = map_.regions[region_];
    if (zones.count == 0) return "has an extent without zones";
    if (zones.count > region.zones() - zone_) return "has an extent that ends past the end of its region";
    if (extent.source >= map_.sources.size()) return "has an extent in a source that it does not list";
    const std::uint64_t stored = map_.sources[extent.source].packed_bytes;
    if (extent.offset % os::kBlock != 0) return "has an extent that does not begin at a multiple of 4096";
    if (extent.offset > stored || region.bytes_of(zones.first, zones.count) > stored - extent.offset) {
      return "has an extent that ends past the end of its source";
    }
    named_[extent.source] = true;
    zone_ += zones.count;
    skip_full_regions();
    return {};
  }

  std::string finish() const {
    if (region_ != map_.regions.size()) return "has a zone in no extent";
    if (std::find(named_.begin() + 1, named_.end(), false) != named_.end()) return "lists a source that has none of it";
    return {};
  }

 private:
  void skip_full_regions() {
    while (region_ < map_.regions.size() && zone_ == map_.regions[region_].zones()) {
      ++region_;
      zone_ = 0;
    }
  }

  const ZoneMap& map_;
  std::vector<bool> named_;
  std::size_t region_ = 0;
  std::uint64_t zone_ = 0;  // in the region: the first that no extent had
};

std::uint64_t zones_of(std::span<const ZoneMap::Region> regions) {
  std::uint64_t out = 0;
  for (const ZoneMap::Region& region : regions) out += region.zones();
  return out;
}

}  // namespace

std::string misfit(std::span<const ZoneMap::Region> regions) {
  std::uint64_t zones = 0;
  for (const ZoneMap::Region& region : regions) {
    const std::uint32_t size = region.zone_bytes;
    if (size < kMinZone || size > kMaxZone || (size & (size - 1)) != 0) {
      return "has zones of " + std::to_string(size) + " bytes: not a power of two from 4096 to 64 MiB";
    }
    if (region.bytes > kMaxOffset) return "has a region larger than any file";
    zones += region.zones();  // at most 2^50 and kMaxZones: no overflow
    if (zones > kMaxZones) return "has more than " + std::to_string(kMaxZones) + " zones";
  }
  return {};
}

std::string misfit(const ZoneMap& map) {
  if (std::string wrong = misfit(std::span(map.sources)); !wrong.empty()) return wrong;
  if (std::string wrong = misfit(std::span(map.regions)); !wrong.empty()) return wrong;
  if (map.regions.size() > UINT32_MAX || map.sources.size() > UINT32_MAX) return "has too many regions or sources";
  Coverage coverage(map);
  for (const ZoneMap::Extent& extent : map.extents) {
    if (std::string wrong = coverage.add(extent); !wrong.empty()) return wrong;
  }
  if (std::string wrong = coverage.finish(); !wrong.empty()) return wrong;
  return map.sums.size() == zones_of(map.regions) ? std::string() : "does not have one checksum for each zone";
}

std::uint64_t zone_map_bytes(std::uint64_t sources, std::uint64_t regions, std::uint64_t extents, std::uint64_t zones) {
  return front_bytes(sources) + regions * kZonedRegionBytes + extents * kExtentBytes + zones * sizeof(Checksum);
}

std::vector<std::byte> encode(const ZoneMap& map) {
  if (const std::string wrong = misfit(map); !wrong.empty()) throw std::logic_error("a zone map " + wrong);
  std::vector<std::uint32_t> extents_of(map.regions.size());
  for (const ZoneMap::Extent& extent : map.extents) ++extents_of[extent.zones.region];

  std::vector<std::byte> out(
      zone_map_bytes(map.sources.size(), map.regions.size(), map.extents.size(), map.sums.size()));
  const std::uint64_t front = front_bytes(map.sources.size());
  BytesWriter back(out.data() + front);
  for (std::size_t i = 0; i < map.regions.size(); ++i) {
    back.number(map.regions[i].bytes);
    back.number(map.regions[i].zone_bytes);
    back.number(extents_of[i]);
  }
  for (const ZoneMap::Extent& extent : map.extents) {
    back.number(extent.source);
    back.number(extent.zones.count);
    back.number(extent.offset);
  }
  for (const Checksum& sum : map.sums) back.bytes(sum);

  BytesWriter to(out.data());
  to.text(kZonesMagic);
  for (const std::size_t count : {map.sources.size(), map.regions.size(), map.extents.size(), map.sums.size()}) {
    to.number(static_cast<std::uint32_t>(count));
  }
  to.bytes(checksum_of(std::span(out).subspan(front)));
  for (const ZoneMap::Source& source : map.sources) {
    to.number(source.version);
    to.number(source.id.cut);
    to.number(source.id.random);
    to.number(source.packed_bytes);
  }
  to.bytes(checksum_of(std::span(out).first(front - sizeof(Checksum))));
  return out;
}

Result<ZoneMap> parse_zone_map(std::span<const std::byte> bytes) {
  auto front = parse_front(bytes);
  if (!front) return front.error();
  const FrontCounts& counts = front->counts;
  if (bytes.size() != zone_map_bytes(counts.sources, counts.regions, counts.extents, counts.zones)) {
    return wrong_map("is longer or shorter than its contents");
  }
  const auto body = bytes.subspan(front_bytes(counts.sources));
  if (checksum_of(body) != front->back) return wrong_map("does not match its checksum");

  // The counts fit the bytes, so nothing exceeds them.
  ZoneMap out;
  out.sources = std::move(front->sources);
  BytesReader in(body);
  std::vector<std::uint32_t> extents_of(counts.regions);
  out.regions.resize(counts.regions);
  std::uint64_t extents = 0;
  for (std::uint32_t i = 0; i < counts.regions; ++i) {
    out.regions[i].bytes = in.number<std::uint64_t>();
    out.regions[i].zone_bytes = in.number<std::uint32_t>();
    extents += extents_of[i] = in.number<std::uint32_t>();
  }
  if (const std::string wrong = misfit(std::span(out.regions)); !wrong.empty()) return wrong_map(wrong);
  if (extents != counts.extents) return wrong_map("has regions whose numbers of extents do not add up");
  if (zones_of(out.regions) != counts.zones) return wrong_map("does not have one checksum for each zone");

  out.extents.reserve(counts.extents);
  Coverage coverage(out);
  for (std::uint32_t region = 0; region < counts.regions; ++region) {
    std::uint64_t zone = 0;
    for (std::uint32_t i = 0; i < extents_of[region]; ++i) {
      ZoneMap::Extent& extent = out.extents.emplace_back();
      extent.source = in.number<std::uint32_t>();
      extent.zones = {region, static_cast<std::uint32_t>(zone), in.number<std::uint32_t>()};
      extent.offset = in.number<std::uint64_t>();
      if (const std::string wrong = coverage.add(extent); !wrong.empty()) return wrong_map(wrong);
      zone += extent.zones.count;
    }
  }
  if (const std::string wrong = coverage.finish(); !wrong.empty()) return wrong_map(wrong);
  out.sums.resize(counts.zones);
  for (Checksum& sum : out.sums) sum = in.array<Checksum>();
  if (!in.ok() || !in.rest().empty()) throw std::logic_error("a zone map is as long as its fields");
  return out;
}

}  // namespace ebb::storage
