"""One shot's checkpoints again, without the waves: the same sizes and order, through the store and through plain files.

"Computing" is sleeping, so the comparison is of the time that each way blocks the program.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .._machine.content import Contents
from .._machine.device import Cpu

PAGE = 4096
CPU = Cpu()


class NoDirectIO(OSError):
    """The file system refuses O_DIRECT."""


class Way(Protocol):
    """A way to store checkpoints, blocking until the array may be changed, and to read them back."""

    def write(self, version: int, array: Any) -> None: ...

    def read(self, version: int, array: Any) -> None: ...


class ThroughStore:
    """A history of an open store, hinted in reverse."""

    def __init__(self, history: Any) -> None:
        self._history = history

    def write(self, version: int, array: Any) -> None:
        self._history.checkpoint(version, array)

    def read(self, version: int, array: Any) -> None:
        self._history.restore(version, out=array)


class ThroughHost:
    """Another way, for arrays of a GPU: through one pinned buffer, as a program writes its files."""

    def __init__(self, way: Way, device: Cpu, size: int) -> None:
        self._way, self._device = way, device
        self._buffer = device.pinned(size)

    def write(self, version: int, array: Any) -> None:
        self._device.copy(self._buffer, array)
        self._device.synchronize()
        self._way.write(version, self._buffer)

    def read(self, version: int, array: Any) -> None:
        self._way.read(version, self._buffer)
        self._device.copy(array, self._buffer)


def through_host(way: Way, device: Cpu, size: int) -> Way:
    """`way`, for arrays of `size` bytes on `device`."""
    return ThroughHost(way, device, size) if device.on_gpu else way


class DirectFiles:
    """One file per checkpoint, bypassing the page cache. Arrays are whole pages of memory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, version: int, array: np.ndarray) -> None:
        with direct_file(self._directory / f"{version}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            write_whole(file, array, 0)

    def read(self, version: int, array: np.ndarray) -> None:
        with direct_file(self._directory / f"{version}", os.O_RDONLY) as file:
            read_whole(file, array, 0)


class BufferedFiles:
    """One file per checkpoint, as with `tofile` and `fromfile`: in the page cache, which is written back later."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, version: int, array: np.ndarray) -> None:
        array.tofile(self._directory / f"{version}")

    def read(self, version: int, array: np.ndarray) -> None:
        array[...] = np.fromfile(self._directory / f"{version}", array.dtype).reshape(array.shape)


@dataclass(frozen=True)
class Pace:
    """What is replayed: `count` checkpoints of `size` bytes (whole pages), written in order and read in reverse, with
    `interval` seconds of computing before each."""

    count: int
    size: int
    interval: float


@dataclass
class Outcome:
    """One way's replay: for each call, writes first, when it began and how long it blocked (seconds)."""

    name: str
    note: str
    began_s: list[float] = field(default_factory=list)
    blocked_s: list[float] = field(default_factory=list)
    writes: int = 0
    wall_s: float = 0.0
    wrong_bytes: int = 0
    tier_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)  # tier -> bytes to it, from it

    @property
    def write_blocked_s(self) -> float:
        return sum(self.blocked_s[: self.writes])

    @property
    def read_blocked_s(self) -> float:
        return sum(self.blocked_s[self.writes :])

    def as_json(self) -> dict:
        return asdict(self) | {"write_blocked_s": self.write_blocked_s, "read_blocked_s": self.read_blocked_s}


def replay(
    way: Way,
    pace: Pace,
    outcome: Outcome,
    on_call: Callable[[], None] = lambda: None,
    device: Cpu = CPU,
) -> Outcome:
    """Runs `pace` through `way` with arrays on `device`, and fills `outcome`.

    Every byte read is compared, within the time of "computing". A call lasts until its stream is done too.
    """
    contents = Contents(device, 0, pace.count, pace.size)
    source, target = device.bytes(pace.size), device.bytes(pace.size)
    start = now = time.perf_counter()

    def call(work: Callable[[int, Any], None], version: int, array: Any) -> None:
        nonlocal now
        sleep_until(now + pace.interval)
        began = time.perf_counter()
        work(version, array)
        device.synchronize()
        now = time.perf_counter()
        outcome.began_s.append(began - start)
        outcome.blocked_s.append(now - began)
        on_call()

    outcome.writes = pace.count
    for version in range(pace.count):
        device.copy(source, contents.of(version, pace.size))
        device.synchronize()
        call(way.write, version, source)
    for version in reversed(range(pace.count)):
        call(way.read, version, target)
        outcome.wrong_bytes += device.unequal(target, contents.of(version, pace.size))
    outcome.wall_s = now - start
    return outcome


@dataclass(frozen=True)
class DiskRates:
    """Bytes per second of the disk itself, as `_machine.files.file_rates` measures them."""

    write: float
    read: float

    @property
    def slower(self) -> float:
        return min(self.write, self.read)


def sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


def whole_pages(size: int) -> int:
    """`size` rounded up to pages, as O_DIRECT wants it."""
    return -(-size // PAGE) * PAGE


def write_whole(file: int, array: np.ndarray, offset: int) -> None:
    """Writes all of `array` at `offset`; a short write is continued where it ended."""
    left = memoryview(array).cast("B")
    while left:
        done = os.pwrite(file, left, offset)
        left, offset = left[done:], offset + done


def read_whole(file: int, array: np.ndarray, offset: int) -> None:
    """Fills all of `array` from `offset`; EOFError when the file ends before."""
    left = memoryview(array).cast("B")
    while left:
        done = os.preadv(file, [left], offset)
        if not done:
            raise EOFError(f"the file ends {len(left)} bytes too early")
        left, offset = left[done:], offset + done


@contextlib.contextmanager
def direct_file(path: Path, flags: int) -> Iterator[int]:
    """`path` opened with O_DIRECT; NoDirectIO where that is refused."""
    try:
        file = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise NoDirectIO(error.errno, "this file system refuses O_DIRECT", str(path.parent)) from error
    try:
        yield file
    finally:
        os.close(file)
