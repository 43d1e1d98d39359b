"""Patterns of checkpoints run at random: the check of the exact model, which has no formula in common with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .levels import Levels
from .markov import Pattern, check


class Sampled(NamedTuple):
    """``seconds``: the mean time of a pattern; ``error``: the standard error of that mean."""

    seconds: float
    error: float


def sample(machine: Levels, pattern: Pattern, runs: int = 1000, seed: int = 0) -> Sampled:
    """``runs`` patterns, each from its start to its last checkpoint. The same seed gives the same numbers.

    >>> machine = Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))
    >>> found = sample(machine, Pattern(work=160, n1=20, n2=4))
    >>> 0.83 < 160 * 20 * 4 / found.seconds < 0.85
    True
    """
    check(pattern)
    work, n1, n2 = pattern
    draw = np.random.default_rng(seed)
    rates = np.asarray(machine.failures, float)
    total = rates.sum()
    reads = np.asarray(machine.read, float)
    writes = np.full(n1 * n2, machine.write[0], float)
    writes[n1 - 1 :: n1] = machine.write[1]
    writes[-1] = machine.write[2]
    clock = np.zeros(runs)
    segment = np.zeros(runs, int)
    level = np.zeros(runs, int)  # of the recovery under way; 0: the program runs
    running = np.arange(runs)
    while running.size:
        at, recovering = segment[running], level[running]
        needed = np.where(recovering > 0, reads[recovering - 1], work + writes[at])
        until = draw.exponential(1 / total, running.size) if total else np.full(running.size, np.inf)
        kind = 1 + (draw.random(running.size)[:, None] * total >= rates.cumsum()[:2]).sum(axis=1)
        failed = until < needed
        clock[running] += np.minimum(until, needed)
        restored = np.select([recovering == 3, recovering == 2], [0, at - at % n1], at)
        segment[running] = np.where(failed, at, np.where(recovering > 0, restored, at + 1))
        level[running] = np.where(failed, np.maximum(kind, recovering), 0)
        running = running[segment[running] < n1 * n2]
    return Sampled(float(clock.mean()), float(clock.std(ddof=1) / np.sqrt(runs)))
