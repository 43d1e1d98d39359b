#pragma once
// All models: where bytes go that GPUs cannot hold, and the memory-zone hardware. The Python bindings include this
// header.
#include "models/flow.hpp"
#include "models/zone_machine.hpp"
