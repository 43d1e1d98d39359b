#pragma once
// The memory that a program has protected, by VELOC's ids.
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ebbtide/error.hpp"

namespace ebb::veloc {

using Serializer = std::function<void(std::ostream&)>;
using Deserializer = std::function<bool(std::istream&)>;

struct Region {
  void* data = nullptr;
  std::size_t bytes = 0;
  Serializer write = {};   ///< in place of `data`
  Deserializer read = {};  ///< with it
  void (*release)(void*) = nullptr;
};
using Regions = std::map<int, Region>;

/// Regions of all checkpoints, and those of single names. Thread safety: none.
class Protected {
 public:
  /// `group`: the checkpoints' name; "" and "default": all that have no regions of their own.
  Result<void> add(int id, Region region, const std::string& group);
  Result<void> remove(int id, const std::string& group);
  void clear(const std::string& group) { groups_.erase(key(group)); }
  /// Those of the checkpoints called `name`.
  Regions& of(const std::string& name);

 private:
  static std::string key(const std::string& group) { return group == "default" ? "" : group; }
  std::map<std::string, Regions> groups_;
};

/// The ids among `there` that a mode and its list mean. Errors: an unknown mode; with SOME, an id that is not there.
Result<std::set<int>> selected(int mode, const std::set<int>& ids, const std::set<int>& there,
                               const std::string& where);

template <class Map>
std::set<int> ids_of(const Map& map) {
  std::set<int> ids;
  for (const auto& [id, value] : map) ids.insert(id);
  return ids;
}

}  // namespace ebb::veloc
