"""The bare disk at one moment, by the same kind of access as a store's: so many transfers of a size at once, from and to
memory that the device moves from and to, whole checkpoints after one another, in the order in which a shot reads them.
Beside it checkpoints cross between that memory and the device, as they do in a shot.

A shot writes into space of a file that shots before it had written to, and reads once what it has written. So does this:
what was read again and again, or written once and for all, comes faster from some disks. And it moves as many bytes as
the shot's caches cannot hold, all of which count: many disks are faster for the first gigabytes than for those after.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .._machine.device import Cpu
from .._machine.files import BLOCK, Scratch, move
from .config import Config
from .crossing import Crossing

MEMORY = 4 << 30  # bytes of host memory at most; places on the disk beyond it share its places in turn
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
    """Measures the disk under `directory` with `span` bytes in checkpoints of `piece` bytes, of which one crosses every
    `interval` s."""

    def __init__(
        self,
        directory: Path,
        device: Cpu,
        piece: int,
        span: int,
        request: int = REQUEST,
        depth: int | None = None,
        interval: float = 0.0,
        memory: int = MEMORY,
    ) -> None:
        self._request = request
        self._depth = depth or (8 if device.on_gpu else 2)  # as in a store's file links
        self._piece = -(-piece // BLOCK) * BLOCK
        self._pieces = max(1, span // self._piece)
        self._span = self._pieces * self._piece
        self._places = max(1, min(self._pieces, memory // self._piece))
        self._memory = device.pinned(self._places * self._piece)
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
        return cls(config.directory, device, config.median_size(), beyond_caches(config), interval=config.interval)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def how(self) -> str:
        """How the disk is measured."""
        return (
            f"{self._span} bytes written again in place, and read then by {self._piece}, in the shot's order; {self._depth} transfers of {self._request} at once, "
            f"{'O_DIRECT' if self._file.direct else 'buffered'}; beside it {self._crossing.how}; "
            "all bytes over all the time"
        )

    def measure(self, orders: Iterable[str]) -> Moment:
        """Measures now."""
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
        memory = memoryview(self._memory)

        def view(_: int, place: tuple[int, int]) -> memoryview:
            piece, at = place
            size = min(self._request, self._piece - at)
            return memory[piece % self._places * self._piece + at :][:size]

        requests = (
            (piece * self._piece + at, (piece, at)) for piece in pieces for at in range(0, self._piece, self._request)
        )
        with self._crossing.under_way(up=not write):
            return self._span / move(self._file.fd, requests, view, self._depth, write)


def beyond_caches(config: Config) -> int:
    """Bytes of a shot's history that its caches cannot hold; a checkpoint at least."""
    return max(config.history() - config.device_cache - config.host_cache, config.median_size())
