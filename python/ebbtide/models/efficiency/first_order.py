"""The efficiency of three levels to first order (Benoit et al. 2017, as ics19 uses it in sec. 5.2)."""

from __future__ import annotations

import math

from .levels import Levels, Three


def overhead(machine: Levels) -> float:
    """Time lost over useful time: the sum over the levels of sqrt(2·λ·C) + λ·C.

    >>> round(overhead(Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))), 4)
    0.1723
    """
    return sum(math.sqrt(2 * rate * cost) + rate * cost for rate, cost in zip(machine.failures, machine.write))


def efficiency(machine: Levels) -> float:
    """Useful time over all time, 0 to 1.

    >>> round(efficiency(Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))), 4)
    0.853
    """
    return 1 / (1 + overhead(machine))


def intervals(machine: Levels) -> Three:
    """Seconds of work between checkpoints of each level, sqrt(2·C/λ); infinite for a level that never fails.

    >>> [round(seconds) for seconds in intervals(Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6)))]
    [179, 2449, 14142]
    """
    pairs = zip(machine.failures, machine.write)
    return tuple(math.sqrt(2 * cost / rate) if rate else math.inf for rate, cost in pairs)  # type: ignore[return-value]
