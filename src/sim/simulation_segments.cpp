#include "sim/simulation_segments.hpp"

#include <array>
#include <stdexcept>

namespace ebb::sim {

namespace event = planner::event;

namespace {

Bytes rounded_up(Bytes bytes, Bytes granule) { return (bytes + granule - 1) / granule * granule; }

}  // namespace

Lenders::Lenders(const planner::Machine& machine, std::size_t ranks) : machine_(machine) {
  std::vector<std::vector<LentSegment>> tiers;
  for (const planner::TierSpec& t : machine.tiers)
    tiers.push_back({{.extent = rounded_up(t.capacity, t.granule), .usable = t.capacity}});
  segments_.assign(ranks, tiers);
}

const Lenders::LentSegment* Lenders::find(int rank, const planner::Place& place) const {
  if (place.at.kind != planner::Endpoint::tier) return nullptr;
  const auto t = static_cast<std::size_t>(place.at.index);
  if (machine_.tiers[t].medium == planner::Medium::file || place.offset >= planner::kAdopted) return nullptr;
  const auto& segments = segments_[static_cast<std::size_t>(rank)][t];
  const auto after = std::ranges::upper_bound(segments, place.offset, {}, &LentSegment::first);
  return &*std::prev(after);
}

bool Lenders::beyond(int rank, const planner::Place& place, Bytes bytes) const {
  const LentSegment* const segment = find(rank, place);
  return segment != nullptr && place.offset + bytes > segment->first + segment->usable;
}

planner::PartyId Lenders::copied_by(int rank, const planner::Command& command) const {
  for (const planner::Place& place : {command.from, command.to})
    if (const LentSegment* const segment = find(rank, place); segment != nullptr && segment->copied_by != 0)
      return segment->copied_by;
  return 0;
}

bool Lenders::lost(int rank, const planner::Command& command) const {
  return std::ranges::any_of(std::array{command.from, command.to}, [&](const planner::Place& place) {
    const LentSegment* const segment = find(rank, place);
    return segment != nullptr && segment->lost;
  });
}

std::optional<event::Any> Lenders::lend(int rank, const Op& op, std::optional<Content>& content) {
  auto& segments = of(rank, op.tier);
  if (op.segment > segments.size()) throw std::invalid_argument("a segment was left out");
  if (op.segment == segments.size()) {
    const Bytes extent = rounded_up(op.bytes, machine_.tiers[static_cast<std::size_t>(op.tier)].granule);
    segments.push_back({.first = segments.back().first + segments.back().extent, .extent = extent});
    if (content) content->extend(op.tier, extent);
  }
  LentSegment& segment = segments[op.segment];
  if (segment.lost || op.bytes <= segment.usable || op.bytes > segment.extent) return {};
  segment.usable = op.bytes;
  segment.copied_by = op.relays ? op.lender : 0;
  return event::Lend{op.tier, op.segment, op.bytes, op.lender, op.relays};
}

std::optional<event::Any> Lenders::recall(int rank, const Op& op, Time now) {
  auto& segments = of(rank, op.tier);
  if (op.segment >= segments.size()) return {};
  LentSegment& segment = segments[op.segment];
  if (segment.lost || op.bytes > segment.usable) return {};
  segment.usable = op.bytes;
  segment.returned = false;
  segment.due = op.time == planner::kNever ? planner::kNever : now + op.time;
  return event::Recall{op.tier, op.segment, op.bytes, segment.due};
}

std::optional<event::Any> Lenders::lose(const Due& what, std::optional<Content>& content) {
  auto& segments = of(what.rank, what.tier);
  if (what.segment >= segments.size() || segments[what.segment].lost) return {};
  LentSegment& segment = segments[what.segment];
  segment.lost = true;
  segment.usable = 0;
  segment.due = planner::kNever;
  if (content) content->scribble(what.tier, segment.first, segment.extent);
  return event::Lost{what.tier, what.segment};
}

void Lenders::returned(int rank, const planner::Returned& what, std::optional<Content>& content) {
  LentSegment& segment = of(rank, what.tier).at(what.segment);
  if (segment.returned || segment.lost) throw std::logic_error("memory was returned that was not recalled");
  segment.returned = true;
  segment.due = planner::kNever;
  if (content) content->scribble(what.tier, segment.first + segment.usable, segment.extent - segment.usable);
}

Time Lenders::next(Time now) const {
  Time at = planner::kNever;
  for (const auto& tiers : segments_)
    for (const auto& segments : tiers)
      for (const LentSegment& segment : segments) at = std::min(at, std::max(segment.due, now));
  return at;
}

std::optional<Lenders::Due> Lenders::due(Time now) const {
  for (std::size_t r = 0; r < segments_.size(); ++r)
    for (std::size_t t = 0; t < segments_[r].size(); ++t)
      for (std::size_t s = 0; s < segments_[r][t].size(); ++s)
        if (segments_[r][t][s].due <= now)
          return Due{static_cast<int>(r), static_cast<TierIndex>(t), static_cast<planner::SegmentId>(s)};
  return {};
}

}  // namespace ebb::sim
