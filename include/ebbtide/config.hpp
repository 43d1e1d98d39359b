#pragma once
// The name that options.hpp had in 0.1.0, which declared these too.
#include "ebbtide/checkpoint.hpp"
#include "ebbtide/options.hpp"
#include "ebbtide/units.hpp"
