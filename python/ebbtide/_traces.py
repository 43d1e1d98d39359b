"""Traces of checkpoint sizes: a row a snapshot, a column a GPU, bytes (the format of the authors' published sample).

`make_trace` draws traces like figure 4 of hpdc23 (sec. 5.3.3): 384 compressed snapshots of a wavefield, 38 to 50 GB a
shot, small while the wave has touched little of the domain, then growing, then varying slowly.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Sequence
from pathlib import Path

SNAPSHOTS = 384
SHOT_BYTES = (38e9, 50e9)  # of a shot of SNAPSHOTS snapshots

Trace = list[list[int]]  # [snapshot][gpu]


def make_trace(snapshots: int = SNAPSHOTS, gpus: int = 8, seed: int = 0, scale: float = 1.0) -> Trace:
    """Sizes in bytes, `[snapshot][gpu]`, the same for the same arguments everywhere.

    A shot (a column) adds up to between 38 and 50 GB times `scale` times `snapshots` / 384.

    >>> make_trace(3, 2, seed=1) == make_trace(3, 2, seed=1)
    True
    """
    columns = [_shot(random.Random(f"{seed}/{gpu}"), snapshots, scale) for gpu in range(gpus)]
    return [list(row) for row in zip(*columns, strict=True)]


def _shot(rng: random.Random, snapshots: int, scale: float) -> list[int]:
    # Only random() is used: its sequence is the one thing that Python promises to keep from version to version.
    def between(low: float, high: float) -> float:
        return low + (high - low) * rng.random()

    start = between(0.02, 0.08)  # of the steady size, when the wave has just left its source
    filled = between(0.08, 0.16)  # of the shot, until the wave has reached most of the domain
    sharpness = between(1.3, 2.0)
    drift = between(-0.08, 0.08)  # over the whole shot, as the wave leaves through the borders or scatters
    waves = [(between(0.01, 0.04), between(1.0, 5.0), between(0.0, math.tau)) for _ in range(3)]
    shape = []
    for i in range(snapshots):
        at = i / max(1, snapshots - 1)
        grown = start + (1 - start) * (1 - math.exp(-((at / filled) ** sharpness)))
        slow = 1 + drift * at + sum(a * math.sin(math.tau * f * at + phase) for a, f, phase in waves)
        shape.append(grown * slow * between(0.995, 1.005))
    total = between(*SHOT_BYTES) * scale * snapshots / SNAPSHOTS
    return [max(1, round(total * part / sum(shape))) for part in shape]


def write_trace(path: Path, trace: Trace) -> None:
    """Writes `trace` as CSV without a header."""
    with open(path, "w", newline="", encoding="ascii") as file:
        csv.writer(file, lineterminator="\n").writerows(trace)


def read_trace(path: Path) -> Trace:
    """Reads a trace; ValueError names the file and the line that is wrong."""
    trace: Trace = []
    with open(path, newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row:
                continue
            try:
                sizes = [int(field) for field in row]
            except ValueError:
                raise ValueError(f"{path}, line {number}: {','.join(row)!r} is not a row of sizes in bytes") from None
            if min(sizes) <= 0:
                raise ValueError(f"{path}, line {number}: a size of {min(sizes)} bytes; each must be at least 1")
            if trace and len(sizes) != len(trace[0]):
                raise ValueError(f"{path}, line {number}: {len(sizes)} columns where the first row has {len(trace[0])}")
            trace.append(sizes)
    if not trace:
        raise ValueError(f"{path} holds no snapshot")
    return trace


def column(trace: Trace, gpu: int) -> list[int]:
    """The sizes of one GPU's shot."""
    return [row[gpu] for row in trace]


def describe(trace: Trace) -> list[Sequence[float]]:
    """A row a GPU: its number, total, smallest, median and largest size, in bytes."""
    rows = []
    for gpu in range(len(trace[0])):
        sizes = sorted(column(trace, gpu))
        rows.append((gpu, sum(sizes), sizes[0], sizes[len(sizes) // 2], sizes[-1]))
    return rows
