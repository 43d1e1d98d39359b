"""An engineer's afternoon: two pinned buffers, a thread that writes, and one that reads ahead along the hints."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from . import Given, Peer
from .files import VersionFiles, padded


def open(given: Given) -> Peer:
    return Double(given)


class Double(Peer):
    def __init__(self, given: Given) -> None:
        self._device, self._sizes = given.device, given.sizes
        self._files = VersionFiles(given.directory, given.cold)
        self._free: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        largest = padded(max(given.sizes))
        for _ in range(2):
            self._free.put(given.device.pinned(largest))
        self._aside = given.device.pinned(largest)  # for a restore that was not hinted
        self._writer, self._reader = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._written: dict[int, Future[None]] = {}
        self._hinted: deque[int] = deque()
        self._ahead: deque[tuple[int, Future[np.ndarray]]] = deque()  # at most two, in the order of the hints
        self._reading = False

    def checkpoint(self, version: int, window: Any) -> None:
        buffer = self._free.get()
        self._device.copy(buffer[: len(window)], window)
        self._device.synchronize()
        self._written[version] = self._writer.submit(self._write, version, buffer, len(window))

    def _write(self, version: int, buffer: np.ndarray, size: int) -> None:
        try:
            self._files.write(version, buffer, size)
        finally:
            self._free.put(buffer)

    def hint(self, versions: Sequence[int]) -> None:
        self._hinted.extend(versions)
        self._read_ahead()

    def start_prefetch(self) -> None:
        self._reading = True
        self._read_ahead()

    def _read_ahead(self) -> None:
        while self._reading and self._hinted and len(self._ahead) < 2:
            version = self._hinted.popleft()
            self._ahead.append((version, self._reader.submit(self._read, version)))

    def _read(self, version: int) -> np.ndarray:
        self._written[version].result()
        buffer = self._free.get()
        self._files.read(version, buffer, self._sizes[version])
        return buffer

    def restore(self, version: int, out: Any) -> None:
        ahead = bool(self._ahead) and self._ahead[0][0] == version
        if ahead:
            buffer = self._ahead.popleft()[1].result()
        else:
            buffer = self._aside
            self._written[version].result()
            self._files.read(version, buffer, len(out))
        self._device.copy(out, buffer[: len(out)])
        self._device.synchronize()
        if ahead:
            self._free.put(buffer)
        self._read_ahead()

    def wait(self, tier: str) -> None:
        for written in self._written.values():
            written.result()

    def close(self) -> None:
        self._writer.shutdown()
        self._reader.shutdown(cancel_futures=True)
