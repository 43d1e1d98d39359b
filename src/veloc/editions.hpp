#pragma once
// A version that a program writes again is another version of the store: an edition (kVelocEdition). The older ones
// stay until the new one is durable on every rank.
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "ebbtide/editions.hpp"
#include "ebbtide/group.hpp"

namespace ebb::veloc {

constexpr Version edition_of(Version stored) { return stored / kVelocEdition; }
constexpr int number_of(Version stored) { return static_cast<int>(stored % kVelocEdition); }
constexpr Version stored_as(Version edition, int number) { return edition * kVelocEdition + number; }

/// The newest here, not above `bound`, of those that `counts` says. It is intact; from `ours` on nothing is read to see
/// that. Errors: as History::latest.
Result<std::optional<Version>> newest(History& history, const std::function<bool(Version)>& counts,
                                      Version bound = std::numeric_limits<Version>::max(),
                                      Version ours = std::numeric_limits<Version>::max());

/// Of ascending versions, those in whose place the program has written others: of an older edition, at or above the
/// number of one of a newer edition.
std::vector<Version> replaced(const std::vector<Version>& stored);

/// Which edition this rank has of each version of a name. Thread safety: none.
class Editions {
 public:
  /// The newest, or what it would be in the first edition.
  Result<Version> newest_of(History& history, int number);
  void written(Version stored) {
    if (edition_of(stored) > 0) newer_[number_of(stored)] = stored;
  }
  /// A version was given up: what is here is asked for anew.
  void forget() { read_ = false; }

 private:
  bool read_ = false;
  std::map<int, Version> newer_;  // of those above the first edition
};

}  // namespace ebb::veloc
