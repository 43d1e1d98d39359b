#include "planner/snapshot_chain.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace ebb::policy {
namespace {

double read_seconds(double bytes, const RestoreRates& rates) { return rates.request_s + bytes / rates.bytes_s; }

Bytes read_of(const SnapshotSource& source, const RestoreRates& rates) {
  return rates.whole ? source.stored : source.needed;
}

// What a restore saves if the source is not read, and its needed bytes come with the new version's.
double saved_by_merging(const SnapshotSource& source, const RestoreRates& rates) {
  return rates.request_s + static_cast<double>(read_of(source, rates) - source.needed) / rates.bytes_s;
}

[[noreturn]] void refuse_map(Version version, const char* why) {
  throw std::logic_error("version " + std::to_string(version) + why);
}

}  // namespace

std::vector<SnapshotSource> sources_of(std::span<const Version> sources, std::span<const std::uint8_t> dirty,
                                       Bytes zone_bytes, const std::map<Version, Bytes>& stored) {
  if (sources.size() != dirty.size()) throw std::logic_error("not every zone has a source");
  std::map<Version, SnapshotSource, std::greater<>> found;
  SnapshotSource* last = nullptr;
  for (std::size_t z = 0; z < sources.size(); ++z) {
    if (dirty[z] != 0) continue;
    if (last == nullptr || last->version != sources[z]) {
      const auto [it, first] = found.try_emplace(sources[z]);
      if (first) it->second = {.version = sources[z], .stored = stored.at(sources[z]), .needed = 0};
      last = &it->second;
    }
    last->needed += zone_bytes;
  }
  std::vector<SnapshotSource> all;
  for (const auto& [version, source] : found) {
    all.push_back(source);
    all.back().stored = std::max(source.stored, source.needed);
  }
  return all;
}

SnapshotChoice choose_snapshot(std::span<const SnapshotSource> sources, Bytes dirty, const RestoreRates& rates,
                               const ChainBounds& bounds) {
  std::vector<SnapshotSource> left;
  Bytes all = dirty;
  for (const SnapshotSource& s : sources) {
    if (s.stored < s.needed) throw std::logic_error("a source is needed for more than it stores");
    all += s.needed;
    if (s.needed > 0) left.push_back(s);
  }
  // Those that are merged first come last.
  std::ranges::sort(left, [&](const SnapshotSource& a, const SnapshotSource& b) {
    const double worth_a = saved_by_merging(a, rates) * static_cast<double>(b.needed);
    const double worth_b = saved_by_merging(b, rates) * static_cast<double>(a.needed);
    if (worth_a != worth_b) return worth_a < worth_b;
    if (a.needed != b.needed) return a.needed > b.needed;
    return a.version > b.version;
  });

  SnapshotChoice choice{.kind = SnapshotKind::increment, .merged = {}, .stores = dirty};
  choice.full_s = read_seconds(static_cast<double>(all), rates);
  for (;; left.pop_back()) {
    choice.sources = left.size() + (choice.stores > 0 ? 1 : 0);
    choice.restore_s = choice.stores > 0 ? read_seconds(static_cast<double>(choice.stores), rates) : 0;
    for (const SnapshotSource& s : left)
      choice.restore_s += read_seconds(static_cast<double>(read_of(s, rates)), rates);
    const bool bounded = choice.sources <= bounds.sources && choice.restore_s <= bounds.restore * choice.full_s;
    if (bounded || left.empty()) break;
    choice.kind = SnapshotKind::merged;
    choice.stores += left.back().needed;
    choice.merged.push_back(left.back().version);
  }
  if (left.empty()) choice.kind = SnapshotKind::full;
  std::ranges::sort(choice.merged);
  return choice;
}

// --- who is named by a live map --------------------------------------------------------------------------------------

const LiveMaps::Held& LiveMaps::at(Version version) const {
  const auto found = versions_.find(version);
  if (found == versions_.end()) refuse_map(version, " is not held");
  return found->second;
}

std::vector<MapPart> LiveMaps::checked(Version version, std::span<const MapPart> parts) const {
  std::vector<MapPart> others;
  for (const MapPart& part : parts) {
    if (part.source == version) continue;
    if (part.bytes > at(part.source).stored) refuse_map(part.source, " does not store what a map names");
    const auto same = std::ranges::find(others, part.source, &MapPart::source);
    if (same != others.end()) refuse_map(part.source, " is named twice by one map");
    others.push_back(part);
  }
  return others;
}

void LiveMaps::name(Version version, std::vector<MapPart> parts) {
  for (const MapPart& part : parts) versions_.at(part.source).naming[version] = part.bytes;
  versions_.at(version).parts = std::move(parts);
}

// The ended versions that no map names any more.
std::vector<Version> LiveMaps::unname(Version version) {
  std::vector<Version> unnamed;
  for (const MapPart& part : std::exchange(versions_.at(version).parts, {})) {
    Held& source = versions_.at(part.source);
    source.naming.erase(version);
    if (!source.live && source.naming.empty()) unnamed.push_back(part.source);
  }
  std::ranges::sort(unnamed);
  return unnamed;
}

void LiveMaps::add(Version version, Bytes stored, std::span<const MapPart> parts) {
  if (held(version)) refuse_map(version, " is there already");
  std::vector<MapPart> others = checked(version, parts);
  versions_[version] = {.stored = stored, .live = true, .parts = {}, .naming = {}};
  name(version, std::move(others));
}

std::vector<Version> LiveMaps::end(Version version) {
  if (!live(version)) refuse_map(version, " is not live");
  std::vector<Version> gone = unname(version);
  Held& ended = versions_.at(version);
  ended.live = false;
  if (ended.naming.empty()) gone.insert(std::ranges::lower_bound(gone, version), version);
  for (Version v : gone) versions_.erase(v);
  return gone;
}

std::vector<Version> LiveMaps::replace(Version version, Bytes stored, std::span<const MapPart> parts) {
  if (!live(version)) refuse_map(version, " is not live");
  std::vector<MapPart> others = checked(version, parts);
  for (const auto& [map, bytes] : at(version).naming)
    if (bytes > stored) refuse_map(version, " no longer stores what a map names");
  std::vector<Version> unnamed = unname(version);
  versions_.at(version).stored = stored;
  name(version, std::move(others));
  std::erase_if(unnamed, [&](Version v) { return !at(v).naming.empty(); });
  for (Version v : unnamed) versions_.erase(v);
  return unnamed;
}

bool LiveMaps::live(Version version) const {
  const auto found = versions_.find(version);
  return found != versions_.end() && found->second.live;
}

std::vector<Version> LiveMaps::named_by(Version version) const {
  const Held& held = at(version);
  std::vector<Version> maps;
  for (const auto& [map, bytes] : held.naming) maps.push_back(map);
  if (held.live) maps.insert(std::ranges::lower_bound(maps, version), version);
  return maps;
}

Bytes LiveMaps::held_for_others() const {
  Bytes bytes = 0;
  for (const auto& [version, held] : versions_) bytes += held.live ? 0 : held.stored;
  return bytes;
}

Bytes LiveMaps::alive(Version version) const {
  const Held& held = at(version);
  Bytes most = held.live ? held.stored : 0;
  for (const auto& [map, bytes] : held.naming) most = std::max(most, bytes);
  return most;
}

std::vector<LiveMaps::Rewrite> LiveMaps::to_rewrite(double share) const {
  std::map<Version, Rewrite> found;
  for (const auto& [version, held] : versions_) {
    if (static_cast<double>(alive(version)) >= share * static_cast<double>(held.stored)) continue;
    for (const auto& [map, bytes] : held.naming) {
      found[map].map = map;
      found[map].parents.push_back(version);
    }
  }
  std::vector<Rewrite> rewrites;
  for (auto& [map, rewrite] : found) rewrites.push_back(std::move(rewrite));
  return rewrites;
}

}  // namespace ebb::policy
