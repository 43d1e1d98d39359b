"""The bare disk at one moment, by the same kind of access as a store's: so many transfers of a size at once, from and to
memory that the device moves from and to, whole checkpoints after one another, in the order in which a shot reads them,
each to a place of its own. Beside it checkpoints cross between that memory and the device, as they do in a shot.

A shot writes into space of a file that shots before it had written to, and reads once what it has written. So does this:
what was read again and again, or written once and for all, comes faster from some disks.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .config import Config
from .crossing import Crossing
from .device import Cpu
from .rates import BLOCK, Scratch

SPAN = 4 << 30  # bytes that are written, and then read
PARTS = 8  # of them; the median of their rates counts
REQUEST = 4 << 20  # a file link's longest transfer


@dataclass
class Moment:
    """Bytes/s, bare: `read` by order."""

    write: float
    read: dict[str, float]


@dataclass
class Around:
    """The moments just before and just after a shot that reads in `order`, and the one `between` its two passes, when
    all is flushed: of a shot that does not wait for that there is none."""

    before: Moment
    after: Moment
    order: str
    between: Moment | None = None

    def mean(self) -> dict[str, float]:
        """Bytes/s by name: the mean of the two moments nearest to the writing, and to the reading."""
        written = (self.before, self.between or self.after)
        read = (self.between or self.before, self.after)
        return {
            "write": statistics.mean(moment.write for moment in written),
            "read": statistics.mean(moment.read[self.order] for moment in read),
        }

    def as_json(self) -> dict:
        """With the rates that count as `mean`."""
        return asdict(self) | {"mean": self.mean()}


class Disk:
    """Measures the disk under `directory` for checkpoints of `piece` bytes, of which one crosses every `interval` s."""

    def __init__(
        self,
        directory: Path,
        device: Cpu,
        piece: int,
        span: int = SPAN,
        request: int = REQUEST,
        depth: int | None = None,
        interval: float = 0.0,
    ) -> None:
        self._request = request
        self._depth = depth or (8 if device.on_gpu else 2)  # as a store's file links have
        self._piece = -(-piece // BLOCK) * BLOCK
        self._pieces = max(1, span // self._piece)
        self._span = self._pieces * self._piece
        self._memory = device.pinned(self._span)
        self._memory[:] = 1
        self._crossing = Crossing(device, self._memory, self._piece, interval)
        self._file = Scratch(directory)
        try:
            self._file.fresh(self._span)
            self._write()
        except BaseException:
            self.close()
            raise

    @classmethod
    def like(cls, config: Config, device: Cpu) -> Disk:
        """For a shot like that of `config`."""
        span = min(SPAN, config.history())
        return cls(config.directory, device, config.median_size(), span, interval=config.interval)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def how(self) -> str:
        """How it is measured."""
        return (
            f"{self._span} bytes written again in place, and read then by {self._piece}, in the shot's order; {self._depth} transfers of {self._request} at once, "
            f"{'O_DIRECT' if self._file.direct else 'buffered'}; beside it {self._crossing.how}; "
            f"the median of {PARTS} parts"
        )

    def measure(self, orders: Iterable[str]) -> Moment:
        """Now."""
        writes, reads = [], {}
        for order in sorted(set(orders)):
            writes.append(self._write())
            reads[order] = self._move(self._in_order(order), write=False)
        return Moment(statistics.mean(writes), reads)

    def _write(self) -> float:
        return self._move(range(self._pieces), write=True)

    def _in_order(self, order: str) -> list[int]:
        pieces = list(range(self._pieces))
        if order == "reverse":
            pieces.reverse()
        elif order == "irregular":
            random.Random(0).shuffle(pieces)
        return pieces

    def _move(self, pieces: Iterable[int], write: bool) -> float:
        """Bytes/s of writing or reading these pieces."""
        requests = (
            (piece * self._piece + at, min(self._request, self._piece - at))
            for piece in pieces
            for at in range(0, self._piece, self._request)
        )
        transfer = os.pwritev if write else os.preadv
        lock = threading.Lock()
        ended: list[tuple[float, int]] = []  # when, and how many bytes
        failures: list[OSError] = []

        def work() -> None:
            try:
                while not failures:
                    with lock:
                        offset, size = next(requests, (0, 0))
                    if not size:
                        return
                    view = memoryview(self._memory)[offset:][:size]
                    moved = transfer(self._file.fd, [view], offset)
                    if moved != size:
                        raise OSError(f"{'wrote' if write else 'read'} {moved} of {size} bytes")
                    ended.append((time.perf_counter(), size))
            except OSError as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(self._depth)]
        with self._crossing.under_way(up=not write):
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failures:
            raise failures[0]
        return median_rate(start, ended)


def median_rate(start: float, ended: list[tuple[float, int]], parts: int = PARTS) -> float:
    """Bytes/s: the median over parts of about as many transfers each, one after the other from `start` on.

    ended: of each transfer when it had ended, and its bytes.
    """
    ended = sorted(ended)
    parts = min(parts, len(ended))
    ends = [len(ended) * part // parts for part in range(parts + 1)]
    rates = []
    for first, last in itertools.pairwise(ends):
        until = ended[last - 1][0]
        rates.append(sum(size for _, size in ended[first:last]) / max(until - start, 1e-9))
        start = until
    return statistics.median(rates)
