"""The experiments of wag-dbi, sec. VI: what a pool of a node's memory saves programs that checkpoint at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .. import node_job
from ..node_job import BUFFERED, FSYNC, MIB, MIXES, OWN_BUFFERS, Mix, Way, pool_of
from .figure import Labels, Place, Scale, Values

POOLS = (16, 64, 256)  # MiB
ROUNDS = 5
BY_POOL = (FSYNC, BUFFERED, *(pool_of(size * MIB) for size in POOLS))
BY_STRATEGY = (FSYNC, OWN_BUFFERS, pool_of(64 * MIB))
DIFFERS = (
    "eight processes in Python that write to files in the sizes of the paper's figure 2, in place of 64 under BLCR and MPI on"
    " eight nodes: phase 2 alone; `fsync` stands for the original, whose writes are durable when they return"
)
SLEEPS = (
    f"{DIFFERS}; it sleeps for half a second before each checkpoint: what is written meanwhile takes no time of its own, and"
    " neither does what is left at the end"
)

Found = Iterator[tuple[Labels, float]]
Say = Callable[[str], None]


def _each(ways: tuple[Way, ...], say: Say, value: Callable[[Mix, Way], float]) -> Found:
    for mix in MIXES:
        for way in ways:
            say(f"{mix.name}, {way.name}")
            yield {"program": mix.name, "by": way.name}, value(mix, way)


def _blocked(scale: Scale, place: Place, say: Say) -> Found:
    def value(mix: Mix, way: Way) -> float:
        return node_job.median(node_job.checkpoints(mix, way, place.directory, ROUNDS).blocked)

    return _each(BY_POOL, say, value)


def _slow_down(ways: tuple[Way, ...]):
    def values(scale: Scale, place: Place, say: Say) -> Found:
        return _each(ways, say, lambda mix, way: 100 * node_job.slow_down(mix, way, place.directory))

    return values


def _speedup(scale: Scale, place: Place, say: Say) -> Found:
    found: dict[str, float] = {}
    for labels, blocked in _each(
        BY_STRATEGY,
        say,
        lambda mix, way: node_job.median(node_job.checkpoints(mix, way, place.directory, ROUNDS).blocked),
    ):
        original = found.setdefault(labels["program"], blocked)
        yield labels, original / blocked


def _overlap(scale: Scale, place: Place, say: Say) -> Found:
    def value(mix: Mix, way: Way) -> float:
        found = node_job.checkpoints(mix, way, place.directory, ROUNDS)
        return node_job.median(found.durable) - node_job.median(found.blocked)

    return _each(BY_POOL[2:], say, value)


def _memory(scale: Scale, place: Place, say: Say) -> Found:
    def value(mix: Mix, way: Way) -> float:
        return (way.pool + node_job.checkpoints(mix, way, place.directory, ROUNDS).memory) / MIB

    return _each((OWN_BUFFERS, *BY_POOL[2:]), say, value)


def _restart(scale: Scale, place: Place, say: Say) -> Found:
    return _each((FSYNC, pool_of(64 * MIB)), say, lambda mix, way: node_job.restart(mix, way, place.directory))


FIGURES = {
    "7a": Values(
        "time of one checkpoint by the size of the pool",
        "11.2 s to 4.27 s for BT.C.64 with 64 MB (sec. VI-B)",
        DIFFERS,
        "by",
        "until the last process goes on (ms)",
        _blocked,
    ),
    "7b": Values(
        "how much longer a program runs with three checkpoints, by the size of the pool",
        "20.77% by BLCR, 6.86% with 64 MB for BT.C.64 (sec. VI-B)",
        SLEEPS,
        "by",
        "longer (%)",
        _slow_down(BY_POOL),
    ),
    "8a": Values(
        "checkpoints with buffers of each process and with a pool of 64 MiB",
        "1.5 and 1.22 times as fast with buffers, 2.23 and 2.62 with the pool (sec. VI-C)",
        DIFFERS,
        "by",
        "times as fast as fsync",
        _speedup,
    ),
    "8b": Values(
        "how much longer a program runs with three checkpoints, with buffers of each process and with a pool of 64 MiB",
        "20.77% by BLCR, 15.77% with buffers, 6.86% with the pool for BT.C.64 (sec. VI-C)",
        SLEEPS,
        "by",
        "longer (%)",
        _slow_down(BY_STRATEGY),
    ),
    "9": Values(
        "time for which a checkpoint is written to the disk while the program goes on, by the size of the pool",
        "the longer, the larger the pool and the checkpoint (sec. VI-D)",
        DIFFERS,
        "by",
        "until it is durable, after the last process has gone on (ms)",
        _overlap,
    ),
    "II": Values(
        "memory of a node that checkpoints take, by buffers of each process and by the size of the pool",
        "78.2 and 81.2 MB by buffers of 256 KiB (Table II); the pool, 64 MB",
        f"{DIFFERS}; with the pool: all of it, what the processes have beside, and what stands in the page cache",
        "by",
        "memory (MiB)",
        _memory,
    ),
    "III": Values(
        "a restart: all processes read their last checkpoint from the disk",
        "files are rebuilt in 1.59 and 3.18 s of 9.25 and 9.52 s (Table III)",
        f"{DIFFERS}; nothing is rebuilt, for a store's files are read as they are; opening the store counts",
        "by",
        "restart (s)",
        _restart,
    ),
}
