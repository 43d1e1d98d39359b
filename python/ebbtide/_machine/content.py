"""Checkpoint contents that cost nothing to make and in which any misplaced byte is detected.

One table of words, no two alike, is filled before the run; version v is the window that begins `STEP` * v bytes into
it. So the word at a place differs from version to version and from place to place, and the forward pass writes no
memory for the sake of the check.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .device import Cpu, aligned

STEP = 256  # every window is as aligned as an application's array, on a GPU too
GUARD = 4096  # bytes around the target that nothing may write to
_BLOCK = 1 << 20


def _mix(words: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words (the finisher of splitmix64), so that different words stay different."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Contents:
    """The contents of each version of one rank, in the memory of `device`.

    `versions`: how many there are; `largest`: bytes of the largest.
    """

    def __init__(self, device: Cpu, rank: int, versions: int, largest: int) -> None:
        words = -(-(largest + STEP * versions) // 8)
        table = aligned(words * 8).view(np.uint64)
        for first in range(0, words, _BLOCK):
            index = np.arange(first + 1, min(words, first + _BLOCK) + 1, dtype=np.uint64)
            table[first : first + len(index)] = _mix(index + np.uint64(rank << 40))
        self._device = device
        self._table = device.upload(table.view(np.uint8))

    def of(self, version: int, size: int) -> Any:
        """The bytes of `version`, read-only, shape (size,)."""
        return self._device.read_only(self._table[STEP * version : STEP * version + size])


class Landing:
    """Where restores go: `largest` bytes of `device` between two guards."""

    def __init__(self, device: Cpu, largest: int) -> None:
        self._device = device
        self._memory = device.bytes(largest + 2 * GUARD)
        self._memory[:] = 0xA5
        self._guard = device.upload(np.full(GUARD, 0xA5, np.uint8))
        self._largest = largest

    def at(self, size: int) -> Any:
        """The first `size` bytes, shape (size,)."""
        return self._memory[GUARD : GUARD + size]

    def wrong_bytes(self, expected: Any) -> int:
        """How many bytes differ from `expected`, those of the guards included."""
        guards = (self._memory[:GUARD], self._memory[GUARD + self._largest :])
        wrong = self._device.unequal(self.at(len(expected)), expected)
        return wrong + sum(self._device.unequal(guard, self._guard) for guard in guards)
