// Events in; commands, answers and what else the planner says to whom it concerns.
#include <stdexcept>

#include "store/engine.hpp"

namespace ebb::runtime {
namespace {

// Of the newest restores alone: a store that is used for days does not grow with them.
template <class List>
void add_newest(List& list, typename List::value_type value) {
  if (list.size() == 2 * Stats::kNewest) list.erase(list.begin(), list.begin() + Stats::kNewest);
  list.push_back(value);
}

// What a history has to be remembered for.
bool leaves_something(const policy::Event& e) {
  using namespace policy::event;
  return std::visit(
      []<class What>(const What&) {
        return std::is_same_v<What, Checkpoint> || std::is_same_v<What, Reserve> || std::is_same_v<What, Hint> ||
               std::is_same_v<What, HintFront> || std::is_same_v<What, StartPrefetch> ||
               std::is_same_v<What, Recovered>;
      },
      e.what);
}

}  // namespace

void Engine::take(const Locked& locked, const policy::Event& event, policy::Output& output) {
  if (leaves_something(event)) histories_[event.client].blank = false;
  for (const policy::Retired& one : output.retired) histories_[one.history].versions.erase(one.version);
  for (const policy::Freed& freed : output.freed) take_freed(locked, freed);  // before the room is used again
  for (const policy::Command& command : output.commands) give(locked, command);
  if (output.commit && machinery_->kept != nullptr) machinery_->kept->commit();
  for (const policy::Failure& failure : output.failures) take_failure(locked, failure);
  for (const policy::RequestId id : output.spoiled) {
    if (const auto found = requests_.find(id); found != requests_.end()) found->second->spoiled = true;
  }
  for (policy::Answer& answer : output.answers) take_answer(locked, answer);
}

void Engine::give(const Locked& /*locked*/, const policy::Command& command) {
  if (!seams_.device->host_memory()) unsent_.insert(command.id);
  // With its first chunk comes the rest of the replica.
  const bool to_memory = command.to.at.kind == policy::Endpoint::tier && command.to.offset >= command.offset;
  if (to_memory) machinery_->tiers->want({command.to.at, command.to.offset - command.offset}, command.total);
  if (command.to.at.kind == policy::Endpoint::ring) machinery_->tiers->want(command.to, command.length);
  const bool own =
      command.from.at.kind == policy::Endpoint::application || command.to.at.kind == policy::Endpoint::application;
  if (!own) {
    lanes_.at(static_cast<std::size_t>(command.link)).queue.push_back(command);
    return;
  }
  const auto found = requests_.find(command.request);
  if (found == requests_.end()) throw std::logic_error("a copy was ordered for a call that has ended");
  Request& request = *found->second;
  if (request.stream) {
    if (command.offset < request.ordered_to) {  // once more, from another place: what was copied of it does not count
      request.enqueued = std::min(request.enqueued, command.offset);
      request.ahead.clear();
    }
    request.ordered_to = command.offset + command.length;
  }
  request.commands.push_back(command);
  if (request.background) {
    worker_queue_.push_back(request.id);
    machinery_->worker.notify_one();
  } else {
    request.changed.notify_one();
  }
}

void Engine::take_answer(const Locked& locked, policy::Answer& answer) {
  if (abandoned_.erase(answer.request) > 0) return;
  const auto found = requests_.find(answer.request);
  if (found == requests_.end()) throw std::logic_error("an answer came for a call that has ended");
  Request& request = *found->second;
  request.answer = std::move(answer);
  request.answered = true;
  request.changed.notify_one();
  if (setup_.verify_all && request.answer.reason == policy::Reason::ok) {
    if (const Record* const record = find_record(locked, request.answer.checkpoint)) request.sums = record->sums;
  }
  if (!request.background) return;
  if (!request.sums || !request.info) return end_background(locked, request);
  checks_.push_back(request.id);
  machinery_->worker.notify_one();
}

void Engine::take_freed(const Locked& locked, const policy::Freed& freed) {
  const policy::TierSpec& tier = port_.machine().tiers.at(static_cast<std::size_t>(freed.tier));
  if (tier.medium == policy::Medium::file) {
    const auto found = objects_.find(key_of(freed.checkpoint));
    if (found == objects_.end()) return;  // none of its chunks was handed over
    const bool leave = freed.failed || found->second.left;
    if (leave && machinery_->kept != nullptr)
      machinery_->kept->abandon(found->second.id);
    else
      machinery_->storage->drop(found->second.id);
    keeping_.erase(found->second.id);
    objects_.erase(found);
  } else {
    const policy::Place place{{policy::Endpoint::tier, freed.tier}, freed.offset};
    Record* const record = find_record(locked, freed.checkpoint);
    if (record != nullptr && record->check && machinery_->tiers->at(place) == record->check->data)
      record->check.reset();
    machinery_->tiers->discard(place, freed.length);
  }
}

void Engine::take_failure(const Locked& locked, const policy::Failure& failure) {
  Record* record = find_record(locked, failure.checkpoint);
  if (record == nullptr) return;
  const auto& tiers = port_.machine().tiers;
  const std::string key = key_text(locked, record->history, record->version);
  const std::string where = failure.tier >= 0 ? tiers.at(static_cast<std::size_t>(failure.tier)).name : "any tier";
  const std::string why = record->trouble ? " (" + record->trouble->message + ")" : "";
  const auto because = [&](Errc code) { return record->trouble && record->trouble->code == code; };
  const bool full = machinery_->kept != nullptr && because(Errc::no_space);
  Error error{Errc::lost, key + " is lost: its only copy failed" + why};
  if (!failure.lost)
    error = {full ? Errc::no_space : Errc::io_error, key + " could not be written to " + where + why};
  else if (because(Errc::damaged))
    error = {Errc::damaged, key + " is damaged: " + record->trouble->message};
  else if (because(Errc::unknown_version))
    error = *record->trouble;  // dropped by the process that writes
  if (failure.lost && record->written_to) histories_[record->history].written_to.insert(record->version);
  if (failure.lost)
    lose(locked, record->history, record->version, error);
  else if (machinery_->kept != nullptr)
    record->not_kept = error;
  if (const auto future = record->future.lock()) future->error = error;
}

// The target's owner may use it, or free it, from here on; the worker does not touch the request again.
void Engine::end_background(const Locked& locked, Request& request) {
  const bool writes = request.waitable && !request.waitable->background;
  if (request.answer.reason != policy::Reason::ok || request.wrong) {
    const Error error = request.wrong ? *request.wrong : error_of(locked, request);
    if (writes && error.code == Errc::lost) {
      lose(locked, request.history, request.version,
           {Errc::lost, key_text(locked, request.history, request.version) +
                            " was taken in stream order, and its bytes never came: " + error.message});
    }
    if (request.waitable) request.waitable->error = error;
  } else if (!writes) {
    count_restore(locked, request);
    forget_if_gone(locked, request.history, request.version);
  }
  if (request.waitable) request.waitable->ended = true;
  machinery_->ended.notify_all();
  put_stream(locked, request);
  const policy::RequestId id = request.id;
  requests_.erase(id);
  background_.erase(id);
}

void Engine::count_restore(const Locked& /*locked*/, const Request& request) {
  const policy::TierIndex found_on = request.answer.found_on;
  ++counters_.restores;
  counters_.restore_bytes += request.bytes;
  add_newest(counters_.found_on, found_on);
  add_newest(counters_.prefetch_distance, request.answer.distance);
  const bool memory = in_memory(found_on);
  if (found_on != policy::kNoTier) ++hits_[static_cast<std::size_t>(found_on)];
  if (!memory) ++counters_.misses;
}

void Engine::count_blocked(const Locked& /*locked*/, const Request& request, Blocked rest, policy::Time until) {
  blocked_[static_cast<std::size_t>(Blocked::copy)] += request.copying;
  blocked_[static_cast<std::size_t>(rest)] += std::max<policy::Time>(0, until - request.started - request.copying);
}

void Engine::add_record(const Locked& locked, const Request& request, std::shared_ptr<const CheckpointInfo> info,
                        std::weak_ptr<Waitable> future, bool reserved) {
  const auto checkpoint = port_.planner(locked).find(request.history, request.version);
  if (!checkpoint) throw std::logic_error("the planner does not know a checkpoint that it took");
  if (checkpoint->slot >= records_.size()) records_.resize(checkpoint->slot + 1);
  histories_[request.history].lost.erase(request.version);
  histories_[request.history].written_to.erase(request.version);
  Record& record = records_[checkpoint->slot] = {};
  record.checkpoint = *checkpoint;
  record.history = request.history;
  record.version = request.version;
  record.info = std::move(info);
  record.reserved = reserved;
  record.future = std::move(future);
  record.used = true;
}

// All of a checkpoint's bytes are in the store: it can be asked for, and a reverse history will want it first.
// Another thread may meanwhile have consumed or dropped it, and even written the version anew: hence the reference.
void Engine::completed(const Locked& locked, policy::HistoryId history, Version version,
                       policy::CheckpointRef checkpoint, std::uint64_t bytes) {
  ++counters_.checkpoints;
  counters_.checkpoint_bytes += bytes;
  if (!closed_) machinery_->tiers->produced(bytes);
  Record* record = find_record(locked, checkpoint);
  if (record == nullptr || port_.planner(locked).find(history, version) != checkpoint) return;
  record->reserved = false;
  HistoryState& state = histories_[history];
  state.versions[version] = checkpoint;
  if (state.order != Order::reverse) return;
  port_.submit(locked, history, policy::event::HintFront{version});
}

Engine::Record* Engine::find_record(const Locked& /*locked*/, policy::CheckpointRef checkpoint) {
  if (checkpoint.slot >= records_.size()) return nullptr;
  Record& record = records_[checkpoint.slot];
  return record.used && record.checkpoint == checkpoint ? &record : nullptr;
}

Engine::Record* Engine::find_record(const Locked& locked, policy::HistoryId history, Version version) {
  const auto checkpoint = port_.planner(locked).find(history, version);
  return checkpoint ? find_record(locked, *checkpoint) : nullptr;
}

// Its call has returned: whoever asks for it is told.
void Engine::lose(const Locked& /*locked*/, policy::HistoryId history, Version version, const Error& why) {
  histories_[history].lost[version] = why;
}

void Engine::forget_if_gone(const Locked& locked, policy::HistoryId history, Version version) {
  if (!port_.planner(locked).find(history, version)) histories_[history].versions.erase(version);
}

std::string Engine::key_text(const Locked& /*locked*/, policy::HistoryId history, Version version) const {
  std::string text = "version " + std::to_string(version);
  if (history != 0) text += " of history \"" + histories_[history].name + "\"";
  return text;
}

Error Engine::error_of(const Locked& locked, const Request& request) const {
  using policy::Reason;
  const policy::Answer& answer = request.answer;
  const std::string key = key_text(locked, request.history, request.version);
  const std::string detail = answer.detail.empty() ? "" : ": " + answer.detail;
  switch (answer.reason) {
    case Reason::ok: break;
    case Reason::version_exists:
      return {Errc::version_exists, key + " was written already and neither dropped nor consumed"};
    case Reason::unknown_version:
    case Reason::consumed: {
      const auto& lost = histories_[request.history].lost;
      if (const auto found = lost.find(request.version); found != lost.end()) return found->second;
      if (answer.reason == Reason::unknown_version) {
        return {Errc::unknown_version, key + " was never written, or was dropped"};
      }
      return {Errc::consumed,
              key + " was restored already and no further hint named it: an ephemeral store has discarded it"};
    }
    case Reason::too_large: return {Errc::too_large, key + " is larger than every tier" + detail};
    case Reason::no_space: return {Errc::no_space, "no transfer under way can make room for " + key + detail};
    case Reason::lost: {
      const bool known = answer.checkpoint.slot < records_.size() && records_[answer.checkpoint.slot].used &&
                         records_[answer.checkpoint.slot].checkpoint == answer.checkpoint;
      const std::optional<Error> trouble = known ? records_[answer.checkpoint.slot].trouble : std::nullopt;
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

Result<policy::TierIndex> Engine::level_of(std::string_view level) const {
  constexpr std::array<std::string_view, 3> levels = {"device", "host", "local"};
  const auto& tiers = port_.machine().tiers;
  if (level == "ephemeral" && !tiers.empty()) return policy::TierIndex{0};  // written: complete on any tier
  if (is_durability(level) || level == "node") {
    const bool kept = machinery_->kept != nullptr && level != "node";
    if (kept && (level == "process" || setup_.durability == Durability::storage)) {
      return static_cast<policy::TierIndex>(tiers.size() - 1);
    }
    return Error{Errc::unsupported, "level=\"" + std::string(level) +
                                        "\" is not supported: this store's durability is \"" +
                                        std::string(name_of(setup_.durability)) + "\""};
  }
  bool known = false;  // a tier that this store does not have stands for the next one below
  for (const std::string_view name : levels) {
    known = known || name == level;
    if (!known) continue;
    for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
      if (tiers[tier].name == name) return static_cast<policy::TierIndex>(tier);
    }
  }
  if (known) return Error{Errc::unsupported, "this store has no tier \"" + std::string(level) + "\", nor one below it"};
  return Error{Errc::invalid_argument,
               "level=\"" + std::string(level) +
                   "\" is not valid: expected one of \"device\", \"host\", \"local\", \"ephemeral\", "
                   "\"process\", \"storage\""};
}

}  // namespace ebb::runtime
