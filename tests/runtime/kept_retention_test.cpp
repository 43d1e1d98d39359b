#include "kept_rig.hpp"
