#include "store/held_back_maps.hpp"

#include <algorithm>

namespace ebb::store {

bool HeldBackMaps::take(const Locked& locked, std::size_t file, storage::ObjectId object) {
  if (!awaits_pieces(locked, file, object)) return false;
  held_.emplace_back(file, object);
  return true;
}

storage::ObjectId HeldBackMaps::next(const Locked& locked, std::size_t file, bool any) {
  const auto ready = std::ranges::find_if(
      held_, [&](const auto& one) { return one.first == file && (any || !awaits_pieces(locked, file, one.second)); });
  if (ready == held_.end()) return 0;
  const storage::ObjectId found = ready->second;
  held_.erase(ready);
  return found;
}

// Whether pieces of snapshots that the checkpoint may need, as their map, have yet to become durable in that file.
bool HeldBackMaps::awaits_pieces(const Locked& locked, std::size_t file, storage::ObjectId object) {
  const auto checkpoint = objects_.find_pending(locked, object);
  const Record* const map = checkpoint ? catalog_.find(locked, *checkpoint) : nullptr;
  if (map == nullptr) return false;
  bool awaits = false;
  for (const std::string& name :
       catalog_.names(locked, catalog_.name_of(locked, map->history) + std::string(kReservedForSnapshots)))
    catalog_.for_each_written(locked, catalog_.number_of(locked, name), [&](Version, planner::CheckpointRef one) {
      const Record* const piece = catalog_.find(locked, one);
      const bool needed = piece != nullptr && (piece->order < map->order || piece->recovered_in());
      awaits = awaits || (needed && !piece->durable_in(file));
    });
  return awaits;
}

}  // namespace ebb::store
