#include "store/objects.hpp"

#include <utility>

namespace ebb::store {

bool Objects::name(const Locked& /*locked*/, Record& record, std::size_t file) {
  FileObject& object = record.files[file].object;
  if (object.id != 0) return false;
  object.id = next_++;
  return true;
}

void Objects::set_pending(const Locked& /*locked*/, Record& record, std::size_t file) {
  InFile& there = record.files[file];
  there.durability = InFile::Durability::pending;  // also after an attempt that failed
  pending_.emplace(there.object.id, Pending{record.checkpoint, file});
}

std::optional<planner::CheckpointRef> Objects::find_pending(const Locked& /*locked*/, storage::ObjectId object) const {
  const auto found = pending_.find(object);
  return found == pending_.end() ? std::nullopt : std::optional(found->second.checkpoint);
}

std::optional<planner::CheckpointRef> Objects::take_pending(const Locked& locked, storage::ObjectId object) {
  const auto checkpoint = find_pending(locked, object);
  pending_.erase(object);
  return checkpoint;
}

std::vector<planner::CheckpointRef> Objects::pending(const Locked& locked, planner::HistoryId history,
                                                     std::optional<Version> only, std::size_t file) {
  std::vector<planner::CheckpointRef> found;
  for (const auto& [object, pending] : pending_) {
    const Record* const record = pending.file == file ? catalog_.find(locked, pending.checkpoint) : nullptr;
    if (record != nullptr && record->history == history && (!only || record->version == *only)) {
      found.push_back(pending.checkpoint);
    }
  }
  return found;
}

void Objects::set_tried_again(const Locked& locked, planner::HistoryId history, std::optional<Version> only) {
  for (const planner::CheckpointRef checkpoint : pending(locked, history, only, 0))
    if (InFile& file = catalog_.find(locked, checkpoint)->files[0]; file.listed)
      file.durability = InFile::Durability::pending;
}

void Objects::set_listed(const Locked& locked, storage::ObjectId object, bool listed) {
  const auto pending = pending_.find(object);
  Record* const record = pending == pending_.end() ? nullptr : catalog_.find(locked, pending->second.checkpoint);
  if (record == nullptr || record->files[pending->second.file].object.id != object) return;
  record->files[pending->second.file].listed = listed;
  if (const auto future = record->future.lock()) future->listed = listed;
}

std::optional<Error> Objects::not_durable(const Locked& locked, planner::HistoryId history, std::optional<Version> only,
                                          std::size_t file, bool or_listed,
                                          const std::function<bool(const Record&)>& among) {
  const auto failed = [&](const Record& record) {
    const InFile& there = record.files[file];
    return there.not_durable && !(or_listed && there.listed) && !record.durable_in(file) && (!among || among(record));
  };
  if (only) {
    const Record* const record = catalog_.find(locked, history, *only);
    return record != nullptr && failed(*record) ? std::optional(*record->files[file].not_durable) : std::nullopt;
  }
  for (const Record& record : catalog_.records(locked))
    if (record.used && record.history == history && failed(record) && catalog_.live(locked, record))
      return *record.files[file].not_durable;
  return {};
}

FileObject Objects::take(const Locked& locked, planner::CheckpointRef checkpoint, std::size_t file) {
  Record* const record = catalog_.find(locked, checkpoint);
  if (record == nullptr) return {};
  InFile& there = record->files[file];
  pending_.erase(there.object.id);
  there.listed = false;
  if (record->durable_in(file + 1)) there.recovered = 0;  // it is read there from now on
  return std::exchange(there.object, {});
}

}  // namespace ebb::store
