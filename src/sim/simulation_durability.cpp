#include "sim/simulation_durability.hpp"

#include <algorithm>

#include "sim/random.hpp"

namespace ebb::sim {

namespace {

std::uint64_t key(planner::CheckpointRef ref) { return std::uint64_t{ref.slot} << 32 | ref.generation; }

}  // namespace

bool Syncing::syncs() const {
  return machine_.planner.retention.keep_last > 0 && !machine_.planner.ephemeral &&
         machine_.planner.tiers.back().medium == planner::Medium::file;
}

void Syncing::named(int rank, const planner::Planner& planner, HistoryId history, Version version, bool recovered,
                    Time now) {
  if (!syncs()) return;
  const auto found = planner.find(history, version);
  if (!found) return;
  of(rank).names[key(*found)] = {history, version};
  // No command moves it.
  if (!recovered && planner.bytes_of(*found) == 0) moved(rank, planner, *found, now);
}

void Syncing::moved(int rank, const planner::Planner& planner, planner::CheckpointRef checkpoint, Time now) {
  if (!syncs()) return;
  const auto name = of(rank).names.find(key(checkpoint));
  if (name == of(rank).names.end()) return;
  if (planner.find(name->second.first, name->second.second) != checkpoint) return;
  if (planner.lowest_complete(checkpoint) != file_tier()) return;
  Random random(mixed(options_.faults.seed + 3) ^ mixed(key(checkpoint)));
  const Time after = static_cast<Time>(random.below(static_cast<std::uint64_t>(options_.syncs.interval) + 1));
  of(rank).undurable.emplace(key(checkpoint), now + after);
}

void Syncing::freed(int rank, const planner::Freed& what, Time now) {
  if (what.tier != file_tier()) return;
  of(rank).undurable.erase(key(what.checkpoint));
  if (!machine_.planner.releases_later) return;
  Random random(mixed(options_.faults.seed + 5) ^ mixed(key(what.checkpoint)));
  const Time after = static_cast<Time>(random.below(static_cast<std::uint64_t>(options_.syncs.interval) + 1));
  of(rank).unreleased.emplace_back(now + after, what.length);
}

void Syncing::commit_requested(int rank, Time now) {
  for (auto& [checkpoint, due] : of(rank).undurable) due = std::min(due, now + options_.syncs.latency);
  for (auto& [due, bytes] : of(rank).unreleased) due = std::min(due, now + options_.syncs.latency);
}

bool Syncing::idle() const {
  return std::ranges::all_of(ranks_, [](const Rank& r) { return r.undurable.empty(); });
}

Time Syncing::next(Time now) const {
  Time at = planner::kNever;
  for (const Rank& rank : ranks_) {
    for (const auto& [checkpoint, due] : rank.undurable) at = std::min(at, std::max(due, now));
    for (const auto& [due, bytes] : rank.unreleased) at = std::min(at, std::max(due, now));
  }
  return at;
}

std::optional<std::pair<int, event::Unreleased>> Syncing::take_released(Time now) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    auto& unreleased = ranks_[r].unreleased;
    if (std::erase_if(unreleased, [&](const auto& one) { return one.first <= now; }) == 0) continue;
    event::Unreleased left{.tier = file_tier()};
    for (const auto& [due, bytes] : unreleased) left.bytes += bytes;
    return std::pair(static_cast<int>(r), left);
  }
  return {};
}

std::optional<Syncing::Synced> Syncing::take_due(Time now) {
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const auto due = std::ranges::find_if(rank.undurable, [&](const auto& one) { return one.second <= now; });
    if (due == rank.undurable.end()) continue;
    const auto [history, version] = rank.names.at(due->first);
    const Synced synced{static_cast<int>(r), due->first, history, version};
    rank.undurable.erase(due);
    return synced;
  }
  return {};
}

std::optional<event::Any> Syncing::outcome(const Synced& synced, const planner::Planner& planner) const {
  const auto found = planner.find(synced.history, synced.version);
  if (!found || key(*found) != synced.checkpoint) return {};
  const bool failed =
      Random(mixed(options_.faults.seed + 4) ^ mixed(synced.checkpoint)).chance(options_.syncs.failures);
  return failed ? event::Any(event::NotDurable{synced.version, file_tier()})
                : event::Durable{synced.version, file_tier()};
}

}  // namespace ebb::sim
