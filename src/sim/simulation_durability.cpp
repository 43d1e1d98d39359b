#include "sim/simulation_durability.hpp"

#include <algorithm>

#include "sim/random.hpp"

namespace ebb::sim {

namespace {

std::uint64_t key(planner::CheckpointRef ref) { return std::uint64_t{ref.slot} << 32 | ref.generation; }

}  // namespace

Syncing::Syncing(const MachineModel& machine, const Options& options, std::size_t ranks)
    : machine_(machine), options_(options), ranks_(ranks) {
  const auto tiers = static_cast<TierIndex>(machine.planner.tiers.size());
  for (int rank = 0; rank < static_cast<int>(ranks); ++rank)
    for (TierIndex t = planner::first_keeping(machine.planner); t < tiers; ++t)
      files_.push_back({.rank = rank, .tier = t, .undurable = {}, .unreleased = {}});
}

bool Syncing::syncs() const {
  const planner::Machine& machine = machine_.planner;
  const auto first = static_cast<std::size_t>(planner::first_keeping(machine));
  return first < machine.tiers.size() &&
         (first + 1 < machine.tiers.size() || machine.tiers[first].retention.value_or(machine.retention).keep_last > 0);
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
  for (File& file : files_)
    if (file.rank == rank && planner.complete_on(checkpoint, file.tier)) complete(file, key(checkpoint), now);
}

void Syncing::complete(File& file, std::uint64_t checkpoint, Time now) {
  const std::uint64_t attempt = lower(file.tier) ? 8 * of(file.rank).attempts[checkpoint] + 8 : 0;
  Random random(mixed(options_.faults.seed + 3 + attempt) ^ mixed(checkpoint));
  const Time after = static_cast<Time>(random.below(static_cast<std::uint64_t>(options_.syncs.interval) + 1));
  file.undurable.emplace(checkpoint, now + after);
}

void Syncing::freed(int rank, const planner::Freed& what, Time now) {
  for (File& file : files_) {
    if (file.rank != rank || file.tier != what.tier) continue;
    file.undurable.erase(key(what.checkpoint));
    if (lower(what.tier)) ++of(rank).attempts[key(what.checkpoint)];
    if (!machine_.planner.releases_later) return;
    Random random(mixed(options_.faults.seed + 5) ^ mixed(key(what.checkpoint)));
    const Time after = static_cast<Time>(random.below(static_cast<std::uint64_t>(options_.syncs.interval) + 1));
    file.unreleased.emplace_back(now + after, what.length);
  }
}

void Syncing::commit_requested(int rank, std::uint32_t tiers, Time now) {
  for (File& file : files_) {
    if (file.rank != rank || !(tiers >> file.tier & 1)) continue;
    for (auto& [checkpoint, due] : file.undurable) due = std::min(due, now + options_.syncs.latency);
    for (auto& [due, bytes] : file.unreleased) due = std::min(due, now + options_.syncs.latency);
  }
}

bool Syncing::idle() const {
  return std::ranges::all_of(files_, [](const File& f) { return f.undurable.empty() && f.unreleased.empty(); });
}

Time Syncing::next(Time now) const {
  Time at = planner::kNever;
  for (const File& file : files_) {
    for (const auto& [checkpoint, due] : file.undurable) at = std::min(at, std::max(due, now));
    for (const auto& [due, bytes] : file.unreleased) at = std::min(at, std::max(due, now));
  }
  return at;
}

std::optional<std::pair<int, event::Unreleased>> Syncing::take_released(Time now) {
  for (File& file : files_) {
    auto& unreleased = file.unreleased;
    if (std::erase_if(unreleased, [&](const auto& one) { return one.first <= now; }) == 0) continue;
    event::Unreleased left{.tier = file.tier};
    for (const auto& [due, bytes] : unreleased) left.bytes += bytes;
    return std::pair(file.rank, left);
  }
  return {};
}

std::optional<Syncing::Synced> Syncing::take_due(Time now) {
  for (File& file : files_) {
    const auto due = std::ranges::find_if(file.undurable, [&](const auto& one) { return one.second <= now; });
    if (due == file.undurable.end()) continue;
    Rank& rank = of(file.rank);
    const auto [history, version] = rank.names.at(due->first);
    const std::uint64_t attempt = lower(file.tier) ? 8 * rank.attempts[due->first] + 8 : 0;
    const Synced synced{file.rank, due->first, history, version, file.tier, attempt};
    file.undurable.erase(due);
    return synced;
  }
  return {};
}

std::optional<event::Any> Syncing::outcome(const Synced& synced, Time now, const planner::Planner& planner) const {
  const auto found = planner.find(synced.history, synced.version);
  if (!found || key(*found) != synced.checkpoint) return {};
  const bool failed = options_.hang.at(synced.tier, now) ||
                      Random(mixed(options_.faults.seed + 4 + synced.attempt) ^ mixed(synced.checkpoint))
                          .chance(options_.syncs.failures);
  return failed ? event::Any(event::NotDurable{synced.version, synced.tier})
                : event::Durable{synced.version, synced.tier};
}

}  // namespace ebb::sim
