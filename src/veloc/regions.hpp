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

/// What a mode and its list of ids mean.
struct Selection {
  int mode = 0;
  const std::set<int>& ids;
  bool has(int id) const;
  /// Errors: an unknown mode; with SOME, an id that is not among those of `there`.
  template <class Map>
  Result<void> check(const Map& there, const std::string& where) const {
    return check_ids([&](int id) { return there.contains(id); }, where);
  }

 private:
  Result<void> check_ids(const std::function<bool(int)>& is_there, const std::string& where) const;
};

}  // namespace ebb::veloc
