#pragma once
// The whole simulator: machines, programs, runs, the least possible time, where bytes go that GPUs cannot hold, and the
// memory-zone hardware. It needs only the planner; of all internal headers the Python bindings include this one.
#include "planner/flow.hpp"
#include "sim/bound.hpp"
#include "sim/simulation.hpp"
#include "sim/zone_machine.hpp"
