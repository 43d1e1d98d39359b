#!/usr/bin/env python3
"""When to store every state and when to compute states anew: an adjoint run of steps of a given time and size, both ways
with the same memory, for longer and longer steps.

A step writes to its state and takes its time on one processor; so does an adjoint step. Stored: all states go through a
store whose caches have room for `--slots` states, and the rest is on the disk. Computed anew: revolve (pyrevolve) with as
many slots in memory. What a run takes beyond its steps and adjoint steps is what the way costs. recompute_figures.py finds
where the costs cross, and makes the last chapter of docs/recompute-or-store.md.

  pip install -r tests/frameworks.txt
  benches/recompute_or_store.py --dir /mnt/disk      # writes benches/results/recompute_or_store.json
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ebbtide
import harness
import numpy as np
import pyrevolve

MS_PER_MIB = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0)  # lengths of a step


class Shot(pyrevolve.Checkpoint):
    """A field, and its steps."""

    dtype = np.float32

    def __init__(self, size: int, step_s: float) -> None:
        self.field = np.zeros(size // 4, np.float32)
        self._step_s = step_s
        self.computed = 0

    @property
    def size(self) -> int:
        return self.field.size

    def get_data(self, timestep: int) -> list[np.ndarray]:
        return [self.field]

    get_data_location = get_data

    def step(self, number: int) -> None:
        end = time.perf_counter() + self._step_s
        self.field[:: 1024 // 4] = number  # a line of each KiB
        self.computed += 1
        while time.perf_counter() < end:
            pass

    def adjoint_step(self, number: int) -> None:
        """From the state after that step, as pyrevolve has it."""
        if self.field[0] != number:
            raise RuntimeError(f"the adjoint step {number} got the state of step {self.field[0]:.0f}")
        self.step(number)


class Forward(pyrevolve.Operator):
    def __init__(self, shot: Shot) -> None:
        self._shot = shot

    def apply(self, t_start: int, t_end: int) -> None:
        for number in range(t_start, t_end):
            self._shot.step(number)


class Reverse(Forward):
    def apply(self, t_start: int, t_end: int) -> None:
        self._shot.adjoint_step(t_start)


def stored(shot: Shot, steps: int, store: ebbtide.Store) -> float:
    start = time.perf_counter()
    with store.history("forward", order="lifo") as history:
        for number in range(steps):
            shot.step(number)
            history.checkpoint(number, shot.field)
        for number in reversed(range(steps)):
            history.restore(number, out=shot.field)
            shot.adjoint_step(number)
    return time.perf_counter() - start


def recomputed(shot: Shot, steps: int, slots: int) -> float:
    revolver = pyrevolve.MemoryRevolver(shot, Forward(shot), Reverse(shot), slots, steps)
    start = time.perf_counter()
    revolver.apply_forward()
    revolver.apply_reverse()
    return time.perf_counter() - start


def one(size: int, step_s: float, steps: int, slots: int, store: ebbtide.Store) -> dict[str, float]:
    """What each way costs, in s a step."""
    shot = Shot(size, step_s)
    keeping = stored(shot, steps, store) / steps - 2 * step_s
    shot = Shot(size, step_s)
    computing = recomputed(shot, steps, slots) / steps - 2 * step_s
    return {"store_s": keeping, "recompute_s": computing, "anew": shot.computed / steps - 2}


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=5)
    parser.set_defaults(json=harness.RESULTS / "recompute_or_store.json")
    parser.add_argument("--bytes", type=int, nargs="+", default=[harness.MIB, 16 * harness.MIB], help="of a state")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--slots", type=int, default=10)
    given = parser.parse_args()
    machine = harness.machine(given.dir)
    sizes = []
    for size in given.bytes:
        points: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory(prefix="recompute-", dir=given.dir) as directory:
            half = given.slots * size // 2
            with ebbtide.open(
                directory, device="cpu", device_cache=half, host_cache=half, disk=2 * given.steps * size
            ) as store:
                one(size, 0.0, given.steps, given.slots, store)  # the first is not counted
                for step_s in (ms * size / harness.MIB / 1e3 for ms in MS_PER_MIB):
                    runs = [one(size, step_s, given.steps, given.slots, store) for _ in range(given.repeats)]
                    points.append(
                        {"step_s": step_s, "anew": runs[0]["anew"]}
                        | {key: [run[key] for run in runs] for key in ("store_s", "recompute_s")}
                    )
                    costs = {key: 1e3 * statistics.median(points[-1][key]) for key in ("store_s", "recompute_s")}
                    print(f"{size >> 20} MiB, a step of {1e3 * step_s:g} ms: {costs} ms", flush=True)
        sizes.append({"bytes": size, "points": points})
    machine["load_after"] = os.getloadavg()[0]
    document = {
        "figure": "recompute_or_store",
        "command": [Path(__file__).name, "--repeats", str(given.repeats)],
        "machine": machine,
        "measured": {"steps": given.steps, "slots": given.slots, "sizes": sizes},
    }
    given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
