// Memory of the caches that comes, or fails to come, while the store is in use.
#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {

// Before the planner is told of a command that has no memory, it hears that the tier ends there.
void Engine::tell_limits(const Locked& locked) {
  for (std::size_t t = 0; t < port_.machine().tiers.size(); ++t) {
    const auto tier = static_cast<policy::TierIndex>(t);
    const std::uint64_t limit = machinery_->tiers->limit(tier);
    if (limit >= port_.planner(locked).use(tier).capacity) continue;
    port_.submit(locked, 0, policy::event::Recall{.tier = tier, .segment = 0, .bytes = limit});
  }
}

// On a thread of an arena's: there is more, or there will be less.
void Engine::memory_changed() {
  Locked locked = port_.lock();
  if (!lifetime_.opened(locked) || lifetime_.closed(locked) || port_.poisoned(locked)) return;
  try {
    tell_limits(locked);
    for (auto& [id, request] : requests_) request->changed.notify_one();
    pump(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

// Whether it can be carried out now, if only to fail.
bool Engine::usable(const policy::Command& command) const {
  return machinery_->tiers->use_of(command.to, command.length) != Tiers::Use::later;
}

// Or it would read what never came.
bool Engine::never(const policy::Command& command) const {
  const Tiers& tiers = *machinery_->tiers;
  return tiers.use_of(command.to, command.length) == Tiers::Use::never ||
         tiers.use_of(command.from, command.length) == Tiers::Use::never;
}

Error Engine::no_memory_error(const policy::Command& command) const {
  const bool written = machinery_->tiers->use_of(command.to, command.length) == Tiers::Use::never;
  const auto tier = static_cast<std::size_t>((written ? command.to : command.from).at.index);
  return {Errc::no_space, "the " + port_.machine().tiers.at(tier).name + " cache has less memory than was asked for"};
}

// What a reservation was granted, before it is handed out.
Result<void> Engine::await_memory(Locked& locked, Request& request, const Interrupt& interrupted) {
  const auto use = [&] { return machinery_->tiers->use_of(request.answer.place, request.bytes); };
  bool stop = false;
  const auto over = [&] {
    return lifetime_.closed(locked) || port_.poisoned(locked) || stop || use() != Tiers::Use::later;
  };
  machinery_->tiers->want(request.answer.place, request.bytes);
  while (!over()) {
    if (wants_pump(locked)) machinery_->pump.notify_one();
    if (!interrupted) {
      EBB_WAIT(memory_there, request.changed.wait(locked.native(), over));
      break;
    }
    bool woken = false;
    EBB_WAIT(memory_polled, woken = request.changed.wait_for(locked.native(), kInterruptEvery, over));
    if (!woken) stop = asked_to_stop(locked, interrupted) || stop;
  }
  port_.throw_if_poisoned(locked);
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  const std::string key = catalog_.key_text(locked, request.history, request.version);
  switch (use()) {
    case Tiers::Use::now: return {};
    case Tiers::Use::never: return Error{Errc::no_space, key + ": the device cache has less memory than was asked for"};
    case Tiers::Use::later: break;
  }
  return Error{Errc::timed_out, "the call was interrupted before the device cache had the memory for " + key};
}

void Engine::begin_moving(const Locked& /*locked*/, const policy::Command& command, bool copies) {
  moving_.emplace(command.id, Moving{command, copies});
  if (copies) machinery_->tiers->begin_copy(command);
}

// What an error said is kept for the checkpoint's future.
void Engine::end_moving(const Locked& locked, policy::CommandId command, const Result<void>& result) {
  const auto found = moving_.find(command);
  if (found == moving_.end()) return;
  const Moving& moving = found->second;
  if (moving.copies) {
    machinery_->tiers->end_copy(moving.command);
  }
  if (Record* record = result ? nullptr : catalog_.find(locked, moving.command.checkpoint))
    record->trouble = result.error();
  moving_.erase(found);
}

}  // namespace ebb::runtime
