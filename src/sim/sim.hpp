#pragma once
// The whole simulator: machines, programs, runs and the least possible time. The Python bindings include this header.
#include "sim/bound.hpp"
#include "sim/simulation.hpp"
