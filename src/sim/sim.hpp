#pragma once
// The whole simulator: machines, programs, runs, and the least possible time. It needs only the planner; it is the only
// internal header that the Python bindings include.
#include "sim/bound.hpp"
#include "sim/simulation.hpp"
