#pragma once
#include <array>
#include <cstddef>

#include "os/files.hpp"

namespace ebb::os {

/// The id of the running system, from /proc: another one after each start. Zeros: unknown.
std::array<std::byte, 16> boot_id(Files& files);

}  // namespace ebb::os
