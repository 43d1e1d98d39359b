#include "tests/reliability/trial.hpp"
namespace ebb::trials { void run_faults(const TrialOptions&, Report&) {} }
