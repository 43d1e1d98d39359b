#pragma once
#include <filesystem>
#include <string>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::os {

/// A whole file as text, also in /proc and /sys. Error io_error naming the path.
Result<std::string> read_text(Files& files, const std::filesystem::path& path);

}  // namespace ebb::os
