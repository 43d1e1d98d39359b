"""The rate of copies to the host by their size: each alone, and gathered on the device first (ics19 sec. 4.3.1)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._machine.device import Cpu, select

SIZES = tuple(1 << power for power in range(12, 25, 2))  # 4 KiB to 16 MiB
MOST = 1024  # copies in one turn
TURNS = 5
ALONE, GATHERED, STORE = "each alone", "gathered on the device", "a checkpoint of them"


def rates(name: str, total: int, say: Callable[[str], None]) -> Iterator[tuple[str, int, float]]:
    """The way, bytes of a copy, and bytes/s: the median of turns. name: of the device. total: bytes of one turn, at most.

    What is copied is every second piece of the device's memory, so that no two are beside one another.
    """
    device = select(name)
    with device.use():
        memory, host = device.bytes(2 * total), device.pinned(total)
        for size in SIZES:
            count = min(total // size, MOST)
            if count == 0:
                return
            say(f"{count} copies of {size >> 10} KiB")
            pieces = [memory[2 * n * size :][:size] for n in range(count)]
            yield ALONE, size, _alone(device, pieces, host)
            yield GATHERED, size, _gathered(device, memory, size, count, host)
            yield STORE, size, _stored(device, pieces)


def _timed(count: int, turn: Callable[[], None]) -> float:
    """Bytes/s of turns of `count` bytes; the first does not count."""
    seconds = []
    for _ in range(TURNS + 1):
        begin = time.perf_counter()
        turn()
        seconds.append(time.perf_counter() - begin)
    return count / statistics.median(seconds[1:])


def _alone(device: Cpu, pieces: list[Any], host: np.ndarray) -> float:
    size = len(pieces[0])
    places = [host[n * size :][:size] for n in range(len(pieces))]

    def turn() -> None:
        for place, piece in zip(places, pieces, strict=True):
            device.copy(place, piece)
        device.synchronize()

    return _timed(size * len(pieces), turn)


def _gathered(device: Cpu, memory: Any, size: int, count: int, host: np.ndarray) -> float:
    apart = memory[: 2 * count * size].reshape(count, 2, size)[:, 0]
    buffer = device.bytes(count * size)

    def turn() -> None:
        buffer.reshape(count, size)[...] = apart
        device.copy(host[: count * size], buffer)
        device.synchronize()

    return _timed(count * size, turn)


def _stored(device: Cpu, pieces: list[Any]) -> float:
    import ebbtide

    size = sum(map(len, pieces))
    room = 2 * size + (4 << 20)
    with ebbtide.open(device=device.name, device_cache=room, host_cache=room, disk=0) as store:
        history = store.history("pieces")
        versions = iter(range(TURNS + 1))

        def turn() -> None:
            version = next(versions)
            history.checkpoint(version, pieces)
            history.wait("host")
            if version:
                history.drop(version - 1)

        return _timed(size, turn)
