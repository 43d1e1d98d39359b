#include "tests/reliability/trial.hpp"
namespace ebb::trials { void run_limits(const TrialOptions&, Report&) {} }
