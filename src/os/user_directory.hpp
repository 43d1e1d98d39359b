#pragma once
// Directories that belong to this user.
#include <filesystem>
#include <sys/stat.h>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"

namespace ebb::os {

/// The access of others that makes a directory unusable.
inline constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH, kOthersAccess = S_IRWXG | S_IRWXO;

/// Opens a directory of this user, never through a link; creates it with mode 0700 if its parent exists. The error says
/// what is wrong with it, without its name: not_permitted (another user's; access that `refused` names), io_error.
Result<OwnDescriptor> open_user_directory(const std::filesystem::path& directory, mode_t refused);

}  // namespace ebb::os
