#pragma once
// Pools whose processes have all ended: what they hold goes to their own stores, and they are removed.
#include <string>

#include "share/node_storage.hpp"

namespace ebb::share {

/// True: all processes of this pool had ended, and it is finished and removed. False: there is no such pool, or an
/// agent or a process of it is alive, in whichever PID namespace. After an error the pool is as it was, except for what
/// is in the store by then. The caller holds the queue of the node's processes. Errors: those of PoolFile::open(), and
/// of its store.
Result<bool> finish_if_dead(const NodeSeams& seams, os::Files& files, os::Clock& clock, const std::string& name);

}  // namespace ebb::share
