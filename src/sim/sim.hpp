#pragma once
// The whole simulator: machines, programs, runs, the least possible time, and where bytes go that GPUs cannot hold. It
// needs only the planner; it is the only internal header that the Python bindings include.
#include "planner/flow.hpp"
#include "sim/bound.hpp"
#include "sim/simulation.hpp"
