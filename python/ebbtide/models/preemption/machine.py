"""A batch system, event by event: what jobs on demand cost the others, by how nodes are freed for them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ebbtide.errors import InvalidArgument

from .decision import decide
from .jobs import Job
from .workload import Arrival

POLICIES = ("planned", "kill", "system_wide", "reserve")
_BACKFILLED = 100  # jobs of the queue that are looked at


@dataclass(frozen=True)
class Machine:
    """Nodes, seconds and bytes. A running job makes a checkpoint after each ``interval`` of work, of ``state`` bytes a node; it is
    blocked while these are copied to the node's memory at ``memory_rate``, and they go to the file system, ``bandwidth`` for
    all, behind its back. A job that is started again reads them back first. Each ``every``-th job is on demand: its nodes are
    to be free within ``deadline``. ``reserve``: nodes that the policy of that name keeps free.
    """

    nodes: int
    deadline: float = 300
    bandwidth: float = 100e9
    state: float = 64e9
    interval: float = 3600
    memory_rate: float = 10e9
    every: int = 20
    reserve: int = 0

    def __post_init__(self) -> None:
        for name in ("nodes", "deadline", "bandwidth", "interval", "memory_rate", "every"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidArgument(f"{name}: {value!r} is not a finite number above 0")
        if not (math.isfinite(self.state) and self.state >= 0):
            raise InvalidArgument(f"state: {self.state!r} is not a finite number of at least 0")
        if not 0 <= self.reserve < self.nodes:
            raise InvalidArgument(
                f"reserve: {self.reserve!r} is not from 0 to fewer than the machine's {self.nodes} nodes"
            )

    @property
    def slowdown(self) -> float:
        """Seconds that a second of work takes, with its share of checkpoints."""
        return 1 + self.state / self.memory_rate / self.interval


@dataclass(frozen=True)
class Outcome:
    """``lost``: node-hours of work done again. ``blocked``: node-hours for which jobs stood still until they were saved, or read
    what was saved. ``on_demand``: such jobs; ``in_time``: the share of them that began by the deadline; ``wait``: their mean, in
    seconds. ``batch_wait``: of all others. ``busy``: share of the nodes' time that was work, once, up to the last end.
    """

    lost: float
    blocked: float
    on_demand: int
    in_time: float
    wait: float
    batch_wait: float
    busy: float
    hours: float


@dataclass
class _Run:
    """A job in the system. ``done``: seconds of work that are saved; ``begun``: when work began, or goes on, in this start."""

    job: Arrival
    on_demand: bool
    done: float = 0
    restarted: bool = False
    begun: float | None = None
    started: float | None = None  # for the first time
    leaving: bool = False
    planned: bool = False
    start: int = field(default=0)  # counts starts, so that the end of an earlier one is known as such


class _System:
    def __init__(self, arrivals: Sequence[Arrival], machine: Machine, policy: str) -> None:
        self.machine, self.policy = machine, policy
        self.free, self.now = machine.nodes, 0.0
        self.runs = [_Run(job, (at + 1) % machine.every == 0) for at, job in enumerate(arrivals)]
        self.events = [(run.job.submitted, at, "submit", at, 0) for at, run in enumerate(self.runs)]
        heapq.heapify(self.events)
        self.count = len(self.events)
        self.queue: list[int] = []  # of batch jobs, by submission
        self.urgent: list[int] = []
        self.running: set[int] = set()
        self.lost = self.blocked = self.useful = 0.0
        self.writing_until = 0.0

    def simulate(self) -> None:
        while self.events:
            self.now, _, kind, at, start = heapq.heappop(self.events)
            run = self.runs[at]
            if kind == "submit":
                (self.urgent if run.on_demand else self.queue).append(at)
            elif kind == "end" and at in self.running and run.start == start and not run.leaving:
                self.useful += run.job.nodes * run.job.runtime
                self._leave(at)
            elif kind == "saved" and run.leaving:
                self._requeue(at)
            self._schedule()

    def _later(self, seconds: float, kind: str, at: int) -> None:
        heapq.heappush(self.events, (self.now + seconds, self.count, kind, at, self.runs[at].start))
        self.count += 1

    def _start(self, at: int) -> None:
        run = self.runs[at]
        run.start += 1
        reading = run.job.nodes * self.machine.state / self.machine.bandwidth if run.restarted else 0.0
        self.blocked += run.job.nodes * reading
        run.begun = self.now + reading
        if run.started is None:
            run.started = self.now
        self.free -= run.job.nodes
        self.running.add(at)
        self._later(reading + (run.job.runtime - run.done) * self.machine.slowdown, "end", at)

    def _leave(self, at: int) -> None:
        self.running.discard(at)
        self.free += self.runs[at].job.nodes

    def _requeue(self, at: int) -> None:
        run = self.runs[at]
        self._leave(at)
        run.leaving, run.restarted = False, True
        self.queue.append(at)
        self.queue.sort(key=lambda one: self.runs[one].job.submitted)

    def _worked(self, run: _Run) -> float:
        """Since its last start."""
        assert run.begun is not None
        return max(0.0, self.now - run.begun) / self.machine.slowdown

    def _as_job(self, at: int) -> Job:
        run = self.runs[at]
        worked = self._worked(run)
        since = worked % self.machine.interval
        left = max(0.0, run.job.runtime - run.done - worked) * self.machine.slowdown
        left += max(0.0, (run.begun or 0) - self.now)
        size = math.inf if self.policy == "kill" else run.job.nodes * self.machine.state
        return Job(str(at), run.job.nodes, run.done + worked, since, left, min(size, 1e300))

    def _kill(self, at: int) -> None:
        run = self.runs[at]
        worked = self._worked(run)
        saved = worked - worked % self.machine.interval
        self.lost += run.job.nodes * (worked - saved)
        run.done += saved
        self._requeue(at)

    def _save(self, at: int, until: float) -> None:
        run = self.runs[at]
        run.done += self._worked(run)
        run.leaving = True
        self.blocked += run.job.nodes * until
        self._later(until, "saved", at)

    def _make_way(self) -> None:
        """For the jobs on demand that wait, once for each; one that cannot have its nodes yet is tried again."""
        candidates = sorted(at for at in self.running if not self.runs[at].on_demand and not self.runs[at].leaving)
        jobs = [self._as_job(at) for at in candidates]
        waiting = sum(self.runs[at].job.nodes for at in self.urgent)
        needed = waiting - self.free - sum(self.runs[at].job.nodes for at in self.running if self.runs[at].leaving)
        if needed > sum(job.nodes for job in jobs):
            return
        for at in self.urgent:
            self.runs[at].planned = True
        if needed <= 0:
            return
        if self.policy == "system_wide":
            return self._save_all(candidates, needed)
        # What an earlier plan still writes comes first.
        busy = min(max(0.0, self.writing_until - self.now), self.machine.deadline)
        share = max(1 - busy / self.machine.deadline, 1e-9)
        plan = decide(jobs, needed, self.machine.deadline, self.machine.bandwidth * share)
        for at, job, action in zip(candidates, jobs, plan.actions):
            if action == "kill":
                self._kill(at)
            elif action == "checkpoint":
                busy += job.bytes / self.machine.bandwidth
                self._save(at, busy)
        self.writing_until = max(self.writing_until, self.now + busy)

    def _save_all(self, candidates: list[int], needed: int) -> None:
        """Each job stands still until all are saved; then the largest that are needed leave, and the others go on."""
        nodes = sum(self.runs[at].job.nodes for at in candidates)
        until = nodes * self.machine.state / self.machine.bandwidth
        for at in sorted(candidates, key=lambda one: -self.runs[one].job.nodes):
            run = self.runs[at]
            if needed > 0:
                needed -= run.job.nodes
                self._save(at, until)
                continue
            run.done += self._worked(run)
            run.start += 1
            self.blocked += run.job.nodes * until
            run.begun = self.now + until
            self._later(until + (run.job.runtime - run.done) * self.machine.slowdown, "end", at)

    def _schedule(self) -> None:
        if self.policy != "reserve" and any(not self.runs[at].planned for at in self.urgent):
            self._make_way()
        while self.urgent and self.free >= self.runs[self.urgent[0]].job.nodes:
            self._start(self.urgent.pop(0))
        if self.urgent:
            return  # what comes free is for them
        in_use = sum(self.runs[at].job.nodes for at in self.running if self.runs[at].on_demand)
        room = self.free - (max(0, self.machine.reserve - in_use) if self.policy == "reserve" else 0)
        while self.queue and self.runs[self.queue[0]].job.nodes <= room:
            room -= self.runs[self.queue[0]].job.nodes
            self._start(self.queue.pop(0))
        if self.queue and room > 0:
            self._backfill(room)

    def _backfill(self, room: int) -> None:
        """EASY: a job behind the first starts if that delays the first by nothing, as far as requested times say."""
        first = self.runs[self.queue[0]].job
        ends = sorted((self._asked_end(at), self.runs[at].job.nodes) for at in self.running)
        shadow, there = math.inf, room
        for end, nodes in ends:
            if there >= first.nodes:
                break
            shadow, there = end, there + nodes
        extra = there - first.nodes
        for at in self.queue[1 : _BACKFILLED + 1]:
            job = self.runs[at].job
            short = self.now + (job.requested - self.runs[at].done) * self.machine.slowdown <= shadow
            if job.nodes > room or not (short or job.nodes <= extra):
                continue
            room -= job.nodes
            extra -= 0 if short else job.nodes
            self.queue.remove(at)
            self._start(at)

    def _asked_end(self, at: int) -> float:
        run = self.runs[at]
        assert run.begun is not None
        return max(self.now, run.begun + (run.job.requested - run.done) * self.machine.slowdown)


def run(arrivals: Sequence[Arrival], machine: Machine, policy: str = "planned") -> Outcome:
    """The workload to its end. Batch jobs start first come, first served, with EASY backfilling.

    ``planned``: jobs make way by the plan of `decide`. ``kill``: they are killed, those that lose the least together.
    ``system_wide``: all that run are checkpointed together, and then the largest that are needed leave. ``reserve``: none makes
    way; ``machine.reserve`` nodes (default: the largest job on demand) are kept for jobs on demand. Raises InvalidArgument,
    naming the field.
    """
    if policy not in POLICIES:
        raise InvalidArgument(f"policy: {policy!r} is not one of {', '.join(POLICIES)}")
    urgent = [job.nodes for at, job in enumerate(arrivals) if (at + 1) % machine.every == 0]
    others = [job.nodes for at, job in enumerate(arrivals) if (at + 1) % machine.every]
    reserve = machine.reserve or (max(urgent, default=0) if policy == "reserve" else 0)
    room = machine.nodes - (reserve if policy == "reserve" else 0)
    if max(urgent, default=0) > machine.nodes or max(others, default=0) > room:
        kept = f" of which {reserve} are reserved" if policy == "reserve" else ""
        raise InvalidArgument(f"nodes: the machine has {machine.nodes}{kept}; a job of the workload needs more")
    system = _System(arrivals, replace(machine, reserve=reserve), policy)
    system.simulate()
    waits = {True: [0.0], False: [0.0]}
    for one in system.runs:
        assert one.started is not None
        waits[one.on_demand].append(one.started - one.job.submitted)
    on_demand = waits[True][1:]
    span = system.now - system.runs[0].job.submitted
    return Outcome(
        lost=system.lost / 3600,
        blocked=system.blocked / 3600,
        on_demand=len(on_demand),
        in_time=sum(wait <= machine.deadline * (1 + 1e-9) for wait in on_demand) / max(1, len(on_demand)),
        wait=sum(on_demand) / max(1, len(on_demand)),
        batch_wait=sum(waits[False]) / max(1, len(waits[False]) - 1),
        busy=system.useful / (machine.nodes * span),
        hours=span / 3600,
    )
