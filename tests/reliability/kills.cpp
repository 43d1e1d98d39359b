#include "tests/reliability/trial.hpp"
namespace ebb::trials { void run_kills(const TrialOptions&, Report&) {} }
namespace ebb::trials { int run_kills_child(const std::vector<std::string>&) { return 0; } }
