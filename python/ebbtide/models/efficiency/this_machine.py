"""The best intervals for a machine that is described by its rates, its program's state and its failures."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from ebbtide.errors import InvalidArgument

from . import ics19, markov, optimum
from .levels import Levels, Three, drained
from .markov import Pattern

MTBFS = ("mtbf_process", "mtbf_node", "mtbf_system")


@dataclass(frozen=True)
class Site:
    """Bytes, seconds and bytes per second. ``state``, ``memory_rate``, ``disk_rate``, ``mtbf_process`` and ``mtbf_node``
    are those of one node, ``shared_rate`` and ``mtbf_system`` those of all.

    A failure of a process leaves its node's memory, one of a node its disk, one of the system the shared file system.
    """

    state: int
    nodes: int
    memory_rate: float = 10e9
    disk_rate: float = 2.15e9
    shared_rate: float = 2500e9
    mtbf_process: float = 1 / (4 * ics19.GPU_FAILURES + 2 * ics19.CPU_FAILURES[2][0] / ics19.CPU_FAILURES[2][1])
    mtbf_node: float = 1 / ics19.NODE_FAILURES
    mtbf_system: float = 1 / ics19.SYSTEM_FAILURES

    def levels(self) -> Levels:
        """The three levels. Raises InvalidArgument, naming the field, what was given and what would be right."""
        for name in ("state", "nodes", "memory_rate", "disk_rate", "shared_rate", *MTBFS):
            value = getattr(self, name)
            if not (value > 0 and (math.isfinite(value) or name in MTBFS)):
                raise InvalidArgument(f"{name}: {value!r} is not a finite number above 0")
        costs = (
            self.state / self.memory_rate,
            self.state / self.disk_rate,
            self.state * self.nodes / self.shared_rate,
        )
        apart = (self.mtbf_process / self.nodes, self.mtbf_node / self.nodes, self.mtbf_system)
        for name, cost, seconds in zip(MTBFS, costs, apart):
            if seconds <= cost:
                least = cost * (1 if name == "mtbf_system" else self.nodes)
                raise InvalidArgument(
                    f"{name}: {getattr(self, name):.4g} s is one failure each {seconds:.4g} s on this machine, and a "
                    f"checkpoint that survives it takes {cost:.4g} s; it must be above {least:.4g} s"
                )
        return Levels(costs, tuple(1 / seconds for seconds in apart))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Plan:
    """``intervals``: seconds of work between checkpoints that reach each level. ``efficiency``: 0 to 1, exact."""

    levels: Levels
    pattern: Pattern
    intervals: Three
    efficiency: float
    nodes: int = 1

    def python(self) -> str:
        """The line that opens a store with these settings, on each node. Nodes that restart together need a version that all
        of them have, and one of them may be a checkpoint ahead of another: each keeps two."""
        keep = f", keep_every={self.pattern.n1}" if self.pattern.n1 > 1 else ""
        sent = self.pattern.n1 * self.pattern.n2
        every = f", shared_every={sent}" if sent > 1 else ""
        last = 1 if self.nodes == 1 else 2
        return f'store = ebbtide.open("run", durability="process", keep_last={last}{keep}, shared="run-shared"{every})'


def plan(site: Site, draining: bool = False) -> Plan:
    """The best pattern for the site; with ``draining``, if levels 2 and 3 are written in the background.

    >>> found = plan(Site(state=60 * 10**9, nodes=512, mtbf_node=3 * 365.25 * 86400))
    >>> 0.9 < found.efficiency < 1
    True
    """
    levels = drained(site.levels()) if draining else site.levels()
    pattern = optimum.best(levels)
    work, n1, n2 = pattern
    return Plan(levels, pattern, (work, work * n1, work * n1 * n2), markov.efficiency(levels, pattern), site.nodes)


def read_failures(file: Path) -> dict[str, float]:
    """Mean seconds between failures of the whole machine, by level (``process``, ``node``, ``system``), from a log.

    A log is a file of comma-separated values: the header ``seconds,level``, then a row a failure, seconds since the log's
    start; a last row with the level ``end`` says how long it was kept, else it ends at its last failure. A level without a
    failure is left out. Raises InvalidArgument, naming file, line and field.
    """
    try:
        lines = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(f"log: {file} cannot be read: {error}; a text file is needed") from None
    if not lines or lines[0] != ["seconds", "level"]:
        raise InvalidArgument(
            f"log: {file}, line 1: {','.join(lines[0] if lines else [])[:100]!r} is not 'seconds,level'"
        )
    counts = dict.fromkeys(("process", "node", "system"), 0)
    end = 0.0
    for number, row in enumerate(lines[1:], 2):
        where = f"log: {file}, line {number}"
        if len(row) != 2 or row[1] not in (*counts, "end"):
            right = "seconds and a level (process, node, system or end)"
            raise InvalidArgument(f"{where}: {','.join(row)[:100]!r} is not {right}")
        try:
            seconds = float(row[0])
        except ValueError:
            seconds = math.nan
        if not end <= seconds < math.inf:
            raise InvalidArgument(
                f"{where}: seconds {row[0][:100]!r} is not a number of at least {end:g}, that before it"
            )
        end = seconds
        if row[1] != "end":
            counts[row[1]] += 1
    if not end:
        raise InvalidArgument(f"log: {file} has no time in it; it must go on after second 0")
    return {level: end / count for level, count in counts.items() if count}
