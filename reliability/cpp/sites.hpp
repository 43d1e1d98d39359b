#pragma once
// The syncs that a recorded run made, by what each is for, and the same run without one of them, or in another order.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/doubles/power_loss.hpp"

namespace ebb::trials {

using doubles::Journal;

/// The numbers of the journal's syncs by their names; "unknown" for one that has none.
std::map<std::string, std::vector<std::size_t>> sites_of(const Journal& journal);

/// Entries of a journal: those behind `after`, up to `to`.
struct Part {
  std::size_t after = 0, to = 0;
};

/// A mistake that code could make.
struct Mistake {
  const char* name;
  /// The journal as that code would have made it; nothing if it did the same. `opening`: of a process that came after
  /// one that was killed, its opening.
  std::optional<Journal> (*make)(const Journal& right, const char* name, const Part& opening);
  /// Of which run it is one: of a process that ends well, of one that comes after one that was killed, or of one a sync
  /// of which failed.
  enum class Of : std::uint8_t { well, killed, failing } of = Of::well;
};
/// Each sync left out, and each order between writes turned round.
const std::vector<Mistake>& mistakes();
/// One of the mistakes leaves these syncs out.
bool is_known_site(std::string_view site);

}  // namespace ebb::trials
