"""The least time of any schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ebbtide._models as _models
from ebbtide.sim.machine import Machine
from ebbtide.sim.program import Program, Shot


@dataclass(frozen=True)
class Bound:
    """The least time that any schedule could reach, in seconds, summed over the ranks.

    blocked_s: in calls, each charged with its own bare copy (copies_s) while nothing else moves; overlapped_s: if links
    run during those copies. flush_wait_s: what a wait for flushes between the passes must then take. wall_s: of the whole run.
    """

    blocked_s: float
    overlapped_s: float
    copies_s: float
    flush_wait_s: float
    wall_s: float


def bound(machine: Machine, traces: Shot | Program | Sequence[Shot | Program]) -> Bound:
    """The bound of a trace, or of one trace for each rank (separate caches, shared path below).

    >>> bound(machine, Shot([16 << 20] * 128, interval=0.02)).blocked_s
    """
    ranks = [traces] if isinstance(traces, (Shot, Program)) else traces
    return Bound(**_models.joint_bound(machine._make(), [trace._program(machine) for trace in ranks]))
