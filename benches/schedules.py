#!/usr/bin/env python3
"""Schedules of checkpoint_schedules through `ebbtide.adjoint`, over the same schedules with a storage of one's own.

The gradient of a wave in two dimensions. One's own storage is a dict for RAM and `numpy.save` and `numpy.load` for DISK,
through the page cache. The dict keeps the states themselves, which no step changes, or copies, as it must where steps write
in place. The store has as much memory as the dict's states take, and a file in the same directory. The ways are taken in
turns, compute the same steps, and their gradients have the same bits.
schedule_figures.py makes the last chapter of docs/adjoint.md.

  pip install -r tests/frameworks.txt
  benches/schedules.py --dir /mnt/disk               # writes benches/results/schedules.json
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ebbtide
import ebbtide.adjoint
import harness
import numpy as np
from checkpoint_schedules import (
    Copy,
    EndForward,
    EndReverse,
    Forward,
    HRevolve,
    MixedCheckpointSchedule,
    Move,
    MultistageCheckpointSchedule,
    Reverse,
    SingleDiskStorageSchedule,
    StorageType,
)

STEPS, WIDTH, IN_RAM, ON_DISK = 80, 1024, 8, 16
MIDDLE = (slice(1, -1), slice(1, -1))
SCHEDULES: dict[str, Callable[[], Any]] = {
    f"MultistageCheckpointSchedule({STEPS}, {IN_RAM}, {ON_DISK})": lambda: MultistageCheckpointSchedule(STEPS, IN_RAM, ON_DISK),
    f"HRevolve({STEPS}, {IN_RAM}, {ON_DISK})": lambda: HRevolve(STEPS, IN_RAM, ON_DISK),
    f"MixedCheckpointSchedule({STEPS}, {IN_RAM + ON_DISK})": lambda: MixedCheckpointSchedule(STEPS, IN_RAM + ON_DISK),
    "SingleDiskStorageSchedule()": SingleDiskStorageSchedule,
}  # fmt: skip


def laplacian(field: Any) -> Any:
    out = np.zeros_like(field)
    inner = out[MIDDLE]
    np.add(field[2:, 1:-1], field[:-2, 1:-1], out=inner)
    inner += field[1:-1, 2:]
    inner += field[1:-1, :-2]
    inner -= 4 * field[MIDDLE]
    return out


class Wave:
    """The steps, and how many were taken."""

    def __init__(self) -> None:
        self.still = np.zeros((WIDTH, WIDTH), np.float32)
        self.speed = np.full_like(self.still, 0.2)
        self.state = (self.still, self.still)
        self.taken = 0

    def forward(self, step: int, state: Any) -> Any:
        self.taken += 1
        before, now = state
        after = laplacian(now)
        after *= self.speed
        after += 2 * now
        after -= before
        after[WIDTH // 2, WIDTH // 2] += np.float32(np.sin(0.1 * step))
        return now, after

    def reverse(self, step: int, state: Any, adjoint: Any) -> Any:
        of_now, of_after, gradient = adjoint
        of_before = laplacian(self.speed * of_after)
        of_before += 2 * of_after
        of_before += of_now
        return -of_after, of_before, gradient + of_after * laplacian(state[1])

    def seed(self, last: Any) -> Any:
        return self.still, last[1], self.still


class Own:
    """A dict, and files."""

    def __init__(self, directory: str, copies: bool) -> None:
        self._directory, self._copies = Path(directory), copies
        self._ram: dict[int, Any] = {}

    def _files(self, step: int) -> list[Path]:
        return [self._directory / f"{step}-{part}.npy" for part in range(2)]

    def write(self, step: int, state: Any, storage: StorageType) -> None:
        if storage is StorageType.RAM:
            self._ram[step] = tuple(map(np.copy, state)) if self._copies else state
        else:
            for file, part in zip(self._files(step), state):
                np.save(file, part)

    def read(self, step: int, storage: StorageType, move: bool) -> Any:
        if storage is StorageType.RAM:
            return self._ram.pop(step) if move else self._ram[step]
        state = tuple(np.load(file) for file in self._files(step))
        if move:
            for file in self._files(step):
                file.unlink()
        return state


def by_hand(schedule: Any, wave: Wave, directory: str, copies: bool = False) -> Any:
    """The schedules above alone, whose records are of one step; the step itself is taken when a later one needs it."""
    own, state, at, records, adjoint = Own(directory, copies), wave.state, 0, {}, None

    def reach(step: int) -> None:
        nonlocal state, at
        while at < step:
            state = wave.forward(at, state)
            at += 1

    for action in schedule:
        if isinstance(action, Forward):
            reach(action.n0)
            if action.storage is not StorageType.WORK:
                own.write(action.n0, state, action.storage)
            if action.write_adj_deps:
                records[action.n0] = state
            else:
                reach(action.n1)
            if schedule.max_n is None and action.n1 == STEPS:
                schedule.finalize(STEPS)
        elif isinstance(action, (Copy, Move)):
            state, at = own.read(action.n, action.from_storage, isinstance(action, Move)), action.n
            records = {at: state}
        elif isinstance(action, EndForward):
            reach(STEPS)
            adjoint = wave.seed(state)
        elif isinstance(action, Reverse):
            adjoint = wave.reverse(action.n0, records[action.n0], adjoint)
        elif isinstance(action, EndReverse):
            return adjoint


def through_a_store(schedule: Any, wave: Wave, directory: str) -> Any:
    size = 2 * wave.still.nbytes
    with ebbtide.open(directory, device="cpu", memory=IN_RAM * size, disk=(STEPS + 2) * size) as store:
        given = {"state": wave.state, "forward": wave.forward, "reverse": wave.reverse, "seed": wave.seed}
        return ebbtide.adjoint.run(schedule, store.history("wave"), steps=STEPS, **given)


WAYS = {"own": by_hand, "own, copied": functools.partial(by_hand, copies=True), "store": through_a_store}


def writes(schedule: Any) -> dict[str, int]:
    """How many checkpoints a schedule writes to each storage."""
    found = {"RAM": 0, "DISK": 0}
    for action in schedule:
        if isinstance(action, Forward):
            if action.storage is not StorageType.WORK:
                found[action.storage.name] += 1
            if schedule.max_n is None and action.n1 == STEPS:
                schedule.finalize(STEPS)
        elif isinstance(action, EndReverse):
            return found
    raise ValueError("the schedule has no reverse pass")


def main() -> None:
    parser = harness.options(__doc__ or "")
    parser.set_defaults(json=harness.RESULTS / "schedules.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # that numba is not there
    machine = harness.machine(given.dir)
    rows, measured = [], []
    for name, schedule in SCHEDULES.items():
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        processor: dict[str, list[float]] = {way: [] for way in WAYS}
        taken, gradients = {}, {}
        for repeat in range(given.repeats + 1):
            for way, compute in WAYS.items():
                wave = Wave()
                with tempfile.TemporaryDirectory(prefix="schedules-", dir=given.dir) as directory:
                    start, used = time.perf_counter(), time.process_time()
                    gradients[way] = compute(schedule(), wave, directory)[2]
                    elapsed, used = time.perf_counter() - start, time.process_time() - used
                if repeat:  # the first also makes pages
                    seconds[way].append(elapsed)
                    processor[way].append(used)
                taken[way] = wave.taken
            assert len(set(taken.values())) == 1
            assert all((gradients[way] == gradients["own"]).all() for way in WAYS)
        found = {"seconds": seconds, "processor_s": processor, "writes": writes(schedule())}
        measured.append({"schedule": name, "steps_taken": taken["store"], **found})
        ratios = harness.over(seconds["store"], seconds["own"])
        rows.append(harness.Row(f"{name}: total time over its own storage", "<= 1", ratios, harness.at_most(1)))
        copied = harness.over(seconds["store"], seconds["own, copied"])
        rows.append(harness.told(f"{name}: over its own storage that copies", copied))
    machine["load_after"] = os.getloadavg()[0]
    print(harness.table(rows))
    document = {
        "figure": "schedules",
        "command": [Path(__file__).name, "--repeats", str(given.repeats)],
        "machine": machine,
        "steps": STEPS,
        "state_bytes": 2 * Wave().still.nbytes,
        "in_ram": IN_RAM,
        "rows": [row.as_json() for row in rows],
        "measured": measured,
    }
    harness.leave(document, given.json)


if __name__ == "__main__":
    main()
