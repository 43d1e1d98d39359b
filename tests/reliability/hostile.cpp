#include "tests/reliability/trial.hpp"
namespace ebb::trials { void run_hostile(const TrialOptions&, Report&) {} }
