"""The best pattern of checkpoints for a machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from .first_order import intervals
from .levels import Levels
from .markov import Pattern, efficiencies

_MOST = 1000  # segments in a group, and groups in a pattern
_GOLDEN = (5**0.5 - 1) / 2


def _best_work(machine: Levels, n1: Any, n2: Any) -> tuple[Any, Any]:
    """The best work for each pair, and its efficiency, by golden section: efficiency has one maximum over the work."""
    first = [seconds for seconds in intervals(machine) if np.isfinite(seconds) and seconds > 0]
    low = np.full(n1.shape, min(first) / 1e4)
    for seconds, count in zip(machine.apart, (1, n1, n1 * n2)):
        low = np.maximum(low, seconds / count - machine.write[0])
    low = np.log(low)
    high = np.maximum(np.log(max(first) * 10), low)

    def gain(log_work: Any) -> Any:
        return efficiencies(machine, np.exp(log_work), n1, n2)

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = gain(left), gain(right)
    for _ in range(50):
        smaller = at_left >= at_right  # of two zeros, far too long both, the shorter
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_left, at_right = gain(left), gain(right)
    work = np.exp((low + high) / 2)
    return work, efficiencies(machine, work, n1, n2)


def best(machine: Levels) -> Pattern:
    """The pattern of the highest exact efficiency, with at most 1000 segments in a group and 1000 groups.

    A grid of counts, then the neighbours of the best until none is better. A machine on which nothing fails or costs has
    one segment of infinite work.

    >>> pattern = best(Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6)))
    >>> round(pattern.work, 1), pattern.n1, pattern.n2
    (167.2, 13, 5)
    """
    if not any(rate * cost for rate, cost in zip(machine.failures, machine.write)):
        return Pattern(float("inf"), 1, 1)
    counts = np.unique(np.rint(np.geomspace(1, _MOST, 40)).astype(int))
    n1, n2 = (grid.ravel() for grid in np.meshgrid(counts, counts))
    work, gain = _best_work(machine, n1, n2)
    at = int(gain.argmax())
    found, top = Pattern(float(work[at]), int(n1[at]), int(n2[at])), gain[at]
    steps = np.array([-16, -8, -4, -2, -1, 0, 1, 2, 4, 8, 16])
    while True:
        n1, n2 = (grid.ravel() for grid in np.meshgrid(found.n1 + steps, found.n2 + steps))
        n1, n2 = np.clip(n1, 1, _MOST), np.clip(n2, 1, _MOST)
        work, gain = _best_work(machine, n1, n2)
        at = int(gain.argmax())
        if gain[at] <= top * (1 + 1e-12):
            return found
        found, top = Pattern(float(work[at]), int(n1[at]), int(n2[at])), gain[at]
