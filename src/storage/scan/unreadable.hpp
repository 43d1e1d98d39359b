#pragma once
// Damage that may be gone the next time: a block that the disk could not read.
#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "os/files.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::storage {

inline constexpr std::string_view kUnreadable = "it cannot be read: ";

inline std::string unreadable() { return std::string(kUnreadable) + os::describe_errno(EIO); }

/// For parse_index() alone: an index of format 1 holds damage as sentences, so this is how Damage::unreadable comes
/// back from one. The sentence may begin with "version 7: "; names in other sentences may be anything.
inline bool says_unreadable(std::string_view what) {
  constexpr std::string_view kVersion = "version ";
  if (what.starts_with(kVersion)) {
    const std::size_t behind = what.find_first_not_of("-0123456789", kVersion.size());
    if (behind == what.npos || !what.substr(behind).starts_with(": ")) return false;
    what.remove_prefix(behind + 2);
  }
  return what.starts_with(kUnreadable);
}

inline bool may_come_back(const std::vector<Damage>& damages) {
  return std::ranges::any_of(damages, [](const Damage& one) { return one.unreadable; });
}

}  // namespace ebb::storage
