"""The bare rates of a disk: O_DIRECT reads and writes.

Files are written on space that was preallocated and never written before (as the store's scratch file is in a shot) and
read back, at several queue depths; the best is measured again and the median of that is given.
"""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
BLOCK = 4096
HOW_FILE = (
    "preallocated unlinked file, first write of its space, O_DIRECT, threads with preadv/pwritev; "
    "best of queue depth, then the median of 3"
)
SECONDS, MOST = 0.15, 256 << 20  # how long one write or read takes about, and its bytes at most


@dataclass
class FileRate:
    """The best bare rate in one direction."""

    bytes_per_s: float
    depth: int
    request: int
    direct: bool


class Scratch:
    """An unlinked file, O_DIRECT where the file system has it."""

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_TMPFILE
        try:
            self.fd, self.direct = os.open(directory, flags | os.O_DIRECT, 0o600), True
        except OSError:
            try:
                self.fd, self.direct = os.open(directory, flags, 0o600), False
            except OSError:  # a file system without unnamed files
                self.fd, path = tempfile.mkstemp(dir=directory)
                os.unlink(path)
                self.direct = False

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.fd)

    def fresh(self, span: int) -> None:
        """`span` bytes that were preallocated and never written."""
        os.ftruncate(self.fd, 0)
        os.posix_fallocate(self.fd, 0, span)


def move(
    fd: int, requests: Iterable[tuple[int, T]], view: Callable[[int, T], memoryview], depth: int, write: bool
) -> float:
    """Seconds that `depth` threads take to write or read all `requests`: each its offset in the file and what `view` finds
    its memory by, with the thread's number."""
    transfer, left = os.pwritev if write else os.preadv, iter(requests)
    lock = threading.Lock()
    failures: list[OSError] = []

    def work(thread: int) -> None:
        try:
            while not failures:
                with lock:
                    following = next(left, None)
                if following is None:
                    return
                memory = view(thread, following[1])
                moved = transfer(fd, [memory], following[0])
                if moved != len(memory):
                    raise OSError(f"{'wrote' if write else 'read'} {moved} of {len(memory)} bytes")
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(depth)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    if failures:
        raise failures[0]
    return elapsed


def _move(fd: int, span: int, request: int, depth: int, write: bool) -> float:
    """Seconds for `span` bytes by `request`, each thread with a buffer of its own."""
    buffers = [mmap.mmap(-1, request) for _ in range(depth)]
    for i, buffer in enumerate(buffers):
        buffer.write(bytes([i + 1]) * request)
    requests = ((offset, min(request, span - offset)) for offset in range(0, span, request))
    return move(fd, requests, lambda thread, size: memoryview(buffers[thread])[:size], depth, write)


def file_rates(
    directory: Path,
    depths: tuple[int, ...] = (1, 2, 4, 8),
    request: int = 4 << 20,
    probe: int = 16 << 20,
    repeats: int = 3,
) -> tuple[FileRate, FileRate]:
    """The best bare write and read rates in `directory`: the one way in which the doctor, the demo and the benchmark
    measure a disk, so their figures agree. Takes a second or two, whatever the disk; `probe`: bytes for each depth."""
    with Scratch(directory) as file:
        best: dict[bool, tuple[float, int]] = {}
        for depth in depths:
            file.fresh(probe)
            for write in (True, False):
                rate = probe / _move(file.fd, probe, request, depth, write)
                best[write] = max(best.get(write, (0.0, 0)), (rate, depth))
        slower = min(rate for rate, _ in best.values())
        free = os.fstatvfs(file.fd)
        most = min(int(slower * SECONDS), MOST, free.f_bavail * free.f_frsize // 4)
        span = max(probe, most // BLOCK * BLOCK)
        rates: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(repeats):
            file.fresh(span)
            for write in (True, False):
                depth = best[write][1]
                rates[write].append(span / _move(file.fd, span, request, depth, write))
        write, read = (
            FileRate(statistics.median(rates[way]), best[way][1], request, file.direct) for way in (True, False)
        )
        return write, read
