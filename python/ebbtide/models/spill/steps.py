"""All strategies on one step, or on each step of a trace, as a document (sc22, slides 18 to 20)."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Sequence
from typing import Any

from ebbtide.sim.spills import STRATEGIES, Spill, spill
from ebbtide.sim.topology import Topology

Document = dict[str, Any]

# Of the sizes in data/sc22-sample-trace.csv: what the slides say of the whole trace is set beside these steps.
_PUBLISHED = "5c07b08119e8d5ce"


def step_document(topology: Topology, remainder: Sequence[int], spare: Sequence[int], unit: int) -> Document:
    """Of one step: by strategy, its time, each GPU's, and its transfers."""
    return {
        strategy: _plan_document(spill(topology, remainder, spare, strategy, unit), remainder)
        for strategy in STRATEGIES
    }


def _plan_document(plan: Spill, remainder: Sequence[int]) -> Document:
    return {
        "milliseconds": _ms(plan.seconds),
        "ends": {str(gpu): _ms(end) for gpu, end in enumerate(plan.ends) if remainder[gpu]},
        "transfers": [
            {"from": one.source, "route": one.route, "peer": one.peer, "bytes": one.bytes} for one in plan.transfers
        ],
        "decision_us": round(plan.decision_s * 1e6, 3),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 6)  # the planner counts nanoseconds


def trace_document(topology: Topology, trace: Sequence[Sequence[int]], free: int, unit: int) -> Document:
    """Of each row of a trace, when each GPU holds ``free`` bytes of its checkpoint and spares what it does not need.

    over_flow: by how much a strategy takes longer than the least time, in all and as the mean of the ratios of the steps
    at which any GPU has a remainder.
    """
    milliseconds: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    decisions: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for row in trace:
        remainder, spare = [max(0, size - free) for size in row], [max(0, free - size) for size in row]
        for strategy in STRATEGIES:
            plan = spill(topology, remainder, spare, strategy, unit)
            milliseconds[strategy].append(_ms(plan.seconds))
            decisions[strategy].append(round(plan.decision_s * 1e6, 3))
    least = milliseconds["flow"]
    over = {}
    for strategy in STRATEGIES:
        ratios = [mine / best for mine, best in zip(milliseconds[strategy], least, strict=True) if best > 0]
        over[strategy] = {
            "in_all": sum(milliseconds[strategy]) / sum(least) - 1 if ratios else 0.0,
            "mean_ratio": statistics.fmean(ratios) if ratios else 1.0,
        }
    return {
        "free": free,
        "unit": unit,
        "steps": len(trace),
        "published": hashlib.sha256(repr([list(row) for row in trace]).encode()).hexdigest().startswith(_PUBLISHED),
        "milliseconds": milliseconds,
        "decision_us": decisions,
        "over_flow": over,
    }
