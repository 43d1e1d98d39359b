// Memory of the caches that comes, or fails to come, while the store is in use.
#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {

// Before the planner is told of a command that has no memory, it hears that the tier ends there.
void Engine::tell_limits() {
  for (std::size_t t = 0; t < planner_->machine().tiers.size(); ++t) {
    const auto tier = static_cast<policy::TierIndex>(t);
    const std::uint64_t limit = machinery_->tiers->limit(tier);
    if (limit >= planner_->use(tier).capacity) continue;
    feed(0, policy::event::Recall{.tier = tier, .segment = 0, .bytes = limit});
  }
}

// On a thread of an arena's: there is more, or there will be less.
void Engine::memory_changed() {
  Lock lock(*this);
  if (!opened_ || closed_ || broken_) return;
  try {
    tell_limits();
    for (auto& [id, request] : requests_) request->changed.notify_one();
    pump(lock);
  } catch (const std::exception& error) {
    broke(lock, error);
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
  return {Errc::no_space,
          "the " + planner_->machine().tiers.at(tier).name + " cache has less memory than was asked for"};
}

// What a reservation was granted, before it is handed out.
Result<void> Engine::await_memory(Lock& lock, Request& request, const Interrupt& interrupted) {
  const auto use = [&] { return machinery_->tiers->use_of(request.answer.place, request.bytes); };
  bool stop = false;
  const auto over = [&] { return closed_ || broken_ || stop || use() != Tiers::Use::later; };
  machinery_->tiers->want(request.answer.place, request.bytes);
  while (!over()) {
    if (wants_pump()) machinery_->pump.notify_one();
    if (!interrupted) {
      EBB_WAIT(memory_there, request.changed.wait(lock.native(), over));
      break;
    }
    bool woken = false;
    EBB_WAIT(memory_polled, woken = request.changed.wait_for(lock.native(), kInterruptEvery, over));
    if (!woken) stop = asked_to_stop(lock, interrupted) || stop;
  }
  if (broken_) throw std::logic_error(*broken_);
  if (closed_) return closed_error();
  const std::string key = key_text(request.history, request.version);
  switch (use()) {
    case Tiers::Use::now: return {};
    case Tiers::Use::never: return Error{Errc::no_space, key + ": the device cache has less memory than was asked for"};
    case Tiers::Use::later: break;
  }
  return Error{Errc::timed_out, "the call was interrupted before the device cache had the memory for " + key};
}

void Engine::begin_moving(const policy::Command& command, bool copies) {
  moving_.emplace(command.id, Moving{command, copies});
  if (copies) machinery_->tiers->begin_copy(command);
}

// What an error said is kept for the checkpoint's future.
void Engine::end_moving(policy::CommandId command, const Result<void>& result) {
  const auto found = moving_.find(command);
  if (found == moving_.end()) return;
  const Moving& moving = found->second;
  if (moving.copies) machinery_->tiers->end_copy(moving.command);
  if (Record* record = result ? nullptr : find_record(moving.command.checkpoint)) record->trouble = result.error();
  moving_.erase(found);
}

}  // namespace ebb::runtime
