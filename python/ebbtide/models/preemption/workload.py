"""Workloads of batch systems: files in the Standard Workload Format, and generated ones."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ebbtide.errors import InvalidArgument

_FIELDS = 18
_MOST = 10**7  # nodes


@dataclass(frozen=True)
class Arrival:
    """A job as it is submitted: seconds since the workload's start, nodes, seconds of work, and seconds that were asked for."""

    submitted: float
    nodes: int
    runtime: float
    requested: float


def read_workload(file: Path) -> tuple[list[Arrival], int | None]:
    """The jobs of a file in the Standard Workload Format, and the nodes of its machine if the header has them.

    A processor of the file is a node. Jobs that never ran (no run time or processors) are left out. Raises InvalidArgument,
    naming file, line and field.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InvalidArgument(f"workload: {file} cannot be read: {error}") from None
    jobs, nodes = [], None
    for number, line in enumerate(lines, 1):
        where = f"workload: {file}, line {number}"
        if line.startswith(";"):
            found = re.match(r";\s*Max(Nodes|Procs):\s*(\d+)\s*$", line)
            if found:
                nodes = max(nodes or 0, int(found[2]))
            continue
        words = line.split()
        if not words:
            continue
        if len(words) != _FIELDS:
            raise InvalidArgument(f"{where}: {len(words)} fields; the format has {_FIELDS}")
        try:
            values = [float(word) for word in words]
        except ValueError:
            wrong = next(word for word in words if not _is_number(word))
            raise InvalidArgument(f"{where}: field {words.index(wrong) + 1}: {wrong[:100]!r} is not a number") from None
        submitted, runtime, allocated, wanted, requested = (values[at] for at in (1, 3, 4, 7, 8))
        size = allocated if allocated > 0 else wanted
        if not all(math.isfinite(value) for value in values) or submitted < 0 or size > _MOST:
            raise InvalidArgument(f"{where}: a submit time of at least 0 and at most {_MOST} processors are needed")
        if runtime > 0 and size >= 1:
            jobs.append(Arrival(submitted, int(size), runtime, max(runtime, requested)))
    if not jobs:
        raise InvalidArgument(f"workload: {file} has no job that ran")
    return sorted(jobs, key=lambda job: job.submitted), nodes


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def generate(seed: int = 0, jobs: int = 400, nodes: int = 128, load: float = 0.8) -> str:
    """A workload as text in the Standard Workload Format; the same seed gives the same one.

    Nodes are powers of two up to half of the machine, run times are between ten minutes and ten hours, evenly in their
    logarithms, and jobs come at random times, so that they would keep ``load`` of the machine busy.
    """
    draw = np.random.default_rng(seed)
    sizes = 2 ** draw.integers(0, int(math.log2(nodes)), jobs)
    runtimes = np.rint(np.exp(draw.uniform(math.log(600), math.log(36000), jobs)))
    work = float((sizes * runtimes).sum())
    submitted = np.floor(np.sort(draw.uniform(0, work / (load * nodes), jobs)))
    lines = ["; Version: 2.2", f"; Computer: generated, seed {seed}", f"; MaxNodes: {nodes}"]
    for number, (at, runtime, size) in enumerate(zip(submitted, runtimes, sizes), 1):
        asked = math.ceil(runtime * draw.uniform(1, 3))
        lines.append(f"{number} {at:.0f} -1 {runtime:.0f} {size} -1 -1 {size} {asked} -1 1 -1 -1 -1 -1 -1 -1 -1")
    return "\n".join(lines) + "\n"
