"""A job on one node whose processes checkpoint at the same moment, in writes of the sizes that programs make (wag-dbi sec. II).

Each process writes its image to a file of its own, once a checkpoint: plainly, through a buffer of its own, or to a file of
a store whose processes share a node's pool.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from .ranks import Meet, each_in_a_process

PROCESSES = 8
WARM = 2  # checkpoints before those that count: they touch the pool's memory
MIB = 1 << 20


@dataclass(frozen=True)
class Mix:
    """The checkpoint of one process (Table I)."""

    name: str
    writes: int
    bytes: int


MIXES = (Mix("LU.C.64", 975, 23_000_000), Mix("BT.C.64", 1057, 40_000_000))

#: Of each class (fig. 2): how many of a thousand writes, how much of a thousand of the bytes, the least and the most bytes.
CLASSES = ((513, 1, 8, 64), (107, 14, 64, 4096), (370, 120, 4096, 64 << 10), (10, 865, 512 << 10, 8 * MIB))


def sizes(mix: Mix, rank: int) -> list[int]:
    """Bytes of each write, in order: the same in each call."""
    draw = random.Random(rank)
    found = []
    for writes, share, least, most in CLASSES:
        weights = [draw.uniform(0.5, 1.5) for _ in range(max(1, mix.writes * writes // 1000))]
        of_one = mix.bytes * share / 1000 / sum(weights)
        found += [int(min(max(weight * of_one, least), most)) for weight in weights]
    draw.shuffle(found)
    return found


@dataclass(frozen=True)
class Way:
    """How the processes write. gather: bytes of each process's own buffer. pool: bytes that they share; 0: plain files."""

    name: str
    sync: bool = True
    gather: int = 0
    pool: int = 0


FSYNC = Way("fsync")
BUFFERED = Way("page cache alone", sync=False)
OWN_BUFFERS = Way("own buffers of 256 KiB", gather=256 << 10)


def pool_of(size: int) -> Way:
    """size: bytes of the node's pool."""
    return Way(f"pool of {size // MIB} MiB", pool=size)


@dataclass(frozen=True)
class Program:
    """One run of the job: `name` tells it from others of this node."""

    mix: Mix
    way: Way
    directory: Path
    name: str
    processes: int


def _private() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))


class Writer(ABC):
    """One process's files, a version for each checkpoint. most: private bytes while one was written."""

    most = 0

    @abstractmethod
    def write(self, version: int, pieces: Sequence[memoryview]) -> None:
        """The program goes on when it returns."""

    def settle(self) -> None:
        """Until what was written is durable."""

    @abstractmethod
    def read(self, version: int, into: bytearray) -> int:
        """Bytes of that version, read from the disk."""

    def beside(self) -> int:
        """Bytes of the node's memory in use beside that of the processes, now."""
        return 0

    def close(self) -> None:
        """Ends the process's part."""


class Plain(Writer):
    """Plain files."""

    def __init__(self, program: Program, rank: int) -> None:
        self._way, self._stem = program.way, program.directory / f"image-{rank}"

    def _path(self, version: int) -> Path:
        return self._stem.with_suffix(f".{version}")

    def write(self, version: int, pieces: Sequence[memoryview]) -> None:
        file: IO[bytes]
        with open(self._path(version), "wb", buffering=self._way.gather) as file:
            for piece in pieces:
                file.write(piece)
            self.most = max(self.most, _private())
            if self._way.sync:
                file.flush()
                os.fsync(file.fileno())

    def read(self, version: int, into: bytearray) -> int:
        with open(self._path(version), "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.readinto(into)


class Shared(Writer):
    """Files of a store."""

    def __init__(self, program: Program, rank: int) -> None:
        import ebbtide

        os.environ |= {
            "EBBTIDE_JOB": program.name,
            "EBBTIDE_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(program.processes),
        }
        options: dict[str, Any] = {"device": "cpu", "device_cache": 0, "disk": "8GiB", "durability": "node"}
        self._store = ebbtide.open(program.directory, node_pool=program.way.pool, **options)

    def write(self, version: int, pieces: Sequence[memoryview]) -> None:
        with self._store.create_file("image", version) as file:
            for piece in pieces:
                file.write(piece)
        self._store.wait("node")
        self.most = max(self.most, _private())

    def settle(self) -> None:
        self._store.wait("storage")

    def read(self, version: int, into: bytearray) -> int:
        with self._store.open_file("image", version) as file:
            return file.readinto(into)

    def beside(self) -> int:
        return self._store.stats()["node"]["bytes_beside"]

    def close(self) -> None:
        self._store.close()


def _writer(program: Program, rank: int) -> Writer:
    return Shared(program, rank) if program.way.pool else Plain(program, rank)


@dataclass(frozen=True)
class _Process:
    """What one process tells of its rounds: times of one clock, and bytes."""

    begins: list[float]
    ends: list[float]
    durable: list[float]
    private: int
    beside: int


@dataclass(frozen=True)
class Times:
    """All checkpoints of a job that count, in seconds, and the most memory that it took, in bytes, but for the pool."""

    blocked: list[float]  # from the first process's beginning to the end of the last one's writing: t2 - t1
    durable: list[float]  # until all is on the disk: t3 - t1
    memory: int


def _pieces(mix: Mix, rank: int) -> list[memoryview]:
    """What each write of that process has."""
    image = memoryview(random.Random(rank).randbytes(MIB) * (CLASSES[-1][-1] // MIB))
    return [image[:size] for size in sizes(mix, rank)]


def _checkpoints(program: Program, rounds: int, compute: float, rank: int, meet: Meet) -> _Process:
    pieces = _pieces(program.mix, rank)
    before = _private()
    writer = _writer(program, rank)
    begins, ends, durable, beside = [], [], [], 0
    try:
        for version in range(rounds):
            time.sleep(compute)
            meet()
            begins.append(time.monotonic())
            writer.write(version, [memoryview(version.to_bytes(8, "little")), *pieces])
            ends.append(time.monotonic())
            beside = max(beside, writer.beside())
            if not compute:
                writer.settle()
            durable.append(time.monotonic())
            meet()
    finally:
        writer.close()
    return _Process(begins, ends, durable, max(0, writer.most - before), beside)


def checkpoints(
    mix: Mix, way: Way, directory: Path, rounds: int, compute: float = 0, processes: int = PROCESSES
) -> Times:
    """The job's checkpoints, `rounds` of which count. compute: seconds that each process computes before each; with them,
    the next one does not wait until the last is durable."""
    with _program(mix, way, directory, processes, WARM + rounds) as program:
        works = [partial(_checkpoints, program, WARM + rounds, compute, rank) for rank in range(processes)]
        told = each_in_a_process(works)
    begins = [min(times) for times in zip(*(process.begins for process in told), strict=True)][WARM:]
    ends = [max(times) for times in zip(*(process.ends for process in told), strict=True)][WARM:]
    durable = [max(times) for times in zip(*(process.durable for process in told), strict=True)][WARM:]
    return Times(
        [end - begin for begin, end in zip(begins, ends, strict=True)],
        [end - begin for begin, end in zip(begins, durable, strict=True)],
        sum(process.private for process in told) + max(process.beside for process in told),
    )


def slow_down(mix: Mix, way: Way, directory: Path, compute: float = 0.5, processes: int = PROCESSES) -> float:
    """How much longer the job runs with three checkpoints at equal intervals, over the time without (fig. 7b): a share.
    compute: seconds of an interval."""
    return sum(checkpoints(mix, way, directory, 3, compute, processes).blocked) / (3 * compute)


def _restart(program: Program, version: int, rank: int, meet: Meet) -> tuple[float, float]:
    expected = version.to_bytes(8, "little") + b"".join(_pieces(program.mix, rank))
    got = bytearray(len(expected))
    meet()
    begin = time.monotonic()
    writer = _writer(program, rank)
    try:
        length = writer.read(version, got)
        end = time.monotonic()
        if length != len(expected) or got != expected:
            raise RuntimeError(f"version {version} of process {rank} came back wrong")
        meet()
    finally:
        writer.close()
    return begin, end


def restart(mix: Mix, way: Way, directory: Path, processes: int = PROCESSES) -> float:
    """Seconds in which all processes of another job read the last of three checkpoints back, from the disk. Each byte is
    compared."""
    with _program(mix, way, directory, processes, 3) as program:
        each_in_a_process([partial(_checkpoints, program, 3, 0.0, rank) for rank in range(processes)])
        again = replace(program, name=f"{program.name}-again")
        told = each_in_a_process([partial(_restart, again, 2, rank) for rank in range(processes)])
    return max(end for _, end in told) - min(begin for begin, _ in told)


def median(times: Sequence[float]) -> float:
    """In milliseconds."""
    return 1e3 * statistics.median(times)


class TooLittleRoom(ValueError):
    """On the disk, for what is to be written there."""


@contextlib.contextmanager
def _program(mix: Mix, way: Way, directory: Path, processes: int, rounds: int) -> Iterator[Program]:
    """With a directory of its own."""
    needed, free = processes * mix.bytes * rounds * 5 // 4, shutil.disk_usage(directory).free
    if free < needed:
        raise TooLittleRoom(
            f"{rounds} checkpoints of {mix.name} need {needed} bytes in {directory}, which has {free} free"
        )
    place = Path(tempfile.mkdtemp(prefix="ebbtide-job-", dir=directory))
    try:
        yield Program(mix, way, place, f"bench-{os.getpid()}-{place.name}", processes)
    finally:
        shutil.rmtree(place, ignore_errors=True)
