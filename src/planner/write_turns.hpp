#pragma once
// Whose bytes are written next, where several processes write one store.
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::planner {

/// Of the parties that have objects to write, the one that was served the fewest bytes comes next; one in a hurry comes
/// before all that are not. A party's objects come in the order in which they were added.
class WriteTurns {
 public:
  using Party = std::uint64_t;
  using Object = std::uint64_t;

  void add(Party party, Object object) { of(party).objects.push_back(object); }
  void remove(Party party, Object object) { std::erase(of(party).objects, object); }
  void serve(Party party, Bytes bytes) { of(party).served += bytes; }
  void hurry(Party party) { of(party).hurries = true; }
  /// Those that have nothing left of what they waited for hurry no longer.
  void end_hurries(const std::function<bool(Party)>& done);
  /// Nothing is known of it any more.
  void forget(Party party);
  std::optional<Object> next() const;

 private:
  struct Turn {
    Party party = 0;
    Bytes served = 0;
    bool hurries = false;
    std::deque<Object> objects;
  };
  Turn& of(Party party);

  std::vector<Turn> turns_;
};

}  // namespace ebb::planner
