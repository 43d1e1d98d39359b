#include "storage/veloc/veloc_file.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "storage/format/bytes.hpp"

namespace ebb::storage {
namespace {

constexpr std::uint64_t kCount = 8, kEntry = 12;  // bytes: the number of regions; a region's id and length
constexpr std::uint64_t kMostTable = 16 << 20;    // bytes
constexpr std::uint64_t kAlignment = 256;         // of regions in the payload, as a checkpoint of our own has them
constexpr std::string_view kSuffix = ".dat", kAggregated = "-agg";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;
constexpr Version kMostVersion = Version{1} << 62;  // so that it has newer editions

bool is_in_name(char one) {
  return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') || one == '_' ||
         one == '.' || one == '-';
}

// The number behind the last '-', without a sign or leading zeros, which is taken off.
std::optional<int> last_number(std::string_view& text) {
  const auto dash = text.rfind('-');
  if (dash == text.npos) return {};
  const std::string_view digits = text.substr(dash + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || value < 0) return {};
  if (digits.size() > 1 && digits.front() == '0') return {};
  text = text.substr(0, dash);
  return value;
}

// Regions in the order of the file.
std::vector<const RegionInfo*> in_file_order(const CheckpointInfo& info) {
  std::vector<const RegionInfo*> regions;
  for (const RegionInfo& region : info.regions) regions.push_back(&region);
  std::ranges::sort(regions, {}, [](const RegionInfo* one) { return static_cast<std::int32_t>(one->id); });
  return regions;
}

Error damaged(std::string what) { return {Errc::damaged, std::move(what)}; }

}  // namespace

bool is_program_file(const CheckpointInfo& info) {
  return info.regions.size() == 1 && info.regions.front().id == kVelocFileRegion;
}

CheckpointInfo program_file(std::uint64_t bytes) {
  CheckpointInfo info;
  info.regions.push_back({kVelocFileRegion, static_cast<std::size_t>(bytes), 0});
  info.bytes = bytes;
  return info;
}

Result<void> check_veloc_name(std::string_view name, Version version) {
  if (name.empty() || name.size() > kMostVelocName || !std::ranges::all_of(name, is_in_name)) {
    return Error{Errc::invalid_argument,
                 "history \"" + std::string(name) +
                     "\": expected the name of a VELOC checkpoint, of 1 to 127 letters, "
                     "digits, '_', '.' and '-', because the shared directory has VELOC's files"};
  }
  if (version < 0 || version > kMostVersion) {
    return Error{Errc::invalid_argument, "version " + std::to_string(version) +
                                             ": expected 0 to 2147483647, or that and n * 2147483648 for its n-th "
                                             "edition, up to 2^62, because the shared directory has VELOC's files"};
  }
  return {};
}

std::string file_name(const VelocName& name) {
  const std::string whose = name.rank == kAllRanks ? std::string(kAggregated) : "-" + std::to_string(name.rank);
  return name.name + whose + "-" + std::to_string(veloc_number(name.version)) + std::string(kSuffix);
}

std::optional<VelocName> parse_file_name(std::string_view file) {
  if (!file.ends_with(kSuffix)) return {};
  file.remove_suffix(kSuffix.size());
  const auto version = last_number(file);
  const bool aggregated = file.ends_with(kAggregated);
  if (aggregated) file.remove_suffix(kAggregated.size());
  const auto rank = aggregated ? kAllRanks : version ? last_number(file) : std::nullopt;
  if (!version || !rank || !check_veloc_name(file, *version)) return {};
  return VelocName{std::string(file), *rank, *version};
}

VelocLayout VelocLayout::of(const CheckpointInfo& info) {
  VelocLayout layout;
  layout.header_bytes = is_program_file(info) ? 0 : kCount + kEntry * info.regions.size();
  layout.file_bytes = layout.header_bytes;
  for (const RegionInfo* region : in_file_order(info)) {
    if (region->bytes > 0) layout.extents.push_back({region->offset, region->bytes, layout.file_bytes});
    layout.file_bytes += region->bytes;
  }
  std::ranges::sort(layout.extents, {}, &Extent::offset);
  return layout;
}

void VelocLayout::clear_gaps(std::uint64_t offset, std::span<std::byte> memory) const {
  std::uint64_t done = 0;
  const auto clear = [&](std::uint64_t to) { std::ranges::fill(memory.subspan(done, to - done), std::byte{0}); };
  for_each(offset, memory.size(), [&](std::uint64_t from, std::uint64_t bytes, std::uint64_t) {
    clear(from);
    done = from + bytes;
  });
  clear(memory.size());
}

bool VelocLayout::has_gaps(std::uint64_t offset, std::uint64_t bytes) const {
  std::uint64_t covered = 0;
  for_each(offset, bytes, [&](std::uint64_t, std::uint64_t length, std::uint64_t) { covered += length; });
  return covered < bytes;
}

std::vector<std::byte> encode_veloc_header(const CheckpointInfo& info) {
  if (is_program_file(info)) return {};
  std::vector<std::byte> out(kCount + kEntry * info.regions.size());
  BytesWriter to(out.data());
  to.number(static_cast<std::uint64_t>(info.regions.size()));
  for (const RegionInfo* region : in_file_order(info)) {
    to.number(region->id);
    to.number(static_cast<std::uint64_t>(region->bytes));
  }
  return out;
}

std::uint64_t veloc_header_bytes(std::span<const std::byte> begin, std::uint64_t file_bytes) {
  BytesReader in(begin);
  const auto count = in.number<std::uint64_t>();
  if (!in.ok() || file_bytes < kCount || count > (std::min(file_bytes, kMostTable) - kCount) / kEntry) return 0;
  return kCount + kEntry * count;
}

Result<VelocPart> parse_veloc_table(std::span<const std::byte> table, int rank, std::uint64_t file_bytes) {
  BytesReader in(table);
  const auto ranks = in.number<std::uint64_t>();
  if (!in.ok() || table.size() % sizeof ranks != 0 || ranks != table.size() / sizeof ranks - 1)
    return damaged("its table of ranks is cut off");
  if (static_cast<std::uint64_t>(rank) >= ranks)
    return damaged("it has the checkpoints of " + std::to_string(ranks) + " ranks, and none of rank " +
                   std::to_string(rank));
  VelocPart part;
  std::uint64_t end = 0;
  for (std::uint64_t one = 0; one <= ranks; ++one) {
    const std::uint64_t begin = one < ranks ? in.number<std::uint64_t>() : file_bytes;
    if (begin < end || begin > file_bytes) return damaged("its table of ranks does not fit it: it is cut off");
    if (one == static_cast<std::uint64_t>(rank) + 1) part.bytes = begin - part.begin;
    if (one == static_cast<std::uint64_t>(rank)) part.begin = begin;
    end = begin;
  }
  return part;
}

Result<CheckpointInfo> parse_veloc_header(std::span<const std::byte> header, std::uint64_t file_bytes) {
  const std::uint64_t expected =
      veloc_header_bytes(header.first(std::min<std::size_t>(header.size(), kCount)), file_bytes);
  if (expected == 0) return damaged("it has no table of regions, or one that is longer than the file or 16 MiB");
  if (header.size() != expected) return damaged("its table of regions is cut off");
  BytesReader in(header);
  CheckpointInfo info;
  std::set<std::uint32_t> ids;
  std::uint64_t left = file_bytes - expected;
  for (auto count = in.number<std::uint64_t>(); count > 0; --count) {
    const auto id = in.number<std::uint32_t>();
    const auto bytes = in.number<std::uint64_t>();
    if (bytes > left) return damaged("its regions are longer than the file: it is cut off, or of another format");
    if (!ids.insert(id).second)
      return damaged("it names region " + std::to_string(static_cast<std::int32_t>(id)) + " twice");
    left -= bytes;
    const std::uint64_t offset = (info.bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (offset > kMostBytes || bytes > kMostBytes - offset) return damaged("it is larger than a checkpoint can be");
    info.regions.push_back({id, static_cast<std::size_t>(bytes), static_cast<std::size_t>(offset)});
    info.bytes = offset + bytes;
  }
  if (is_program_file(info))
    return damaged("its only region has the id -2147483648, which stands for a program's file");
  if (left > 0) return damaged("it has " + std::to_string(left) + " bytes more than its regions");
  return info;
}

}  // namespace ebb::storage
