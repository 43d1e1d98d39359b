#pragma once
// Random machines and programs, run to the end with everything checked that a planner owes its callers.
#include <cstdint>
#include <string>

#include "sim/simulation.hpp"

namespace ebb::sim::testing {

struct RandomCase {
  MachineModel machine;
  std::vector<Program> programs;  // of each rank
  int ranks = 1;
  Options options;
  bool timely = false;   // actual rates equal the planner's estimates, and nothing fails: time limits hold
  bool faulty = false;   // something may fail
  bool shrinks = false;  // memory may turn out to end early
  bool lent = false;     // memory is lent, recalled and lost
  bool levels = false;   // several files keep
  bool ordered = false;  // some calls are made in stream order
};

/// `peers`: with a tier between the device and the host whose memory is lent, none at first, and copied to and from at
/// the pace that some of its lenders set.
RandomCase random_case(std::uint64_t seed, bool peers = false);
/// Some checkpoints and reservations of it become replicas in memory of the program, of which the fastest tier takes
/// some.
void adopt_some(RandomCase& c, std::uint64_t seed);
/// Checkpoints smaller than a granule share granules in memory, and most are so small.
void share_granules(RandomCase& c, std::uint64_t seed);
/// Has peers: most of what leaves the device goes in parts to the peers and to the host.
void split_often(RandomCase& c, std::uint64_t seed);
/// Has levels: the fastest file would keep more versions than the lowest, and most are multiples that stay.
void keep_more_above(RandomCase& c, std::uint64_t seed);
std::string describe(const RandomCase& c);

struct Outcome {
  std::uint64_t events = 0, calls = 0, refused = 0;
  std::uint64_t relayed = 0;  // chunks
  std::uint64_t split = 0;    // flushes
  std::uint64_t paced = 0;    // copies to and from memory whose lender limits them
  double worst = 0;           // of the times that calls took, in units of what they may take
};

// Runs it with Planner::check() after every event and bytes followed. Throws std::logic_error on the first broken
// promise.
Outcome run_checked(const RandomCase& c, bool trace = false);

}  // namespace ebb::sim::testing
