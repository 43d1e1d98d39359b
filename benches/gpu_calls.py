#!/usr/bin/env python3
"""Calls from Python that need no transfer but the copy to or from the device cache, beside a bare copy as long.

The twin of gpu_calls.cpp, in a store that has the device cache alone. The program's stream is the array library's
current one, and nothing is said of it: the store asks. Blocking is the call and a synchronise of that stream; ordered
is the host's time in the call while the stream still has a long copy before it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import ebbtide
import harness
from ebbtide._machine.device import select


class Loop:
    """Rounds of `slots` checkpoints and as many restores; `samples[name]` are seconds."""

    def __init__(self, store, device, size: int, slots: int) -> None:
        self.store, self.device, self.size, self.slots = store, device, size, slots
        self.field, self.area = device.bytes(size), device.bytes(size * slots)
        self.long = device.bytes(size * max(2, slots))
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.next = 0

    def fresh(self) -> list[int]:
        versions = list(range(self.next, self.next + self.slots))
        self.next += self.slots
        self.store.hint(versions[::-1])
        return versions

    def place(self, i: int):
        return self.area[i * self.size : (i + 1) * self.size]

    def timed(self, name: str, call: Callable[[], object], wait: bool) -> None:
        start = time.perf_counter()
        call()
        if wait:
            self.device.synchronize()
        self.samples[name].append(time.perf_counter() - start)
        self.device.synchronize()

    def behind_work(self) -> None:
        half = len(self.long) // 2
        self.device.copy(self.long[half : 2 * half], self.long[:half])

    def turns(self, kind: str, call: str, i: int, ours: Callable[[], object], bare: Callable[[], object]) -> None:
        """Both, each first every other time."""
        pair = [(f"{call}_{kind}", ours), (f"{call}_{kind}_bare", bare)]
        for name, what in pair if i % 2 else pair[::-1]:
            if kind == "ordered":
                self.behind_work()
            self.timed(name, what, kind == "blocking")

    def run(self) -> None:
        for kind in ("blocking", "ordered"):
            versions = self.fresh()
            for i, version in enumerate(versions):
                self.turns(
                    kind, "checkpoint", i,
                    partial(self.store.checkpoint, version, self.field),
                    partial(self.device.copy, self.place(i), self.field),
                )  # fmt: skip
            for i, version in reversed(list(enumerate(versions))):
                self.turns(
                    kind, "restore", i,
                    partial(self.store.restore, version, out=self.field),
                    partial(self.device.copy, self.field, self.place(i)),
                )  # fmt: skip


def main() -> int:
    options = harness.options(__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--size", type=int, default=128 << 20)
    options.add_argument("--slots", type=int, default=16)
    options.add_argument("--rounds", type=int, default=4)
    given = options.parse_args()
    device = select(given.device)
    caches = {"device_cache": 2 * given.slots * given.size, "host_cache": 0, "disk": 0}
    medians: dict[str, list[float]] = defaultdict(list)
    with (
        device.use(),
        ebbtide.open(directory=given.dir, **caches, device=device.name) as store,
    ):
        loop = Loop(store, device, given.size, given.slots)
        loop.run()
        for _ in range(given.repeats):
            loop.samples.clear()
            for _ in range(given.rounds):
                loop.run()
            for name, seconds in loop.samples.items():
                medians[f"{name}_us"].append(statistics.median(seconds) * 1e6)
    found = {"bytes": given.size, "arrays": type(device).__name__} | dict(medians)
    harness.leave(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
