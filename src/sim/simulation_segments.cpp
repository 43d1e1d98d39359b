// The lenders of memory: they lend, recall, take and lose it.
#include <algorithm>
#include <stdexcept>

#include "sim/simulation_state.hpp"

namespace ebb::sim {

const Simulation::State::Segment* Simulation::State::segment_of(int r, const policy::Place& place) const {
  if (place.at.kind != Endpoint::tier) return nullptr;
  const auto t = static_cast<std::size_t>(place.at.index);
  if (machine.planner.tiers[t].medium == policy::Medium::file) return nullptr;
  const auto& segments = ranks[static_cast<std::size_t>(r)].segments[t];
  const auto after = std::ranges::upper_bound(segments, place.offset, {}, &Segment::first);
  return &*std::prev(after);
}

bool Simulation::State::beyond(int r, const policy::Place& place, Bytes bytes) const {
  const Segment* const segment = segment_of(r, place);
  return segment != nullptr && place.offset + bytes > segment->first + segment->usable;
}

bool Simulation::State::in_lost_memory(int r, const Command& c) const {
  return std::ranges::any_of(std::array{c.from, c.to}, [&](const policy::Place& place) {
    const Segment* const segment = segment_of(r, place);
    return segment != nullptr && segment->lost;
  });
}

void Simulation::State::lend(int r, const Op& op) {
  Rank& rank = ranks[static_cast<std::size_t>(r)];
  auto& segments = rank.segments.at(static_cast<std::size_t>(op.tier));
  if (op.segment > segments.size()) throw std::invalid_argument("a segment was left out");
  if (op.segment == segments.size()) {
    const Bytes extent = rounded_up(op.bytes, machine.planner.tiers[static_cast<std::size_t>(op.tier)].granule);
    segments.push_back({.first = segments.back().first + segments.back().extent, .extent = extent});
    if (rank.content) rank.content->extend(op.tier, extent);
  }
  Segment& segment = segments[op.segment];
  if (segment.lost || op.bytes <= segment.usable || op.bytes > segment.extent) return;
  segment.usable = op.bytes;
  segment.returned = true;
  segment.due = policy::kNever;
  give(r, {.now = now, .what = event::Lend{op.tier, op.segment, op.bytes}});
}

void Simulation::State::recall(int r, const Op& op) {
  auto& segments = ranks[static_cast<std::size_t>(r)].segments.at(static_cast<std::size_t>(op.tier));
  if (op.segment >= segments.size()) return;
  Segment& segment = segments[op.segment];
  if (segment.lost || op.bytes > segment.usable) return;
  segment.usable = op.bytes;
  segment.returned = false;
  segment.due = op.time == policy::kNever ? policy::kNever : now + op.time;
  give(r, {.now = now, .what = event::Recall{op.tier, op.segment, op.bytes, segment.due}});
}

void Simulation::State::lose(int r, TierIndex tier, policy::SegmentId number) {
  Rank& rank = ranks[static_cast<std::size_t>(r)];
  auto& segments = rank.segments.at(static_cast<std::size_t>(tier));
  if (number >= segments.size() || segments[number].lost) return;
  Segment& segment = segments[number];
  segment.lost = true;
  segment.usable = 0;
  segment.due = policy::kNever;
  if (rank.content) rank.content->scribble(tier, segment.first, segment.extent);
  give(r, {.now = now, .what = event::Lost{tier, number}});
}

bool Simulation::State::take_recalled() {
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t t = 0; t < ranks[r].segments.size(); ++t)
      for (std::size_t s = 0; s < ranks[r].segments[t].size(); ++s) {
        if (ranks[r].segments[t][s].due > now) continue;
        lose(static_cast<int>(r), static_cast<TierIndex>(t), static_cast<policy::SegmentId>(s));
        return true;
      }
  return false;
}

}  // namespace ebb::sim
