#pragma once
// The syncs that a recorded run made, by what each is for, and the same run without one of them, or in another order.
#include <map>
#include <string>
#include <vector>

#include "platform/testing/power_loss.hpp"

namespace ebb::trials {

using platform::testing::Journal;

/// The numbers of the journal's syncs by their names; "unknown" for one that has none.
std::map<std::string, std::vector<std::size_t>> sites_of(const Journal& journal);

/// A mistake that code could make.
struct Mistake {
  const char* name;
  /// The journal as that code would have made it. Throws std::runtime_error if there is nothing to do otherwise in it.
  Journal (*make)(const Journal& right, const char* name);
};
/// Each sync left out, and each order between writes turned round.
const std::vector<Mistake>& mistakes();

}  // namespace ebb::trials
