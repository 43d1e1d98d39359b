#pragma once
// The simulator whole: machines, programs, runs, and the least time possible. It brings the planner and nothing else;
// the Python bindings include it alone of all internal headers.
#include "sim/bound.hpp"
#include "sim/simulation.hpp"
