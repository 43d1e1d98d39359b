#pragma once
// The least blocked time that any schedule could reach. Derivation and assumptions: docs/design/bound.md.
#include <vector>

#include "sim/program.hpp"

namespace ebb::sim {

// What the bound knows of a machine: the caches as one memory, and the path between them and everything below.
struct BoundMachine {
  double memory = 0;                 // bytes of all memory tiers (and of the ring, for whoever wants to be strict)
  double write = 0, read = 0;        // bytes/s from memory to below and back; 0: there is nothing below
  bool shared = false;               // writing and reading share the time of one device
  double total = 0;                  // bytes/s of both together; 0: no such limit
  double copy_in = 0, copy_out = 0;  // bytes/s between the application and the fastest cache; 0: copies cost nothing
  bool exclusive = true;             // what was restored for the last time need not be kept
};
// From the rates that the links really have. `staging` counts the ring's bytes as memory.
BoundMachine bound_machine(const MachineModel& machine, bool staging = false);

struct Bound {
  // Each call's own bare copy is charged beside everything else: links stand still while a call copies.
  double blocked_s = 0;
  // Links run during copies too: no schedule is below this one.
  double overlapped_s = 0;
  double checkpoint_s = 0,
         restore_s = 0;     // of blocked_s, where it is the sum of windows of one kind; else all in restore_s
  double flush_wait_s = 0;  // what the waits between passes must then take at least, apart from the blocked time
  double copies_s = 0;      // of blocked_s, the calls' own copies
};

// Of one program (one client that has the machine for itself).
Bound bound(const BoundMachine& machine, const Program& program);
// Of one client a rank; every rank has caches of its own, and the path below is one for all. With barriers in the
// programs the ranks go in step: then each rank stands at least as long as all ranks' bytes need, but a part of it may
// be spent waiting for the others rather than in calls, so that the joint bound holds for the rank that stands longest.
struct JointBound {
  std::vector<Bound> ranks;  // each as if alone
  double blocked_s = 0;      // the sum over ranks, jointly (>= the sum of each alone)
  double overlapped_s = 0;
  double makespan_s = 0;  // of the whole run, computing included
};
JointBound joint_bound(const BoundMachine& machine, const std::vector<Program>& ranks);

// The closed form for n equal checkpoints, all hints and exclusive caches:
// 2 n copy + max(0, D/w - T) + max(0, D/r - T), D = n * bytes - memory, T = the computing time of one pass.
double closed_form_s(const BoundMachine& machine, std::size_t n, double bytes, double pass_s);

}  // namespace ebb::sim
