#include "store/catalog.hpp"

#include <algorithm>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "storage/format/record.hpp"

namespace ebb::store {
namespace {

constexpr std::size_t kShown = 64;  // bytes of a name that is too long to be shown

// Whether one can stand for the other. Large ones are not compared: that takes longer than it saves.
bool is_alike(const CheckpointInfo& a, const CheckpointInfo& b) {
  constexpr std::size_t kMostRegions = 16, kMostMetadata = 1024;
  const auto region = [](const RegionInfo& one, const RegionInfo& other) {
    return one.id == other.id && one.bytes == other.bytes && one.offset == other.offset;
  };
  return a.bytes == b.bytes && a.regions.size() <= kMostRegions && a.metadata.size() <= kMostMetadata &&
         a.metadata == b.metadata && std::ranges::equal(a.regions, b.regions, region) && a.leans_on == b.leans_on;
}

}  // namespace

Catalog::Catalog(PlannerPort& port, bool persistent) : port_(port), persistent_(persistent) {
  histories_.push_back({});
  histories_[0].name = &history_numbers_.emplace("", 0).first->first;
}

// --- histories -----------------------------------------------------------------------------------------------------

std::pair<planner::HistoryId, Catalog::InHandPtr> Catalog::open_history(const Locked& locked, const std::string& name,
                                                                        Order order) {
  // One that was dropped begins anew, whether or not it has been looked for.
  const auto known = history_numbers_.find(name);
  if (known != history_numbers_.end() && !forget_history(locked, known->second)) {
    History& history = histories_[known->second];
    if (history.blank && history.in_hand.use_count() == 1) set_order(locked, known->second, Order::none);
  }
  const planner::HistoryId id = number_of(locked, name);
  History& history = histories_[id];
  if (order != Order::none) {
    set_order(locked, id, order);
    history.blank = false;
  }
  return {id, history.in_hand};
}

void Catalog::set_order(const Locked& locked, planner::HistoryId number, Order order) {
  Order& now = histories_[number].order;
  if (std::exchange(now, order) != order) port_.submit(locked, number, planner::event::Order{order == Order::reverse});
}

planner::HistoryId Catalog::number_of(const Locked& locked, const std::string& name) {
  if (const auto known = history_numbers_.find(name); known != history_numbers_.end()) return known->second;
  if (history_numbers_.size() >= look_for_dropped_at_) forget_histories(locked);
  if (free_histories_.empty()) {
    free_histories_.push_back(static_cast<planner::HistoryId>(histories_.size()));
    histories_.emplace_back();
  }
  const planner::HistoryId id = free_histories_.back();
  const std::string& kept = history_numbers_.emplace(name, id).first->first;
  free_histories_.pop_back();
  histories_[id].name = &kept;
  return id;
}

// False: it has something that must not be forgotten, or somebody has a handle of it.
bool Catalog::forget_history(const Locked& locked, planner::HistoryId number) {
  History& history = histories_[number];
  const auto [first, last] = lost_of(number);
  if (number == 0 || !history.blank || history.in_hand.use_count() > 1 || !history.written.empty() || first != last ||
      !port_.planner(locked).idle(number)) {
    return false;
  }
  port_.submit(locked, number, planner::event::Forget{});
  history_numbers_.erase(history_numbers_.find(*history.name));
  free_histories_.push_back(number);
  history = {};
  return true;
}

// Each look costs as much as there are names, and happens when there are twice as many as it left: a store that makes
// and drops histories for days has at most twice as many as are in use.
void Catalog::forget_histories(const Locked& locked) {
  for (auto at = history_numbers_.begin(); at != history_numbers_.end();) forget_history(locked, (at++)->second);
  look_for_dropped_at_ = std::max<std::size_t>(16, 2 * history_numbers_.size());
}

Result<void> Catalog::check_name(const Locked& locked, planner::HistoryId history) const {
  const std::string& name = name_of(locked, history);
  if (name.size() <= storage::kMaxName) return {};
  return Error{Errc::invalid_argument, "the history's name (\"" + name.substr(0, kShown) + "...\") has " +
                                           std::to_string(name.size()) + " bytes: it may have " +
                                           std::to_string(storage::kMaxName) + " at most"};
}

std::vector<std::string> Catalog::names(const Locked& locked, std::string_view prefix) const {
  std::vector<std::string> found;
  for (auto at = history_numbers_.lower_bound(prefix); at != history_numbers_.end(); ++at) {
    if (!at->first.starts_with(prefix)) break;
    bool any = false;
    for_each_written(locked, at->second, [&](Version, auto) { any = true; });
    if (any) found.push_back(at->first);
  }
  return found;
}

std::string Catalog::key_text(const Locked& locked, planner::HistoryId history, Version version) const {
  const std::string& name = name_of(locked, history);
  if (const auto file = name.find(kReservedInNames); file != std::string::npos) {  // "model/.ebbtide-file/3/..."
    const std::size_t begin = file + kReservedInNames.size();
    return "version " + name.substr(begin, name.find('/', begin) - begin) + " of file \"" + name.substr(0, file) + "\"";
  }
  if (name.find(kReservedForSnapshots) != std::string::npos) return "a part of a snapshot";
  return "version " + std::to_string(version) + (history != 0 ? " of history \"" + name + "\"" : std::string());
}

// --- checkpoints ---------------------------------------------------------------------------------------------------

Record& Catalog::add(const Locked& locked, planner::HistoryId history, Version version) {
  const auto checkpoint = port_.planner(locked).find(history, version);
  if (!checkpoint) throw std::logic_error("the planner does not know a checkpoint that it took");
  if (checkpoint->slot >= records_.size()) records_.resize(checkpoint->slot + 1);
  lost_.erase({history, version});
  Record& record = records_[checkpoint->slot] = {};
  record.used = true;
  record.order = next_order_++;
  record.checkpoint = *checkpoint;
  record.history = history;
  record.version = version;
  return record;
}

void Catalog::describe(const Locked& /*locked*/, Record& record, std::shared_ptr<const CheckpointInfo> info) {
  std::shared_ptr<const CheckpointInfo>& last = histories_[record.history].last_info;
  if (last == nullptr || !is_alike(*last, *info)) last = std::move(info);
  record.info = last;
}

Record* Catalog::find(const Locked& /*locked*/, planner::CheckpointRef checkpoint) {
  if (checkpoint.slot >= records_.size()) return nullptr;
  Record& record = records_[checkpoint.slot];
  return record.used && record.checkpoint == checkpoint ? &record : nullptr;
}

Record* Catalog::find(const Locked& locked, planner::HistoryId history, Version version) {
  const auto checkpoint = port_.planner(locked).find(history, version);
  return checkpoint ? find(locked, *checkpoint) : nullptr;
}

bool Catalog::live(const Locked& locked, const Record& record) const {
  return port_.planner(locked).find(record.history, record.version) == record.checkpoint;
}

void Catalog::set_written(const Locked& locked, planner::CheckpointRef checkpoint) {
  Record* const record = find(locked, checkpoint);
  if (record == nullptr || !live(locked, *record)) return;
  record->reserved = false;
  histories_[record->history].written[record->version] = checkpoint;
}

void Catalog::take_failure(const Locked& locked, const planner::Failure& failure) {
  Record* const record = find(locked, failure.checkpoint);
  if (record == nullptr) return;
  const auto& tiers = port_.machine().tiers;
  const std::string key = key_text(locked, record->history, record->version);
  const std::string where = failure.tier >= 0 ? tiers.at(static_cast<std::size_t>(failure.tier)).name : "any tier";
  const std::string cause = record->trouble ? record->trouble->message : failure.detail;
  const std::string why = cause.empty() ? "" : " (" + cause + ")";
  const auto because = [&](Errc code) { return record->trouble && record->trouble->code == code; };
  const bool full = persistent_ && because(Errc::no_space);
  Error error{Errc::lost, key + " is lost: its only copy failed" + why};
  if (!failure.lost)
    error = {full ? Errc::no_space : Errc::io_error, key + " could not be written to " + where + why};
  else if (because(Errc::damaged))
    error = {Errc::damaged, key + " is damaged: " + record->trouble->message};
  else if (because(Errc::unknown_version))
    error = *record->trouble;  // dropped by the process that writes
  if (failure.lost) {
    mark_lost(locked, record->history, record->version, error);
    if (record->written_to) lost_[{record->history, record->version}].overwritten = true;
  } else if (persistent_) {
    const std::size_t file = port_.file_number(std::max(failure.tier, port_.first_file()));
    record->files[file].not_durable = std::make_unique<const Error>(error);
  }
  const bool of_future = failure.lost || failure.tier <= port_.first_file();
  if (const auto future = record->future.lock(); future && of_future) future->error = error;
}

void Catalog::mark_lost(const Locked& /*locked*/, planner::HistoryId history, Version version, const Error& why) {
  lost_[{history, version}].why = why;
}

const Error* Catalog::lost(const Locked& /*locked*/, planner::HistoryId history, Version version) const {
  const auto found = lost_.find({history, version});
  return found == lost_.end() ? nullptr : &found->second.why;
}

std::optional<Error> Catalog::overwritten(const Locked& /*locked*/, planner::HistoryId history,
                                          std::optional<Version> only) const {
  const auto [first, last] = lost_of(history);
  for (const auto& [key, lost] : std::ranges::subrange(first, last))
    if (lost.overwritten && (!only || key.second == *only)) return lost.why;
  return {};
}

void Catalog::forget_if_gone(const Locked& locked, planner::HistoryId history, Version version) {
  if (!port_.planner(locked).find(history, version)) forget_written(locked, history, version);
}

void Catalog::forget(const Locked& /*locked*/, planner::HistoryId number, std::optional<Version> version) {
  History& history = histories_[number];
  if (version) {
    history.written.erase(*version);
    lost_.erase({number, *version});
    return;
  }
  history.written.clear();
  const auto [first, last] = lost_of(number);
  lost_.erase(first, last);
  history.blank = true;
}

Error Catalog::refusal(const Locked& locked, planner::HistoryId history, Version version,
                       const planner::Answer& answer) {
  using planner::Reason;
  const std::string key = key_text(locked, history, version);
  std::string detail = answer.detail.empty() ? "" : ": " + answer.detail;
  if (const std::string again = ": version " + std::to_string(version) + ": "; detail.starts_with(again)) {
    detail.erase(0, again.size() - 2);
  }
  switch (answer.reason) {
    case Reason::ok: break;
    case Reason::version_exists:
      return {Errc::version_exists, key + " was written already and neither dropped nor consumed"};
    case Reason::unknown_version:
    case Reason::consumed: {
      if (const Error* const why = lost(locked, history, version)) return *why;
      if (answer.reason == Reason::unknown_version) {
        return {Errc::unknown_version, key + " was never written, or was dropped"};
      }
      return {Errc::consumed,
              key + " was restored already and no further hint named it: an ephemeral store has discarded it"};
    }
    case Reason::too_large: return {Errc::too_large, key + " is larger than every tier" + detail};
    case Reason::no_space: return {Errc::no_space, "no transfer under way can make room for " + key + detail};
    case Reason::lost: {
      const Record* const record = find(locked, answer.checkpoint);
      const Error* const trouble = record != nullptr ? record->trouble.get() : nullptr;
      if (trouble && trouble->code == Errc::damaged) return {Errc::damaged, key + " is damaged: " + trouble->message};
      if (trouble && trouble->code == Errc::unknown_version) return *trouble;
      if (trouble && trouble->code == Errc::out_of_memory)
        return {Errc::out_of_memory, key + " could not be read: " + trouble->message};
      return {Errc::lost, key + " is lost" + detail + (trouble ? " (" + trouble->message + ")" : "")};
    }
    case Reason::dropped: return {Errc::dropped, key + " was dropped while the call waited for it"};
    case Reason::cancelled:
      return {Errc::timed_out, "the time limit passed, or the call was interrupted, at " + key + detail};
    case Reason::no_such_tier: return {Errc::unsupported, key + detail};
  }
  throw std::logic_error("an answer without a reason");
}

}  // namespace ebb::store
