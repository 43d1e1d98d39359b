#include "planner/snapshot_chain.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace ebb::planner {
namespace {

double read_seconds(double bytes, const RestoreRates& rates) { return rates.request_s + bytes / rates.bytes_s; }

Bytes read_of(const SnapshotSource& source, const RestoreRates& rates) {
  return rates.whole ? source.stored : source.needed;
}

// What a restore saves if the source is not read, and its needed bytes come with the new version's.
double saved_by_merging(const SnapshotSource& source, const RestoreRates& rates) {
  return rates.request_s + static_cast<double>(read_of(source, rates) - source.needed) / rates.bytes_s;
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

}  // namespace ebb::planner
