"""What no plan can beat, also if checkpoints are not counted in whole units."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .jobs import Job

_STEPS = 60
_GOLDEN = (5**0.5 - 1) / 2


def least_unrounded(jobs: Sequence[Job], nodes: int, deadline: float, bandwidth: float) -> float:
    """Node-seconds that every plan loses at least, with checkpoints of any size up to ``bandwidth`` times ``deadline``.

    A price for each node and for each byte, by Lagrange: with any prices the best that each job can do for itself bounds what
    all of them can do together. The highest such bound is looked for; it is one wherever the search ends.

    >>> least_unrounded([Job("a", 2, 100, 50, 900, 10**9)], 2, 60, 10**6)
    100.0
    """
    running = [job for job in jobs if job.remaining > deadline]
    needed = nodes - sum(job.nodes for job in jobs if job.remaining <= deadline)
    if needed <= 0:
        return 0.0
    budget = bandwidth * deadline
    size = np.array([job.nodes for job in running], float)
    loss = np.array([job.unsaved for job in running])
    share = np.array([job.bytes for job in running]) / budget
    fits = share <= 1

    def bound(node: float, byte: float) -> float:  # the price of a byte is for the whole budget
        each = np.minimum(loss, np.where(fits, byte * share, np.inf)) - node * size
        return float(node * needed - byte + np.minimum(0, each).sum())

    def over_bytes(node: float) -> float:
        return _highest(lambda byte: bound(node, byte), float(loss.sum()))

    return max(0.0, _highest(over_bytes, float((loss / size).max())))


def _highest(value: Callable[[float], float], most: float) -> float:
    """Of a concave function from 0 to ``most``, by golden section."""
    low, high = 0.0, most
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    top = max(value(0.0), value(most), at_left, at_right)
    for _ in range(_STEPS):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(right)
        top = max(top, at_left, at_right)
    return top
