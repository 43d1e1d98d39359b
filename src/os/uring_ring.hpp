#pragma once
#include <memory>

#include "ebbtide/error.hpp"
#include "os/ring.hpp"

namespace ebb::platform {

/// A Ring of the kernel's io_uring with room for `entries` ops. Error unsupported: built without liburing, or refused
/// by the kernel (ENOSYS, EPERM: containers often forbid it); the message says which.
Result<std::unique_ptr<Ring>> open_uring(unsigned entries);

}  // namespace ebb::platform
