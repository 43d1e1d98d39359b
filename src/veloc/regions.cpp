#include "veloc/regions.hpp"

#include <limits>

#include "veloc/defs.h"

namespace ebb::veloc {

Result<void> Protected::add(int id, Region region, const std::string& group) {
  const std::string which = "region " + std::to_string(id);
  if (!region.write != !region.read)
    return Error{Errc::invalid_argument, which + " has a serializer or a deserializer alone: give both"};
  if (!region.write && !region.data && region.bytes > 0) {
    return Error{Errc::invalid_argument,
                 which + " is a null pointer to " + std::to_string(region.bytes) + " bytes: give the memory's address"};
  }
  if (id == std::numeric_limits<int>::min())
    return Error{Errc::invalid_argument, which + " stands for a file of the program: give another id"};
  groups_[key(group)].insert_or_assign(id, std::move(region));
  return {};
}

Result<void> Protected::remove(int id, const std::string& group) {
  if (groups_[key(group)].erase(id) > 0) return {};
  return Error{Errc::invalid_argument, "region " + std::to_string(id) + " is not protected"};
}

Regions& Protected::of(const std::string& name) {
  const auto own = groups_.find(name);
  return own != groups_.end() && !own->second.empty() ? own->second : groups_[""];
}

bool Selection::has(int id) const { return mode == VELOC_CKPT_ALL || ids.contains(id) == (mode == VELOC_CKPT_SOME); }

Result<void> Selection::check_ids(const std::function<bool(int)>& is_there, const std::string& where) const {
  static_assert(VELOC_CKPT_SOME == VELOC_RECOVER_SOME && VELOC_CKPT_REST == VELOC_RECOVER_REST);
  if (mode != VELOC_CKPT_ALL && mode != VELOC_CKPT_SOME && mode != VELOC_CKPT_REST) {
    return Error{Errc::invalid_argument,
                 "mode " + std::to_string(mode) + " is not valid: give ..._ALL (0), ..._SOME (1) or ..._REST (2)"};
  }
  if (mode == VELOC_CKPT_SOME)
    for (const int id : ids)
      if (!is_there(id)) return Error{Errc::invalid_argument, "region " + std::to_string(id) + " is not " + where};
  return {};
}

}  // namespace ebb::veloc
