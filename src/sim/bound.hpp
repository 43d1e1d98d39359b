#pragma once
// The least blocked time that any schedule could reach. Derivation and assumptions: docs/design/bound.md.
#include <vector>

#include "sim/program.hpp"

namespace ebb::sim {

// A cut of the chain of tiers: the memory above it, and the path across it.
struct BoundCut {
  double memory = 0;                 // bytes of all tiers above (and of the rings there, to be strict)
  double write = 0, read = 0;        // bytes/s of the links between tiers, down and up; 0: nothing crosses
  bool shared = false;               // writing and reading share the time of one device
  double total = 0;                  // bytes/s of both together; 0: no such limit
  double past_in = 0, past_out = 0;  // bytes/s of the application's own link to and from below; 0: none
  // Of the application's own link and the links between tiers at the same time; 0: they do not share anything.
  double write_with_past = 0, read_with_past = 0;
};

// The machine as the bound sees it.
struct BoundMachine {
  BoundCut files;                    // memory above, files below: the path that ranks share
  std::vector<BoundCut> others;      // of each rank alone: between memory tiers, and between file tiers
  double copy_in = 0, copy_out = 0;  // bytes/s between the application and the fastest cache; 0: copies cost nothing
  bool exclusive = true;             // a checkpoint need not stay after its last restore
};
// From the actual rates of the links. `staging` counts the ring's bytes as memory.
BoundMachine bound_machine(const MachineModel& machine, bool staging = false);

struct Bound {
  // Each call's own bare copy is added to everything else: links pause while a call copies.
  double blocked_s = 0;
  // Links run during copies too: no schedule is below this one.
  double overlapped_s = 0;
  double checkpoint_s = 0,
         restore_s = 0;     // of blocked_s, where it is the sum of windows of one kind; else all in restore_s
  double flush_wait_s = 0;  // the least time of the waits between passes, apart from the blocked time
  double copies_s = 0;      // of blocked_s, the calls' own copies
};

// The bound of one program, a single client on the machine.
Bound bound(const BoundMachine& machine, const Program& program);
// The bound of several ranks, a client each; each rank has its own caches, and all share the path below. With barriers
// in the programs the ranks advance in step: each rank is then blocked for at least the time that all ranks' bytes
// need, but may spend part of it at barriers rather than in calls, so the joint bound holds for the rank that is
// blocked longest.
struct JointBound {
  std::vector<Bound> ranks;  // each as if alone
  double blocked_s = 0;      // the sum over ranks, jointly (>= the sum of each alone)
  double overlapped_s = 0;
  double makespan_s = 0;  // of the whole run, computing included
};
JointBound joint_bound(const BoundMachine& machine, const std::vector<Program>& ranks);

// The closed form of blocked_s for n equal checkpoints, all hints and exclusive caches: 2 n copy, and of each pass the
// most that a cut demands, max(0, D/w - T), D = n * bytes - memory, T = the computing time of one pass (less, where the
// application's own link is worth using).
double closed_form_s(const BoundMachine& machine, std::size_t n, double bytes, double pass_s);

}  // namespace ebb::sim
