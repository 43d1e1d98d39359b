#pragma once
#include <memory>

#include "ebbtide/error.hpp"
#include "os/ring.hpp"

namespace ebb::os {

/// A Ring over the kernel's io_uring with room for `entries` ops. Error unsupported, with the reason: built without
/// liburing, or refused by the kernel (ENOSYS; EPERM, as in many containers).
Result<std::unique_ptr<Ring>> open_uring(unsigned entries);

}  // namespace ebb::os
