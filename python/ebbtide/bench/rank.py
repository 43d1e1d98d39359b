"""One rank's shot: a forward pass that writes every checkpoint, a backward pass that reads each one back.

It is the program of hpdc23 sec. 4.3, listing 1, with sleeps for the computing (sec. 5.3.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .._machine.content import Contents, Landing
from .._machine.device import Cpu, select
from .lending import in_group, wait_until_lent
from .progress import Advance, nothing
from .stats import since

BARE_EVERY = 16  # iterations from one bare copy to the next
UNTOUCHED_S = 3.0  # without a new page in any cache


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
    store: dict = field(default_factory=dict)  # keyword arguments of ebbtide.open, but for the device
    device: str = "cpu"  # as `device.select` takes it
    group: str = ""  # as `lending.in_group` takes it


@dataclass
class Outcome:
    """What one rank measured; times in seconds, lists in the order of the calls."""

    rank: int
    open_s: float = 0.0
    flush_wait_s: float | None = None
    checkpoint_s: list[float] = field(default_factory=list)
    restore_s: list[float] = field(default_factory=list)
    bare_forward_s: list[float] = field(
        default_factory=list
    )  # bare copies on the device amid the forward pass's traffic
    bare_backward_s: list[float] = field(default_factory=list)
    slept_forward_s: list[float] = field(default_factory=list)
    slept_backward_s: list[float] = field(default_factory=list)
    barrier_s: float = 0.0  # waiting for the other ranks
    hint_s: float = 0.0  # in hint and start_prefetch calls
    started: float = 0.0  # on the system's monotonic clock, the same for all ranks
    ended: float = 0.0
    aside_s: float = 0.0  # between them, and no part of the shot
    runtime_cpu_s: float = 0.0  # of the process's threads other than the one that calls
    found_on: list[str | None] = field(default_factory=list)
    prefetch_distance: list[int] = field(default_factory=list)
    restores: int = 0
    wrong: int = 0  # restores with at least one wrong byte
    wrong_bytes: int = 0
    stats: dict = field(default_factory=dict)
    links: list[list[dict]] = field(
        default_factory=list
    )  # of its statistics, in the forward pass and in the backward pass

    @property
    def cores(self) -> float:
        """Processors that the runtime kept busy."""
        return self.runtime_cpu_s / self.wall_s

    @property
    def wall_s(self) -> float:
        return self.ended - self.started - self.aside_s


class Arrays:
    """The program's memory on `device`, for shots of up to `versions` checkpoints of up to `largest` bytes."""

    def __init__(self, device: Cpu, rank: int, versions: int, largest: int) -> None:
        self.device = device
        self.contents = Contents(device, rank, versions, largest)
        self.landing = Landing(device, largest)
        self._aside = device.bytes(largest)
        if device.on_gpu:  # the first comparison loads code, which is no part of anybody's interval
            self.landing.wrong_bytes(self.contents.of(0, largest))
            self.bare_copy(0, largest, [])

    def bare_copy(self, version: int, size: int, times: list[float], to: Any = None) -> None:
        """Times a copy of `size` bytes on the device, with a synchronise, during the other traffic. `to`: where."""
        start = time.perf_counter()
        self.device.copy(self._aside[:size] if to is None else to, self.contents.of(version, size))
        self.device.synchronize()
        times.append(time.perf_counter() - start)


class _Pace:
    """The computing between two calls: `work`, then sleep until `interval` has passed, `last`, and `meet` the others."""

    def __init__(self, interval: float, meet: Callable[[], None], advance: Advance, outcome: Outcome) -> None:
        self._interval, self._meet, self._advance, self._outcome = interval, meet, advance, outcome

    def compute(
        self, slept: list[float], work: Callable[[], None] | None = None, last: Callable[[], None] | None = None
    ) -> None:
        start = time.perf_counter()
        self._advance()
        if work:
            work()
        # Sleeping, not spinning: on a small machine the core belongs to the store's threads meanwhile.
        left = self._interval - (time.perf_counter() - start)
        if left > 0:
            time.sleep(left)
        if last:
            last()
        awake = time.perf_counter()
        slept.append(awake - start)
        self._meet()
        self._outcome.barrier_s += time.perf_counter() - awake


def run(job: Job, begin: Callable[[], None], meet: Callable[[], None], advance: Advance = nothing) -> Outcome:
    """Opens a store and runs one shot over it, as `play` does. `begin` is called once the store is open."""
    import ebbtide

    device = select(job.device, job.rank)
    with device.use():
        arrays = Arrays(device, job.rank, len(job.sizes), max(job.sizes))
        opening = time.perf_counter()
        with in_group(job.group), ebbtide.open(**job.store, device=device.name) as store:
            open_s = time.perf_counter() - opening
            if job.store.get("borrow"):
                wait_until_lent(store, job.store["borrow"])
            begin()
            out = play(store, store, job, arrays, meet, advance=advance)
    out.open_s = open_s
    return out


def fill(store: Any, history: Any, job: Job, arrays: Arrays) -> float:
    """Seconds to write what a shot writes, at once and as far as below the first tier, so that the memory of the caches
    has come, and the file's space is no longer new, before anything counts."""
    start = time.perf_counter()
    for version, size in enumerate(job.sizes):
        history.checkpoint(version, arrays.contents.of(version, size))
        arrays.device.synchronize()
    history.wait([tier["name"] for tier in store.stats()["tiers"]][:2][-1])
    _wait_until_touched(store, sum(job.sizes))
    return time.perf_counter() - start


def _wait_until_touched(store: Any, written: int) -> None:
    """Cache memory is touched by threads in the background, which a busy machine holds up. What has not grown for
    `UNTOUCHED_S` will not come: there is no more memory, or so much was never needed at once."""
    touched, since = -1, time.perf_counter()
    while time.perf_counter() - since < UNTOUCHED_S:
        arenas = [tier["arena"] for tier in store.stats()["tiers"] if "arena" in tier]
        if all(arena["touched"] >= min(arena["limit"], written) for arena in arenas):
            return
        if (now := sum(arena["touched"] for arena in arenas)) > touched:
            touched, since = now, time.perf_counter()
        time.sleep(0.001)


def play(
    store: Any,
    history: Any,
    job: Job,
    arrays: Arrays,
    meet: Callable[[], None] = nothing,
    flushed: Callable[[], None] = nothing,
    advance: Advance = nothing,
) -> Outcome:
    """One shot through `history` of the open `store`. `meet` is called before each checkpoint and each restore,
    `flushed` once, when a job that waits for its flushes has them, and neither its time nor its threads count. `advance`
    is called in each interval, as part of the computing."""
    out = Outcome(job.rank)
    pace = _Pace(job.interval, meet, advance, out)
    before = store.stats()
    busy = time.process_time() - time.thread_time()
    out.started = time.perf_counter()
    if job.hints == "all":
        _hint(history, list(job.order), out)
    _forward(history, job, arrays, pace, out)
    middle = store.stats()
    out.links.append(since(before, middle)["links"])
    if job.wait:
        start = time.perf_counter()
        history.wait(before["tiers"][-1]["name"])
        out.flush_wait_s = time.perf_counter() - start
        aside, aside_busy = time.perf_counter(), time.process_time() - time.thread_time()
        flushed()
        out.aside_s = time.perf_counter() - aside
        busy += time.process_time() - time.thread_time() - aside_busy
        middle = store.stats()
    _backward(history, job, arrays, pace, out)
    out.ended = time.perf_counter()
    out.runtime_cpu_s = time.process_time() - time.thread_time() - busy
    after = store.stats()
    out.links.append(since(middle, after)["links"])
    out.stats = since(before, after)
    tiers = [tier["name"] for tier in out.stats["tiers"]]
    out.found_on = [tiers[index] if index >= 0 else None for index in out.stats.pop("found_on")]
    out.prefetch_distance = list(out.stats.pop("prefetch_distance"))
    return out


def _hint(history: Any, versions: list[int], out: Outcome) -> None:
    start = time.perf_counter()
    history.hint(versions)
    out.hint_s += time.perf_counter() - start


def _bare(
    arrays: Arrays, job: Job, iteration: int, version: int, times: list[float], to: Any = None
) -> Callable[[], None] | None:
    """The bare copy that is due at this iteration; `to`: the memory that the call beside it writes, if it is the program's."""
    return partial(arrays.bare_copy, version, job.sizes[version], times, to) if iteration % BARE_EVERY == 0 else None


def _forward(history: Any, job: Job, arrays: Arrays, pace: _Pace, out: Outcome) -> None:
    for version, size in enumerate(job.sizes):
        window = arrays.contents.of(version, size)
        pace.compute(out.slept_forward_s, last=_bare(arrays, job, version, version, out.bare_forward_s))
        start = time.perf_counter()
        history.checkpoint(version, window)
        arrays.device.synchronize()
        out.checkpoint_s.append(time.perf_counter() - start)


def _backward(history: Any, job: Job, arrays: Arrays, pace: _Pace, out: Outcome) -> None:
    start = time.perf_counter()
    history.start_prefetch()
    out.hint_s += time.perf_counter() - start
    for i, version in enumerate(job.order):
        expected = arrays.contents.of(version, job.sizes[version])
        target = arrays.landing.at(job.sizes[version])
        if job.hints == "one" and i + 1 < len(job.order):
            _hint(history, [job.order[i + 1]], out)
        start = time.perf_counter()
        history.restore(version, out=target)
        arrays.device.synchronize()
        out.restore_s.append(time.perf_counter() - start)
        pace.compute(
            out.slept_backward_s,
            partial(_verify, arrays.landing, expected, out) if job.verify else None,
            _bare(arrays, job, i, version, out.bare_backward_s, target),
        )


def _verify(landing: Landing, expected: Any, out: Outcome) -> None:
    wrong = landing.wrong_bytes(expected)
    out.restores += 1
    out.wrong += wrong > 0
    out.wrong_bytes += wrong
