#pragma once
#include <optional>
#include <span>

#include "ebbtide/error.hpp"
#include "snapshots/protected_memory.hpp"

namespace ebb::snapshots {

/// Whether this can be protected beside the others, by a store on this GPU. Error: invalid_argument, also for memory of
/// another GPU.
Result<void> check_protection(const Protection& made, std::span<const Protection> others, std::optional<int> gpu);

/// Whether all of it is this process's memory.
bool is_mapped(const Protection& one);

}  // namespace ebb::snapshots
