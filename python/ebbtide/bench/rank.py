"""One rank's shot: a forward pass that writes every checkpoint, a backward pass that reads each one back.

It is the program of hpdc23 sec. 4.3, listing 1, with sleeps for the computing (sec. 5.3.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from .content import Contents, Landing


@dataclass(frozen=True)
class Job:
    """What one rank is to do."""

    rank: int
    sizes: tuple[int, ...]  # bytes of each version
    order: tuple[int, ...]  # in which the versions are restored
    hints: str  # "all", "one", "none"
    interval: float  # seconds of computing before each checkpoint and after each restore
    wait: bool  # for flushes between the passes
    verify: bool
    store: dict = field(default_factory=dict)  # keyword arguments of ebbtide.open


@dataclass
class Outcome:
    """What one rank measured; times in seconds, lists in the order of the calls."""

    rank: int
    open_s: float = 0.0
    flush_wait_s: float | None = None
    checkpoint_s: list[float] = field(default_factory=list)
    restore_s: list[float] = field(default_factory=list)
    slept_forward_s: list[float] = field(default_factory=list)
    slept_backward_s: list[float] = field(default_factory=list)
    barrier_s: float = 0.0  # waiting for the other ranks
    hint_s: float = 0.0  # in hint and start_prefetch calls
    started: float = 0.0  # on the system's monotonic clock, the same for all ranks
    ended: float = 0.0
    found_on: list[str | None] = field(default_factory=list)
    prefetch_distance: list[int] = field(default_factory=list)
    restores: int = 0
    wrong: int = 0  # restores with at least one wrong byte
    wrong_bytes: int = 0
    stats: dict = field(default_factory=dict)


class _Pace:
    """The computing between two calls: `work`, then sleep until `interval` has passed, then `meet` the other ranks."""

    def __init__(self, interval: float, meet: Callable[[], None], outcome: Outcome) -> None:
        self._interval, self._meet, self._outcome = interval, meet, outcome

    def compute(self, slept: list[float], work: Callable[[], None] | None = None) -> None:
        start = time.perf_counter()
        if work:
            work()
        # Sleeping, not spinning: on a small machine the core belongs to the store's threads meanwhile.
        left = self._interval - (time.perf_counter() - start)
        if left > 0:
            time.sleep(left)
        awake = time.perf_counter()
        slept.append(awake - start)
        self._meet()
        self._outcome.barrier_s += time.perf_counter() - awake


def run(job: Job, begin: Callable[[], None], meet: Callable[[], None]) -> Outcome:
    """Runs one shot. `begin` is called once the store is open, `meet` before each checkpoint and each restore."""
    import ebbtide

    out = Outcome(job.rank)
    largest = max(job.sizes)
    contents, landing = Contents(job.rank, len(job.sizes), largest), Landing(largest)
    pace = _Pace(job.interval, meet, out)
    opening = time.perf_counter()
    with ebbtide.open(**job.store) as store:
        out.open_s = time.perf_counter() - opening
        begin()
        out.started = time.perf_counter()
        if job.hints == "all":
            _hint(store, list(job.order), out)
        _forward(store, job, contents, pace, out)
        if job.wait:
            start = time.perf_counter()
            store.wait(_lowest_tier(store))
            out.flush_wait_s = time.perf_counter() - start
        _backward(store, job, contents, landing, pace, out)
        out.ended = time.perf_counter()
        out.stats = store.stats()
    tiers = [tier["name"] for tier in out.stats["tiers"]]
    out.found_on = [tiers[index] if index >= 0 else None for index in out.stats.pop("found_on")]
    out.prefetch_distance = list(out.stats.pop("prefetch_distance"))
    return out


def _lowest_tier(store) -> str:
    return store.stats()["tiers"][-1]["name"]


def _hint(store, versions: list[int], out: Outcome) -> None:
    start = time.perf_counter()
    store.hint(versions)
    out.hint_s += time.perf_counter() - start


def _forward(store, job: Job, contents: Contents, pace: _Pace, out: Outcome) -> None:
    for version, size in enumerate(job.sizes):
        window = contents.of(version, size)
        pace.compute(out.slept_forward_s)
        start = time.perf_counter()
        store.checkpoint(version, window)
        out.checkpoint_s.append(time.perf_counter() - start)


def _backward(store, job: Job, contents: Contents, landing: Landing, pace: _Pace, out: Outcome) -> None:
    start = time.perf_counter()
    store.start_prefetch()
    out.hint_s += time.perf_counter() - start
    for i, version in enumerate(job.order):
        expected = contents.of(version, job.sizes[version])
        target = landing.at(job.sizes[version])
        if job.hints == "one" and i + 1 < len(job.order):
            _hint(store, [job.order[i + 1]], out)
        start = time.perf_counter()
        store.restore(version, out=target)
        out.restore_s.append(time.perf_counter() - start)
        pace.compute(out.slept_backward_s, partial(_verify, landing, expected, out) if job.verify else None)


def _verify(landing: Landing, expected: np.ndarray, out: Outcome) -> None:
    wrong = landing.wrong_bytes(expected)
    out.restores += 1
    out.wrong += wrong > 0
    out.wrong_bytes += wrong
