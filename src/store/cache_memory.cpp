#include "store/cache_memory.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/lifetime.hpp"
#include "store/request.hpp"

namespace ebb::store {

Result<void> CacheMemory::create(const options::Seams& seams, const options::EngineSetup& setup, Tiers::Changed changed,
                                 const std::shared_ptr<trace::ProvisionLog>& log) {
  auto tiers = Tiers::create(seams, setup, std::move(changed), log);
  if (!tiers) return tiers.error();
  tiers_ = std::move(*tiers);
  for (const planner::TierSpec& tier : setup.machine.tiers) {
    segments_.emplace_back();
    if (tier.medium != planner::Medium::file) segments_.back().push_back({.usable = tier.capacity});
  }
  return {};
}

void CacheMemory::stop() {
  if (tiers_) tiers_->stop();
}

void CacheMemory::free(const Locked& locked) {
  for (auto& [key, owner] : adopted_) port_.let_go(locked, std::move(owner));
  adopted_.clear();
  if (tiers_) tiers_->keep_what_is_lent();
  tiers_.reset();
}

void CacheMemory::submit_limits(const Locked& locked) {
  for (std::size_t t = 0; t < segments_.size(); ++t) {
    for (std::size_t s = 0; s < segments_[t].size(); ++s) {
      const auto tier = static_cast<planner::TierIndex>(t);
      const auto segment = static_cast<planner::SegmentId>(s);
      if (segments_[t][s].lost) continue;
      static_cast<void>(recall(locked, tier, segment, tiers_->limit(tier, segment), planner::kNever));
    }
  }
}

// --- lenders -------------------------------------------------------------------------------------------------------

CacheMemory::SegmentUse* CacheMemory::segment_of(const Locked& locked, planner::TierIndex tier,
                                                 planner::SegmentId segment) {
  if (!lifetime_.running(locked) || tier < 0) return nullptr;
  auto& segments = segments_.at(static_cast<std::size_t>(tier));
  return segment < segments.size() && !segments[segment].lost ? &segments[segment] : nullptr;
}

Result<planner::SegmentId> CacheMemory::lend(const Locked& locked, planner::TierIndex tier,
                                             std::unique_ptr<cache::TierMemory> memory, const LentBy& lender) {
  if (!lifetime_.running(locked)) return lifetime_.closed_error();
  if (tier < 0 || static_cast<std::size_t>(tier) >= segments_.size() || !port_.in_memory(tier)) {
    return Error{Errc::invalid_argument,
                 "tier " + std::to_string(tier) + " is not one in memory: nothing can be lent to it"};
  }
  auto& segments = segments_[static_cast<std::size_t>(tier)];
  const planner::TierSpec& spec = port_.machine().tiers[static_cast<std::size_t>(tier)];
  const std::uint64_t bytes = memory->ready();
  const std::uint64_t extent = (bytes + spec.granule - 1) / spec.granule * spec.granule;
  if (!tiers_->add(tier, std::move(memory), extent)) {
    return Error{Errc::invalid_argument, "the " + spec.name + " cache has " +
                                             std::to_string(cache::MemorySegments::kMost) +
                                             " segments already, and cannot have more"};
  }
  const auto segment = static_cast<planner::SegmentId>(segments.size());
  segments.push_back({.usable = bytes, .owner = lender.owner});
  expect_recalls(locked, tier);
  port_.submit(locked, 0, planner::event::Lend{tier, segment, bytes, lender.party, lender.owner != nullptr});
  return segment;
}

// What other GPUs lent comes to the host cache when they want it back, and then there is no time to pin that first.
void CacheMemory::expect_recalls(const Locked& /*locked*/, planner::TierIndex tier) {
  const auto& tiers = port_.machine().tiers;
  const auto host = std::ranges::find(tiers, planner::Medium::host, &planner::TierSpec::medium);
  const planner::TierSpec& spec = tiers[static_cast<std::size_t>(tier)];
  if (spec.medium != planner::Medium::device || spec.capacity > 0 || host == tiers.end() || host->capacity == 0) return;
  std::uint64_t lent = 0;
  for (const SegmentUse& segment : segments_[static_cast<std::size_t>(tier)]) lent += segment.lost ? 0 : segment.usable;
  tiers_->expect(static_cast<planner::TierIndex>(host - tiers.begin()), lent);
}

bool CacheMemory::extend(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
                         const LentBy& lender) {
  SegmentUse* const found = segment_of(locked, tier, segment);
  if (found == nullptr || bytes < found->usable || bytes > tiers_->limit(tier, segment)) return false;
  found->usable = bytes;
  found->owner = lender.owner;
  expect_recalls(locked, tier);
  port_.submit(locked, 0, planner::event::Lend{tier, segment, bytes, lender.party, lender.owner != nullptr});
  return true;
}

device::Device* CacheMemory::owner(const Locked& /*locked*/, const planner::Place& place) const {
  if (place.at.kind != planner::Endpoint::tier || !port_.in_memory(place.at.index) || Tiers::adopted(place))
    return nullptr;
  return segments_[static_cast<std::size_t>(place.at.index)][tiers_->segment_of(place)].owner;
}

bool CacheMemory::recall(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
                         planner::Time deadline) {
  SegmentUse* const found = segment_of(locked, tier, segment);
  if (found == nullptr || bytes >= found->usable) return false;
  found->usable = bytes;
  found->returned = false;
  expect_recalls(locked, tier);
  port_.submit(locked, 0, planner::event::Recall{tier, segment, bytes, deadline});
  return true;
}

void CacheMemory::take_returned(const Locked& locked, const planner::Returned& returned) {
  SegmentUse* const found = segment_of(locked, returned.tier, returned.segment);
  if (found == nullptr) return;
  found->returned = true;
  returned_.notify_all();
}

bool CacheMemory::await_returned(Locked& locked, planner::TierIndex tier, planner::SegmentId segment,
                                 std::chrono::nanoseconds timeout) {
  const auto over = [&] {
    const SegmentUse* const found = segment_of(locked, tier, segment);
    return found == nullptr || found->returned;
  };
  locked.wake_pump();
  EBB_WAIT(memory_returned, returned_.wait_for(locked.native(), timeout, over));
  const SegmentUse* const found = segment_of(locked, tier, segment);
  return found != nullptr && found->returned;
}

void CacheMemory::lose(const Locked& locked, planner::TierIndex tier, planner::SegmentId segment) {
  SegmentUse* const found = segment_of(locked, tier, segment);
  if (found == nullptr) return;
  found->lost = true;
  expect_recalls(locked, tier);
  tiers_->lose(tier, segment);
  port_.submit(locked, 0, planner::event::Lost{tier, segment});
  returned_.notify_all();
}

bool CacheMemory::usable(const planner::Command& command) const {
  return tiers_->use_of(command.to, command.length) != Tiers::Usable::later;
}

bool CacheMemory::never(const planner::Command& command) const {
  return tiers_->use_of(command.to, command.length) == Tiers::Usable::never ||
         tiers_->use_of(command.from, command.length) == Tiers::Usable::never;
}

Error CacheMemory::no_memory_error(const planner::Command& command) const {
  const bool written = tiers_->use_of(command.to, command.length) == Tiers::Usable::never;
  const auto tier = static_cast<std::size_t>((written ? command.to : command.from).at.index);
  return {Errc::no_space, "the " + port_.machine().tiers.at(tier).name + " cache has less memory than was asked for"};
}

Result<void> CacheMemory::await(Locked& locked, CallRow& request, const Interrupt& interrupted) {
  const auto use = [&] { return tiers_->use_of(request.answer.place, request.bytes); };
  bool stop = false;
  const auto over = [&] { return !lifetime_.running(locked) || stop || use() != Tiers::Usable::later; };
  tiers_->want(request.answer.place, request.bytes);
  while (!over()) {
    locked.wake_pump();
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
  const Tiers::Usable there = use();
  if (there == Tiers::Usable::now) return {};
  const std::string key = catalog_.key_text(locked, request.history, request.version);
  if (there == Tiers::Usable::never)
    return Error{Errc::no_space, key + ": the device cache has less memory than was asked for"};
  return Error{Errc::timed_out, "the call was interrupted before the device cache had the memory for " + key};
}

void CacheMemory::want(const planner::Command& command) {
  // With its first chunk comes the rest of the replica.
  const bool to_tier = command.to.at.kind == planner::Endpoint::tier && command.to.offset >= command.offset;
  if (to_tier) tiers_->want({command.to.at, command.to.offset - command.offset}, command.total);
  if (command.to.at.kind == planner::Endpoint::ring) tiers_->want(command.to, command.length);
}

void CacheMemory::discard(const Locked& locked, const planner::Freed& freed) {
  const planner::Place place{{planner::Endpoint::tier, freed.tier}, freed.offset};
  Record* const record = catalog_.find(locked, freed.checkpoint);
  if (record != nullptr && record->check && tiers_->at(place) == record->check->data) record->check.reset();
  if (Tiers::adopted(place)) {
    if (auto owner = adopted_.extract(key_of(freed.checkpoint))) port_.let_go(locked, std::move(owner.mapped()));
    return;
  }
  tiers_->discard(place, freed.length);
}

std::shared_ptr<const void> CacheMemory::owner_of_adopted(const Locked& /*locked*/,
                                                          planner::CheckpointRef checkpoint) const {
  const auto found = adopted_.find(key_of(checkpoint));
  return found == adopted_.end() ? nullptr : found->second;
}

}  // namespace ebb::store
