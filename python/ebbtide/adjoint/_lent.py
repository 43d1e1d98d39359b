"""Reading without a copy, where the store's memory can be shown as the arrays that were written."""

from __future__ import annotations

from typing import Any

import numpy as np

import ebbtide
from ebbtide import errors


class Lent:
    """The versions of a history. What consists of NumPy's arrays alone is read as the cache's own memory, read-only.

    Arrays of another library are copied: the cache would show them as NumPy's, or its memory is on a GPU.
    """

    def __init__(self, history: ebbtide.History) -> None:
        self._history = history
        self._lends = _in_host_memory(history)

    def checkpoint(self, version: int, arrays: Any) -> None:
        self._lends = self._lends and _of_numpy(arrays)
        self._history.checkpoint(version, arrays)

    def restore(self, version: int, *, keep: bool) -> Any:
        return self._history.restore(version, keep=keep, adopt=self._lends)

    def drop(self, version: int) -> None:
        self._history.drop(version)


def _in_host_memory(history: ebbtide.History) -> bool:
    """Whether the first cache of its store is."""
    try:
        reservation = history.reserve(0, 1, "uint8")
    except errors.Error:  # there is no cache
        return False
    try:
        return isinstance(reservation.array, np.ndarray)
    finally:
        reservation.abandon()


def _of_numpy(tree: Any) -> bool:
    if isinstance(tree, dict):
        return all(map(_of_numpy, tree.values()))
    if isinstance(tree, (list, tuple)):
        return all(map(_of_numpy, tree))
    return type(tree) in (np.ndarray, str, bool, int, float, complex, type(None))
