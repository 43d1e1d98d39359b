"""The planner in virtual time: what a machine would do with a trace, before it is run.

The planner is the one of a real store; only time is modelled. Sizes are bytes (or text such as ``"4GiB"``), times are
seconds, rates are bytes per second.

>>> machine = Machine.usual(device_cache="64MiB", host_cache="256MiB", disk="8GiB", file_write=1e9, file_read=2e9)
>>> result = run(machine, Shot([16 << 20] * 128, interval=0.02))
>>> result.blocked_s, result.restores[0].found_on
"""

from ebbtide.sim.bounds import Bound, bound
from ebbtide.sim.machine import Link, Machine, Medium, Provision, Size, Tier
from ebbtide.sim.program import Program, Shot, Trace
from ebbtide.sim.runs import Call, Result, predict, run, run_ranks
from ebbtide.sim.sizing import Estimate, Need, estimate
from ebbtide.sim.spills import Spill, SpillTransfer, spill
from ebbtide.sim.topology import Topology
from ebbtide.sim.zones import WriteRecorder, ZoneHardware, ZonePattern, ZoneProgram, ZoneRun, run_zones, zone_patterns

__all__ = [
    "Bound",
    "Call",
    "Estimate",
    "Link",
    "Machine",
    "Medium",
    "Need",
    "Program",
    "Provision",
    "Result",
    "Shot",
    "Size",
    "Spill",
    "SpillTransfer",
    "Tier",
    "Topology",
    "Trace",
    "WriteRecorder",
    "ZoneHardware",
    "ZonePattern",
    "ZoneProgram",
    "ZoneRun",
    "bound",
    "estimate",
    "predict",
    "run",
    "run_ranks",
    "run_zones",
    "spill",
    "zone_patterns",
]
