"""A day of a cluster: the planners write, failures strike, and the program goes back to what is there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import ebbtide._models as _models
from ebbtide.errors import InvalidArgument
from ebbtide.sim.machine import plain_ns

from .machine import Cluster

DISK, SHARED = 1, 2  # the planner's tiers


@dataclass(frozen=True)
class Day:
    """``seconds`` that were simulated, and what became of them: ``work`` that counts, ``blocked`` by checkpoints, ``lost`` work that was
    done again, ``recovery``. ``checkpoints``: that were made; ``on_disk``, ``on_shared``: that came so far. ``failures``: by level.
    ``shared_load``: of the file system's time, 0 to 1, for versions that go there; ``written_and_dropped``: the same for others, whose
    write was begun while it was free and which were dropped. ``simulated``: nodes whose planners ran, for each start of the program;
    ``apart``: nodes that a failure set apart from the others, whose recoveries were simulated apart. ``events``: of all planners.
    """

    seconds: float
    work: float
    blocked: float
    lost: float
    recovery: float
    checkpoints: int
    on_disk: int
    on_shared: int
    failures: tuple[int, int, int]
    shared_load: float
    written_and_dropped: float
    simulated: int
    apart: int
    events: int

    @property
    def efficiency(self) -> float:
        """Share of the time that was work, once."""
        return self.work / self.seconds


class _Failures:
    """When the next one comes, in seconds, and its level from 0."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.rates = np.array(cluster.levels.failures)

    def next(self) -> tuple[float, int]:
        total = self.rates.sum()
        return float(self.draw.exponential(1 / total)), int(self.draw.choice(3, p=self.rates / total))


@dataclass(frozen=True)
class _Found:
    """Of a start: checkpoints ``made``, the newest version ``on`` each level, seconds that the program ``stood``, bytes ``moved`` to the
    file system of versions that go there, and of others (``dropped``), ``events`` of the planners."""

    made: int
    on: tuple[int, int, int]
    stood: float
    moved: int
    dropped: int
    events: int


@dataclass
class _Start:
    """The planners of a program that has just been started. Version v is what the program had after v intervals of work."""

    cluster: Cluster
    ranks: int
    simulation: _models.Simulation

    @classmethod
    def of(cls, cluster: Cluster, ranks: int, seconds: float) -> _Start:
        """``seconds``: that it runs at most."""
        count = math.ceil(seconds / cluster.interval) + 1
        program = (0, 0, _operations(cluster, count))
        machine = cluster.node(ranks)._make()
        simulation = _models.Simulation(machine, [[program]] * ranks, 0.0, 0.0, 1, False, 0, False)
        return cls(cluster, ranks, simulation)

    def run(self, seconds: float) -> None:
        self.simulation.run_until(plain_ns(seconds))

    def found(self, seconds: float) -> _Found:
        """What is there at that time."""
        raw = self.simulation.result()
        end = plain_ns(seconds)
        calls = [(call[5], call[6]) for call in raw["calls"] if call[1] == "checkpoint" and call[5] <= end]
        ended = [(begun, at) for begun, at in calls if at is not None and at <= end]
        stood = sum(min(end, at if at is not None else end) - begun for begun, at in calls) / 1e9 / self.ranks
        made = len(ended) // self.ranks
        on = (made, self._newest(DISK, made), self._newest(SHARED, made))
        moved = dropped = 0
        for rank in raw["ranks"]:
            for _, version, count in rank["filed"]:
                if version % self.cluster.shared_every:
                    dropped += count
                else:
                    moved += count
        return _Found(made, on, stood, moved, dropped, raw["events"])

    def _newest(self, tier: int, upto: int) -> int:
        """The newest version that each node has on the tier or below; 0: none of this start."""
        for version in range(upto, 0, -1):
            if all(self.simulation.slowest(rank, 0, version) >= tier for rank in range(self.ranks)):
                return version
        return 0


def _operations(cluster: Cluster, count: int) -> list[_models.SimOp]:
    """Each version that disk and file system do not need any more is dropped: all but the last two, and the last two of those for
    the file system."""
    make = _models.SimOp.make
    every = cluster.shared_every
    out = []
    for version in range(1, count + 1):
        out += [make("sleep", time=plain_ns(cluster.interval)), make("barrier")]
        out.append(make("checkpoint", version=version, bytes=cluster.bytes, time=-1))
        old, older = version - 2, version - 2 * every - 1
        if old > 0 and old % every:
            out.append(make("drop", version=old))
        if older > 0 and older % every == 0:
            out.append(make("drop", version=older))
    return out


def run(cluster: Cluster, seed: int = 0, seconds: float = 86400, apart: bool = False) -> Day:
    """Runs the program of one job on all nodes. The same seed gives the same failures.

    Every node has a planner of its own, driven as in ``ebbtide.sim``. Nodes that are in the same state make the same decisions:
    they are simulated once, with their part of the file system; with ``apart`` each one is, and they share it as they come. A
    failure of level 1 leaves the nodes' memory, one of level 2 their disks, one of level 3 the file system: the program goes
    back to the newest version that is there, and starts again when the slowest node has read it. Raises InvalidArgument,
    naming the field.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidArgument(f"seconds: {seconds!r} is not a finite number above 0")
    failures_to_come = _Failures(cluster, seed)
    ranks = cluster.nodes if apart else 1
    clock = work = blocked = lost = recovery = moved = dropped = 0.0
    saved = [0.0, 0.0, 0.0]  # seconds of work of the newest version on each level
    counts, failures = [0, 0, 0], [0, 0, 0]
    simulated = set_apart = events = 0
    while clock < seconds:
        wait, struck = failures_to_come.next()
        ran = min(wait, seconds - clock)
        start = _Start.of(cluster, ranks, ran)
        start.run(ran)
        found = start.found(ran)
        simulated, events = simulated + ranks, events + found.events
        moved, dropped = moved + found.moved, dropped + found.dropped
        counts = [
            count + new
            for count, new in zip(counts, (found.made, found.on[DISK], found.on[SHARED] // cluster.shared_every))
        ]
        blocked += found.stood
        saved = [work + new * cluster.interval if new else old for new, old in zip(found.on, saved)]
        work += ran - found.stood
        clock += ran
        level = 0
        while ran == wait:  # a failure; it may strike the recovery of the one before
            failures[struck] += 1
            level = max(level, struck)
            set_apart += struck == 1  # the node that failed reads its disk, the others their memory
            lost += work - saved[level]
            work = saved[level]
            back = (cluster.memory_seconds, cluster.disk_seconds, cluster.shared_seconds)[level]
            wait, struck = failures_to_come.next()
            ran = min(wait, back, seconds - clock)
            recovery, clock = recovery + ran, clock + ran
        saved[:level] = [work] * level  # read back, it is in memory and on the disk
    shared = cluster.rates[2] * ranks / cluster.nodes
    by_level = (failures[0], failures[1], failures[2])
    return Day(
        seconds,
        work,
        blocked,
        lost,
        recovery,
        counts[0],
        counts[1],
        counts[2],
        by_level,
        moved / shared / seconds,
        dropped / shared / seconds,
        simulated,
        set_apart,
        events,
    )
