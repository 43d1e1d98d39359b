#pragma once
#include <cstdint>
#include <functional>

#include "ebbtide/error.hpp"

namespace ebb::transfer {

/// The caller's name for one transfer (a planner's command id). Unique among those in flight in one engine.
using Token = std::uint64_t;

/// Called exactly once for each transfer, on an engine's own thread, never on the one that submitted. It may submit
/// more; it must not stop or destroy the engine.
using Done = std::function<void(Token, Result<void>)>;

}  // namespace ebb::transfer
