"""What most codes do: copy to ordinary memory, write a file, and go on."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import Given, Peer
from .files import VersionFiles, pageable


def open(given: Given) -> Peer:
    return Files(given)


class Files(Peer):
    def __init__(self, given: Given) -> None:
        self._device, self._files = given.device, VersionFiles(given.directory, given.cold)

    def buffer(self, size: int) -> np.ndarray:
        return pageable(size)

    def checkpoint(self, version: int, window: Any) -> None:
        buffer = self.buffer(len(window))
        self._device.copy(buffer[: len(window)], window)
        self._device.synchronize()
        self._files.write(version, buffer, len(window))

    def restore(self, version: int, out: Any) -> None:
        buffer = self.buffer(len(out))
        self._files.read(version, buffer, len(out))
        self._device.copy(out, buffer[: len(out)])
        self._device.synchronize()
