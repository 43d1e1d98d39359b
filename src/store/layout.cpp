#include "store/layout.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace ebb::store {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 62;

std::string region_text(std::uint32_t id, std::size_t bytes) {
  return "region " + std::to_string(id) + " (" + std::to_string(bytes) + " bytes)";
}

// The first id that comes twice in something with `id` members. Where they ascend there is none; else few are compared
// one by one, and many are sorted.
template <class T>
std::optional<std::uint32_t> twice(std::span<const T> items) {
  if (std::ranges::adjacent_find(items, std::greater_equal{}, &T::id) == items.end()) return {};
  if (items.size() <= 16) {
    for (std::size_t i = 1; i < items.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (items[i].id == items[j].id) return items[i].id;
      }
    }
    return {};
  }
  std::vector<std::uint32_t> ids;
  for (const T& item : items) ids.push_back(item.id);
  std::sort(ids.begin(), ids.end());
  const auto found = std::adjacent_find(ids.begin(), ids.end());
  return found == ids.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

Result<CheckpointInfo> lay_out(std::span<const Source> sources, const std::string& metadata, bool sizes_only) {
  if (const auto id = twice(sources)) {
    return Error{Errc::invalid_argument, "region " + std::to_string(*id) + " is given twice: ids must differ"};
  }
  CheckpointInfo info;
  info.metadata = metadata;
  info.regions.reserve(sources.size());
  for (const Source& source : sources) {
    if (source.data == nullptr && source.bytes > 0 && !sizes_only) {
      return Error{Errc::invalid_argument, region_text(source.id, source.bytes) + " has no data (a null pointer)"};
    }
    const std::uint64_t offset = (info.bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
    if (source.bytes > kMostBytes - offset) {
      return Error{Errc::invalid_argument,
                   region_text(source.id, source.bytes) + " is larger than a checkpoint can be"};
    }
    info.regions.push_back({source.id, source.bytes, static_cast<std::size_t>(offset)});
    info.bytes = offset + source.bytes;
  }
  return info;
}

std::vector<PlacedRegion> pieces_of(const CheckpointInfo& info, std::span<const Source> sources) {
  std::vector<PlacedRegion> pieces;
  pieces.reserve(sources.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto* memory = static_cast<std::byte*>(const_cast<void*>(sources[i].data));
    pieces.push_back({info.regions[i].offset, sources[i].bytes, memory});
  }
  return pieces;
}

Result<std::vector<PlacedRegion>> pieces_of(const CheckpointInfo& info, std::span<const Target> targets, bool some) {
  if (const auto id = twice(targets)) {
    return Error{Errc::size_mismatch, "region " + std::to_string(*id) + " has two targets: ids must differ"};
  }
  std::vector<PlacedRegion> pieces;
  pieces.reserve(targets.size());
  std::size_t hint = 0;  // targets mostly come in the order of the regions
  for (const RegionInfo& region : info.regions) {
    const auto matches = [&](const Target& target) { return target.id == region.id; };
    const Target* found = nullptr;
    if (hint < targets.size() && matches(targets[hint])) {
      found = &targets[hint++];
    } else if (const auto it = std::find_if(targets.begin(), targets.end(), matches); it != targets.end()) {
      found = &*it;
    }
    if (found == nullptr && some) continue;
    if (found == nullptr) {
      return Error{Errc::size_mismatch, region_text(region.id, region.bytes) + " was written and has no target"};
    }
    if (found->bytes != region.bytes) {
      return Error{Errc::size_mismatch, region_text(region.id, region.bytes) + " was written, and its target has " +
                                            std::to_string(found->bytes) + " bytes"};
    }
    if (found->data == nullptr && found->bytes > 0) {
      return Error{Errc::invalid_argument,
                   "the target of " + region_text(region.id, region.bytes) + " is a null pointer"};
    }
    pieces.push_back({region.offset, region.bytes, static_cast<std::byte*>(found->data)});
  }
  if (some || targets.size() > info.regions.size()) {
    for (const Target& target : targets) {
      const auto matches = [&](const RegionInfo& region) { return region.id == target.id; };
      if (std::none_of(info.regions.begin(), info.regions.end(), matches)) {
        return Error{Errc::size_mismatch, "the target of " + region_text(target.id, target.bytes) +
                                              " names no region: " + std::to_string(info.regions.size()) +
                                              " were written"};
      }
    }
  }
  return pieces;
}

std::size_t region_index(const CheckpointInfo& info, const PlacedRegion& piece, std::size_t from) {
  while (info.regions[from].offset != piece.offset || info.regions[from].bytes != piece.bytes) ++from;
  return from;
}

Error unusable_memory(std::uint32_t region, bool reads) {
  return {
      Errc::invalid_argument,
      "the memory of region " + std::to_string(region) +
          (reads ? " cannot be read: part of it is no longer memory, as that of a mapped file which was truncated, or "
                   "is protected from reading"
                 : " cannot be written to: it is read-only, or part of it is no longer memory")};
}

Error prefixed(const std::string& key, Error error) {
  error.message.insert(0, key + ": ");
  return error;
}

const RegionInfo& region_of(const CheckpointInfo& info, std::uint32_t id) {
  for (const RegionInfo& region : info.regions) {
    if (region.id == id) return region;
  }
  std::string ids;
  for (const RegionInfo& region : info.regions) {
    if (ids.size() > 100) {
      ids += ", ...";
      break;
    }
    ids += (ids.empty() ? "" : ", ") + std::to_string(region.id);
  }
  throw std::invalid_argument("there is no region " + std::to_string(id) +
                              " in this checkpoint: " + (ids.empty() ? "it has none" : "its regions are " + ids));
}

}  // namespace ebb::store
