#pragma once
// Damage that may be none the next time: a block that the disk could not read.
#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "platform/files.hpp"
#include "storage/kept_storage.hpp"

namespace ebb::storage {

inline constexpr std::string_view kUnreadable = "it cannot be read: ";  // in the sentence, also in an index

inline std::string unreadable() { return std::string(kUnreadable) + platform::describe_errno(EIO); }

inline bool may_come_back(const std::vector<Damage>& damages) {
  return std::ranges::any_of(damages, [](const Damage& one) { return one.what.find(kUnreadable) != std::string::npos; });
}

}  // namespace ebb::storage
