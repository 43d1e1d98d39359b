"""KvikIO's futures between the GPU's memory and a file a version, read ahead along the hints. Where there is no nvidia-fs,
KvikIO copies through buffers of its own in host memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import kvikio
from kvikio import defaults

from . import Given, Peer

THREADS = 8


def open(given: Given) -> Peer:
    return Futures(given)


class Futures(Peer):
    """As many buffers in the GPU's memory as the device cache would hold: versions on their way out, and versions ahead."""

    def __init__(self, given: Given) -> None:
        self._given = given
        defaults.set({"num_threads": THREADS, "auto_direct_io_read": given.cold, "auto_direct_io_write": given.cold})
        largest = max(given.sizes)
        count = max(2, given.store["device_cache"] // largest)
        self._free = [given.device.bytes(largest) for _ in range(count)]
        self._writing: dict[int, tuple[Any, Any, Any]] = {}  # file, future, buffer; the oldest first
        self._hinted: deque[int] = deque()
        self._ahead: deque[tuple[int, Any, Any, Any]] = deque()  # version, file, future, buffer
        self._reading = False

    def _file(self, version: int, flags: str) -> Any:
        return kvikio.CuFile(self._given.directory / f"{version}.kvikio", flags)

    def _written(self, version: int) -> None:
        if version in self._writing:
            file, future, buffer = self._writing.pop(version)
            future.get()
            file.close()
            self._free.append(buffer)

    def checkpoint(self, version: int, window: Any) -> None:
        if not self._free:
            self._written(next(iter(self._writing)))
        buffer = self._free.pop()
        self._given.device.copy(buffer[: len(window)], window)
        self._given.device.synchronize()
        file = self._file(version, "w")
        self._writing[version] = file, file.pwrite(buffer[: len(window)]), buffer

    def hint(self, versions: Sequence[int]) -> None:
        self._hinted.extend(versions)
        self._read_ahead()

    def start_prefetch(self) -> None:
        self._reading = True
        self._read_ahead()

    def _read_ahead(self) -> None:
        while self._reading and self._hinted:
            if not self._free and self._writing:
                self._written(next(iter(self._writing)))
            if not self._free:
                return
            version = self._hinted.popleft()
            self._written(version)
            buffer, file = self._free.pop(), self._file(version, "r")
            self._ahead.append((version, file, file.pread(buffer[: self._given.sizes[version]]), buffer))

    def restore(self, version: int, out: Any) -> None:
        if self._ahead and self._ahead[0][0] == version:
            _, file, future, buffer = self._ahead.popleft()
            future.get()
            self._given.device.copy(out, buffer[: len(out)])
            self._given.device.synchronize()
            self._free.append(buffer)
        else:
            self._written(version)
            file = self._file(version, "r")
            file.pread(out).get()
        file.close()
        self._read_ahead()

    def wait(self, tier: str) -> None:
        for version in list(self._writing):
            self._written(version)

    def close(self) -> None:
        self.wait("files")
        for _, file, future, _ in self._ahead:
            future.get()
            file.close()
