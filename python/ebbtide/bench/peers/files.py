"""A file for each version, written and read whole. None is removed while the shot is timed: a store removes none either."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

_BLOCK = 4096


def padded(size: int) -> int:
    """Bytes of a buffer for a version of `size` bytes."""
    return -(-size // _BLOCK) * _BLOCK


class VersionFiles:
    """Thread safety: each version by one thread at a time.

    cold: past the page cache (O_DIRECT), so that reading is reading from the disk. Buffers begin at a page and have
    `padded(size)` bytes.
    """

    def __init__(self, directory: Path, cold: bool) -> None:
        self._directory, self._direct = directory, os.O_DIRECT if cold else 0

    def path(self, version: int) -> Path:
        return self._directory / f"{version}.ckpt"

    def write(self, version: int, buffer: np.ndarray, size: int) -> None:
        file = os.open(self.path(version), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | self._direct, 0o600)
        try:
            _whole(file, buffer, padded(size) if self._direct else size, os.pwritev)
        finally:
            os.close(file)

    def read(self, version: int, buffer: np.ndarray, size: int) -> None:
        file = os.open(self.path(version), os.O_RDONLY | self._direct)
        try:
            _whole(file, buffer, padded(size) if self._direct else size, os.preadv)
        finally:
            os.close(file)


def _whole(file: int, buffer: np.ndarray, size: int, call) -> None:
    view = memoryview(buffer)[:size]
    at = 0
    while at < size:
        moved = call(file, [view[at:]], at)
        if moved == 0:
            raise EOFError(f"a file ends after {at} of {size} bytes")
        at += moved


def pageable(size: int) -> np.ndarray:
    """A new buffer, whose pages come when they are written."""
    return np.frombuffer(mmap.mmap(-1, max(1, padded(size))), dtype=np.uint8)
