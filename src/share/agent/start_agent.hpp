#pragma once
// Starts the program ebbtide-agent, which outlives the process that starts it.
#include <filesystem>
#include <optional>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::share {

/// The program that is installed with this library: beside the library or the program that contains it, or in the `bin`
/// beside its folder. None: it is not installed.
std::optional<std::filesystem::path> agent_program();
/// Starts it for a job, in a session of its own, with no descriptor and no child to wait for. Returns once it listens.
/// Errors: closed (it was killed before that; another may be started), io_error.
Result<void> start_agent(const std::filesystem::path& program, const std::string& job);

}  // namespace ebb::share
