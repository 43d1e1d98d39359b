#pragma once
// What Track::automatic is on a machine.
#include <span>

#include "ebbtide/snapshot.hpp"
#include "os/write_watch.hpp"

namespace ebb::os {

/// faults, scan or digest.
Track automatic_track(std::span<const WatchAbility> abilities);

}  // namespace ebb::os
