"""The exact efficiency of a pattern of checkpoints on three levels.

A pattern is n2 groups of n1 segments of W seconds of work. Each segment ends with one checkpoint: of level 3 at the end of
the pattern, of level 2 at the end of another group, else of level 1. Failures of level l come at random (Poisson), also
during checkpoints and recoveries. One of level l restores the newest checkpoint of level l or higher, which takes R_l; a
failure during a recovery restarts it at the higher of the two levels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ebbtide.errors import InvalidArgument

from .levels import Levels


class Pattern(NamedTuple):
    """``work``: seconds of a segment; ``n1``: segments in a group; ``n2``: groups in a pattern."""

    work: float
    n1: int
    n2: int


def _after_failure(machine: Levels) -> tuple[float, np.ndarray]:
    """Of a failure: the mean time until a recovery has succeeded, and how likely each level is the one restored from."""
    rates = np.asarray(machine.failures, float)
    total = rates.sum()
    spent, ends = np.zeros(3), np.zeros((3, 3))
    for level in (2, 1, 0):
        fails = -np.expm1(-total * machine.read[level])  # type: ignore[index]
        higher = rates[level + 1 :] / total
        succeeds = np.exp(-total * machine.read[level])  # type: ignore[index]
        leaves = succeeds + fails * higher.sum()  # success, or a failure of a higher level
        spent[level] = (fails / total + fails * higher @ spent[level + 1 :]) / leaves
        ends[level] = fails * higher @ ends[level + 1 :]
        ends[level, level] += succeeds
        ends[level] /= leaves
    chance = rates / total
    return float(chance @ spent), chance @ ends


def _grown(start: Any, factor: Any, added: Any, times: Any) -> Any:
    """x after ``times`` steps of x := x + factor·x + added."""
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = np.expm1(times * np.log1p(factor))
        return np.where(factor > 0, start * (1 + growth) + added * growth / factor, start + added * times)


def pattern_seconds(machine: Levels, work: Any, n1: Any, n2: Any) -> Any:
    """The mean time that a pattern takes, in seconds. Numbers or arrays of NumPy.

    The time X of a segment depends on what a failure repeats: X = a + b2·D + b3·(D + B), with D the time of the segments
    before it in its group and B that of the groups before. Both sums are geometric, so that no system is solved.
    """
    work, n1, n2 = np.asarray(work, float), np.asarray(n1, float), np.asarray(n2, float)
    total = sum(machine.failures)
    if not total:
        c1, c2, c3 = machine.write
        return n1 * n2 * (work + c1) + n2 * (c2 - c1) + (c3 - c2)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what never ends takes infinitely long
        recovery, restored = _after_failure(machine)
        failed = [np.expm1(total * (work + cost)) for cost in machine.write]  # chance to fail, over that to succeed
        alone = [ratio * (1 / total + recovery) for ratio in failed]

        def group(before: Any, last: int) -> Any:
            """The time of a group that ends with a checkpoint of this level, after the groups before."""
            b2, b3 = (failed[0] * restored[level] for level in (1, 2))
            inner = _grown(0.0, b2 + b3, alone[0] + b3 * before, n1 - 1)
            e2, e3 = (failed[last] * restored[level] for level in (1, 2))
            return inner + alone[last] + e2 * inner + e3 * (inner + before)

        fixed = group(0.0, 1)
        slope = group(1.0, 1) - fixed  # a group's time is linear in the time of those before
        before = _grown(0.0, slope, fixed, n2 - 1)
        return before + group(before, 2)


def efficiencies(machine: Levels, work: Any, n1: Any, n2: Any) -> Any:
    """``efficiency`` of many patterns: numbers or arrays of NumPy, which are not checked."""
    with np.errstate(invalid="ignore"):
        useful = np.asarray(work, float) * n1 * n2
        found = useful / pattern_seconds(machine, work, n1, n2)
    return np.where(np.isfinite(found), found, 0.0)


def efficiency(machine: Levels, pattern: Pattern) -> float:
    """Useful time over all time, 0 to 1. Raises InvalidArgument if the pattern is not one.

    >>> machine = Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))
    >>> round(efficiency(machine, Pattern(work=160, n1=20, n2=4)), 4)
    0.839
    """
    check(pattern)
    return float(efficiencies(machine, *pattern))


def check(pattern: Pattern) -> None:
    """Raises InvalidArgument, naming the field, if the pattern is not one."""
    if not 0 < pattern.work < float("inf"):
        raise InvalidArgument(f"work: {pattern.work!r} is not a number of seconds above 0")
    for name in ("n1", "n2"):
        count = getattr(pattern, name)
        if count != int(count) or count < 1:
            raise InvalidArgument(f"{name}: {count!r} is not a whole number of at least 1")
