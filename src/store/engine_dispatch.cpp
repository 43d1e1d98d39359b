// Events in; commands, answers and what else the planner says to whom it concerns.
#include <stdexcept>

#include "store/engine.hpp"

namespace ebb::runtime {
void Engine::take(const Locked& locked, policy::Output& output) {
  for (const policy::Retired& one : output.retired) catalog_.forget_written(locked, one.history, one.version);
  for (const policy::Freed& freed : output.freed) take_freed(locked, freed);  // before the room is used again
  for (const policy::Command& command : output.commands) give(locked, command);
  if (output.commit && machinery_->kept != nullptr) machinery_->kept->commit();
  for (const policy::Failure& failure : output.failures) catalog_.take_failure(locked, failure);
  for (const policy::RequestId id : output.spoiled) {
    if (const auto found = requests_.find(id); found != requests_.end()) found->second->spoiled = true;
  }
  for (policy::Answer& answer : output.answers) take_answer(locked, answer);
}

void Engine::give(const Locked& /*locked*/, const policy::Command& command) {
  if (!streams_.host_memory()) unsent_.insert(command.id);
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
    if (const Record* const record = catalog_.find(locked, request.answer.checkpoint)) request.sums = record->sums;
  }
  if (!request.background) return;
  if (!request.sums || !request.info) return end_background(locked, request);
  checks_.push_back(request.id);
  machinery_->worker.notify_one();
}

void Engine::take_freed(const Locked& locked, const policy::Freed& freed) {
  const policy::TierSpec& tier = port_.machine().tiers.at(static_cast<std::size_t>(freed.tier));
  if (tier.medium == policy::Medium::file) {
    const FileObject object = catalog_.take_object(locked, freed.checkpoint);
    if (object.id == 0) return;  // none of its chunks was handed over
    if ((freed.failed || object.leave) && machinery_->kept != nullptr)
      machinery_->kept->abandon(object.id);
    else
      machinery_->storage->drop(object.id);
  } else {
    const policy::Place place{{policy::Endpoint::tier, freed.tier}, freed.offset};
    Record* const record = catalog_.find(locked, freed.checkpoint);
    if (record != nullptr && record->check && machinery_->tiers->at(place) == record->check->data)
      record->check.reset();
    machinery_->tiers->discard(place, freed.length);
  }
}

// The target's owner may use it, or free it, from here on; the worker does not touch the request again.
void Engine::end_background(const Locked& locked, Request& request) {
  const bool writes = request.waitable && !request.waitable->background;
  if (request.answer.reason != policy::Reason::ok || request.wrong) {
    const Error error =
        request.wrong ? *request.wrong : catalog_.refusal(locked, request.history, request.version, request.answer);
    if (writes && error.code == Errc::lost) {
      catalog_.mark_lost(locked, request.history, request.version,
                         {Errc::lost, catalog_.key_text(locked, request.history, request.version) +
                                          " was taken in stream order, and its bytes never came: " + error.message});
    }
    if (request.waitable) request.waitable->error = error;
  } else if (!writes) {
    statistics_.count_restore(locked, request.answer, request.bytes);
    catalog_.forget_if_gone(locked, request.history, request.version);
  }
  if (request.waitable) request.waitable->ended = true;
  machinery_->ended.notify_all();
  streams_.put(locked, request.own);
  const policy::RequestId id = request.id;
  requests_.erase(id);
  background_.erase(id);
}

void Engine::completed(const Locked& locked, policy::CheckpointRef checkpoint, std::uint64_t bytes) {
  statistics_.count_checkpoint(locked, bytes);
  if (!lifetime_.closed(locked)) machinery_->tiers->produced(bytes);
  catalog_.set_written(locked, checkpoint);
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
