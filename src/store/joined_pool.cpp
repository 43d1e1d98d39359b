#include "store/joined_pool.hpp"

#include "store/lifetime.hpp"

namespace ebb::store {

void JoinedPool::join(std::unique_ptr<share::NodeMemory> memory) {
  own_ = std::move(memory);
  use(*own_);
}

void JoinedPool::join(share::NodeStorage& storage) {
  storage_ = &storage;
  use(storage.memory());
}

void JoinedPool::use(share::NodeMemory& memory) {
  memory_ = &memory;
  setup_.pool->memory = memory.cache_memory();
  setup_.pool->claim = [&memory](std::uint64_t end) { return memory.claim(end); };
}

void JoinedPool::leave(const Locked& /*locked*/) {
  if (storage_ != nullptr) storage_->leave();
}

void JoinedPool::stop(const Locked& /*locked*/) {
  if (memory_ == nullptr) return;
  last_counters_ = counters();
  memory_ = nullptr;
}

Interrupt JoinedPool::limited(Seconds timeout, Interrupt interrupted) const {
  if (memory_ == nullptr || nanoseconds(timeout) == 0) return interrupted;
  return [this, until = later(port_.now(), timeout), interrupted = std::move(interrupted)] {
    return (interrupted && interrupted()) || (port_.now() >= until && memory_->stopped_agent());
  };
}

Error JoinedPool::with_agent(Error error) const {
  if (error.code != Errc::timed_out || memory_ == nullptr) return error;
  if (const auto stopped = memory_->stopped_agent()) error.message += "; " + *stopped;
  return error;
}

std::optional<share::NodeCounters> JoinedPool::counters() const {
  if (memory_ == nullptr) return {};
  return storage_ != nullptr ? storage_->counters() : memory_->counters();
}

std::optional<NodeStats> JoinedPool::stats(const Locked& /*locked*/) const {
  const auto found = memory_ != nullptr ? counters() : last_counters_;
  if (!found) return {};
  const share::NodeCounters& now = *found;
  const auto seconds = [](planner::Time from, planner::Time to) {
    return to > from ? static_cast<double>(to - from) * 1e-9 : 0.0;
  };
  return NodeStats{.bytes_handed_over = now.bytes_handed_over,
                   .bytes_written = now.bytes_written,
                   .checkpoints_handed_over = now.objects_handed_over,
                   .checkpoints_written = now.objects_written,
                   .agents = now.agents,
                   .agent_program = now.program,
                   .bytes_borrowed = now.bytes_borrowed,
                   .bytes_beside = now.bytes_beside,
                   .last_blocked_s = seconds(burst_.begun, burst_.returned),
                   .last_durable_s = seconds(burst_.begun, burst_.durable),
                   .last_drain_s = seconds(burst_.returned, burst_.durable)};
}

void JoinedPool::note_checkpoint(const Locked& locked, planner::Time begun) {
  if (storage_ == nullptr) return;
  if (!burst_.open) {  // the checkpoint may be durable before its call returns
    const bool durable = burst_.durable >= begun;
    burst_ = {
        .begun = begun, .durable = durable ? burst_.durable : 0, .open = !durable || objects_.any_pending(locked)};
  }
  burst_.returned = port_.now();
}

void JoinedPool::note_durable(const Locked& locked) {
  if (storage_ == nullptr) return;
  burst_.durable = port_.now();
  burst_.open = burst_.open && objects_.any_pending(locked);
}

void JoinedPool::withdraw_dropped(const Locked& locked, planner::HistoryId history, std::optional<Version> version) {
  if (storage_ == nullptr) return;
  for (const planner::CheckpointRef checkpoint : objects_.pending(locked, history, version, 0)) {
    const Record* const record = catalog_.find(locked, checkpoint);
    if (!catalog_.live(locked, *record)) storage_->withdraw(record->files[0].object.id);
  }
}

}  // namespace ebb::store
