#pragma once
#include <filesystem>

#include "os/files.hpp"

namespace ebb::options {

/// Whether files in this directory, or one to be made there, cannot be used with O_DIRECT: refused when a file is
/// opened, written or read, or for blocks of 4096 bytes alone. Tries it on a file without a name; where none can be
/// made, as in a directory that is only read, on a segment of the store. No answer is no refusal.
bool refuses_direct_io(os::Files& files, const std::filesystem::path& directory);

}  // namespace ebb::options
