#pragma once
// Maps of snapshots that are durable in a lower file before the pieces that they need.
#include <utility>
#include <vector>

#include "storage/storage.hpp"
#include "store/objects.hpp"
#include "store/parts.hpp"

namespace ebb::store {

/// Maps whose durability in a file is not yet told. In the fastest file a map is written after its pieces are durable.
///
/// Thread safety: every method takes the port's Locked.
class HeldBackMaps {
 public:
  HeldBackMaps(Catalog& catalog, const Objects& objects) : catalog_(catalog), objects_(objects) {}
  bool empty(const Locked& /*locked*/) const { return held_.empty(); }
  /// Takes an object that is durable in a file, if it is a map of which pieces are not. False: nothing is held back.
  bool take(const Locked& locked, std::size_t file, storage::ObjectId object);
  /// Gives back a map of the file that waits for no piece, or any if a piece could not be written. 0: there is none.
  storage::ObjectId next(const Locked& locked, std::size_t file, bool any);

 private:
  bool awaits_pieces(const Locked& locked, std::size_t file, storage::ObjectId object);

  Catalog& catalog_;
  const Objects& objects_;
  std::vector<std::pair<std::size_t, storage::ObjectId>> held_;  // by the port's mutex
};

}  // namespace ebb::store
