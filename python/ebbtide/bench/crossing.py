"""Background traffic between device and host memory while something else is measured."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np

from .._machine.device import Cpu


class Crossing:
    """Copies of `piece` bytes between the device and `memory`, one every `interval` seconds, each at the next place.

    memory: whole pieces of host memory, as `Cpu.pinned` gives them.
    """

    def __init__(self, device: Cpu, memory: np.ndarray, piece: int, interval: float) -> None:
        self._device, self._interval = device, interval
        self._places = [memory[at:][:piece] for at in range(0, len(memory), piece)]
        self._array = device.bytes(piece)

    @property
    def how(self) -> str:
        """The traffic."""
        return (
            f"{len(self._array)} bytes cross every {self._interval:g} s, to the device while it reads, from there else"
        )

    @contextlib.contextmanager
    def under_way(self, up: bool) -> Iterator[None]:
        """Copies run while this is open, to the device if `up`, else from there; their exceptions are raised at its end."""
        over = threading.Event()
        failures: list[BaseException] = []

        def cross() -> None:
            try:
                with self._device.use():
                    following = time.perf_counter()
                    for place in itertools.cycle(self._places):
                        self._device.copy(*((self._array, place) if up else (place, self._array)))
                        self._device.synchronize()
                        following = max(following + self._interval, time.perf_counter())
                        if over.wait(following - time.perf_counter()):
                            return
            except Exception as error:  # whatever a library raises: raised again at the end
                failures.append(error)

        thread = threading.Thread(target=cross)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]
