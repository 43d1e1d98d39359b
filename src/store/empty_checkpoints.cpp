#include "store/empty_checkpoints.hpp"

#include <ranges>
#include <vector>

#include "store/lifetime.hpp"

namespace ebb::store {

void EmptyCheckpoints::store(Locked& locked, planner::CheckpointRef checkpoint) {
  if (!tiers_.persistent() || !lifetime_.running(locked)) return;
  for (const auto& tier : tiers_)
    if (lifetime_.running(locked)) store(locked, checkpoint, *tier);
}

void EmptyCheckpoints::send(Locked& locked) {
  if (!tiers_.persistent() || setup_.readonly || tiers_.size() < 2) return;
  std::vector<planner::CheckpointRef> empty;
  for (const Record& record : catalog_.records(locked))
    if (record.used && catalog_.live(locked, record) && port_.planner(locked).bytes_of(record.checkpoint) == 0)
      empty.push_back(record.checkpoint);
  for (const planner::CheckpointRef checkpoint : empty) {
    for (const auto& tier : tiers_ | std::views::drop(1)) {
      const Record* const record = catalog_.find(locked, checkpoint);
      if (record != nullptr && !record->durable_in(tier->number())) store(locked, checkpoint, *tier);
    }
  }
}

void EmptyCheckpoints::store_again(Locked& locked, planner::HistoryId history, std::optional<Version> version,
                                   FileTier& tier) {
  std::vector<planner::CheckpointRef> refused;
  for (const Record& record : catalog_.records(locked)) {
    const InFile& there = record.files[tier.number()];
    if (record.used && there.not_durable && record.history == history && (!version || record.version == *version) &&
        there.object.id == 0 && catalog_.live(locked, record) && port_.planner(locked).bytes_of(record.checkpoint) == 0)
      refused.push_back(record.checkpoint);
  }
  for (const planner::CheckpointRef checkpoint : refused) store(locked, checkpoint, tier);
}

void EmptyCheckpoints::store(Locked& locked, planner::CheckpointRef checkpoint, FileTier& tier) {
  const std::size_t file = tier.number();
  Record* const record = catalog_.find(locked, checkpoint);
  if (record == nullptr || !catalog_.live(locked, *record)) return;  // dropped already
  if (!port_.planner(locked).sent_to(checkpoint, tier.index())) return;
  objects_.name(locked, *record, file);
  objects_.set_pending(locked, *record, file);
  const storage::ObjectId object = record->files[file].object.id;
  if (tier.apart() == nullptr) return begin(locked, checkpoint, tier, object);
  lifetime_.begin(locked, 1);
  tier.apart()->post([this, checkpoint, &tier, object] {
    Locked held = port_.lock();
    try {
      if (lifetime_.running(held)) begin(held, checkpoint, tier, object);
    } catch (const std::exception& error) {
      port_.poison(held, error);
    }
    lifetime_.end(held);
  });
}

void EmptyCheckpoints::begin(Locked& locked, planner::CheckpointRef checkpoint, FileTier& tier,
                             storage::ObjectId object) {
  const std::size_t file = tier.number();
  Record* const record = catalog_.find(locked, checkpoint);
  if (record == nullptr || record->files[file].object.id != object) return;
  if (!catalog_.live(locked, *record)) {  // a record now would count as newer than what was written anew meanwhile
    objects_.take_pending(locked, object);
    record->files[file].object = {};
    return;
  }
  auto description = tiers_.describe(locked, catalog_, *record);
  // What an earlier process left may have been asked for by no call yet.
  const auto found = description ? std::nullopt : record->recovered_in();
  const storage::ObjectId described_as = found ? record->files[*found].recovered : 0;
  const std::uint64_t sequence = found ? tiers_.take_sequence(locked) : 0;
  const Result<void> begun = [&]() -> Result<void> {
    const InFlight beginning(locked, lifetime_);
    if (found) {
      const auto read = tiers_[*found]->persistent()->load_description(described_as);
      if (!read) return read.error();
      storage::Description same = **read;
      same.sequence = sequence;
      description = std::make_shared<const storage::Description>(std::move(same));
    }
    return tier.persistent()->begin(object, std::move(description));
  }();
  Record* const now = catalog_.find(locked, checkpoint);
  const bool dropped = now == nullptr || now->files[file].object.id != object;
  if (begun) {
    if (dropped) tier.storage().drop(object);  // when the storage did not know it yet
    return;
  }
  objects_.take_pending(locked, object);
  if (dropped) return;
  InFile& there = now->files[file];
  there.object = {};  // which the storage does not know
  there.durability = InFile::Durability::failed;
  there.not_durable =
      std::make_unique<const Error>(Error{begun.error().code, catalog_.key_text(locked, now->history, now->version) +
                                                                  " could not be written: " + begun.error().message});
  const auto future = now->future.lock();
  if (future && file == 0) future->error = *there.not_durable;
  if (lifetime_.running(locked) && catalog_.live(locked, *now))
    port_.submit(locked, now->history, planner::event::NotDurable{now->version, tier.index()});
  port_.ended().notify_all();
}

}  // namespace ebb::store
