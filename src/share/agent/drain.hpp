#pragma once
// Waits until what a pool's processes have handed over is written, or writes it if they have all ended.
#include <chrono>
#include <functional>
#include <string>

#include "ebbtide/node.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

/// As admin::drain(), for any seams.
Result<admin::Drained> drain_pool(const NodeSeams& seams, os::Files& files, os::Clock& clock, const std::string& job,
                                  std::chrono::milliseconds timeout, const std::function<bool()>& go_on);

}  // namespace ebb::share
