#!/usr/bin/env python3
"""What a checkpoint or restore call that hits the device cache costs beside its copy, from Python.

Each call is paired with a bare NumPy copy of the same bytes, in the same loop. Where there are tiers below, the program
computes (sleeps) before each pair, as long as it takes to flush what it wrote.
"""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial

import ebbtide
import harness
import numpy as np

VERSIONS = 64


class Pairs:
    """Seconds of calls less those of bare copies.

    The two take turns in coming first, where the processor's caches are still cold: the mean of both turns' medians has
    nothing of that left.
    """

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._of_turn: tuple[list[float], list[float]] = ([], [])

    def add(self, turn: int, call, to: np.ndarray, source: np.ndarray) -> None:
        if self._pause:
            time.sleep(self._pause)
        actions = [call, partial(np.copyto, to, source)]
        times = [0.0, 0.0]
        for which in (turn % 2, 1 - turn % 2):
            start = time.perf_counter()
            actions[which]()
            times[which] = time.perf_counter() - start
        self._of_turn[turn % 2].append(times[0] - times[1])

    def median(self) -> float:
        return statistics.fmean(map(statistics.median, self._of_turn))


class Loop:
    """Writes and reads VERSIONS checkpoints of `size` bytes, again and again."""

    def __init__(self, store, size: int, pause: float) -> None:
        self._store, self._next, self._pause = store, 0, pause
        self._field = np.ones(size, np.uint8)
        self._area = np.ones((VERSIONS, size), np.uint8)

    def run(self) -> tuple[float, float]:
        """Medians of call minus copy, in microseconds: checkpoint, restore."""
        checkpoint, restore = Pairs(self._pause), Pairs(self._pause)
        order = list(range(self._next + VERSIONS - 1, self._next - 1, -1))
        self._store.hint(order)
        for i in range(VERSIONS):
            call = partial(self._store.checkpoint, self._next + i, self._field)
            checkpoint.add(i, call, self._area[i], self._field)
        for i, version in enumerate(order):
            call = partial(self._store.restore, version, out=self._field)
            restore.add(i, call, self._field, self._area[i])
        self._next += VERSIONS
        return checkpoint.median() * 1e6, restore.median() * 1e6


def measure(directory: str, size: int, tiers_below: bool, repeats: int) -> tuple[list[float], list[float]]:
    cache = 2 * VERSIONS * size + (1 << 20)  # every call hits
    host, disk = (cache, 4 * cache) if tiers_below else (0, 0)
    with ebbtide.open(directory=directory, device_cache=cache, host_cache=host, disk=disk) as store:
        loop = Loop(store, size, 0.001 if tiers_below else 0.0)
        loop.run()  # touches the cache
        loop.run()
        rounds = [loop.run() for _ in range(repeats)]
    return [a for a, _ in rounds], [b for _, b in rounds]


def main() -> int:
    options = harness.options(__doc__, repeats=15)
    given = options.parse_args()
    found = {}
    for tiers_below in (False, True):
        for size in (4 << 10, 64 << 10, 1 << 20):
            name = f"{'all_tiers' if tiers_below else 'device_only'}_{size >> 10}KiB"
            checkpoint, restore = measure(given.dir, size, tiers_below, given.repeats)
            found[f"checkpoint_us_{name}"], found[f"restore_us_{name}"] = checkpoint, restore
    harness.leave(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
