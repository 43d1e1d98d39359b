#pragma once
#include <span>

#include "ebbtide/error.hpp"
#include "snapshots/protected_memory.hpp"

namespace ebb::snapshots {

/// Whether this can be protected beside the others. Errors: invalid_argument, unsupported (with a GPU: memory that this
/// process has not mapped may be the GPU's).
Result<void> check_protection(const Protection& made, std::span<const Protection> others, bool gpu);

/// Whether all of it is this process's memory.
bool is_mapped(const Protection& one);

}  // namespace ebb::snapshots
