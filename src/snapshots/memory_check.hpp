#pragma once
#include <optional>
#include <span>

#include "ebbtide/error.hpp"
#include "snapshots/protected_memory.hpp"

namespace ebb::snapshots {

/// Whether a store on this GPU can protect this memory beside what it protects already. Error: invalid_argument, also
/// for memory of another GPU.
Result<void> check_protections(std::span<const Protection> made, std::span<const Protection> others,
                               std::optional<int> gpu);

/// Whether all of the memory is mapped in this process.
bool is_mapped(const Protection& one);

}  // namespace ebb::snapshots
