"""A storage for pyrevolve's revolvers."""

from __future__ import annotations

from typing import Any

import numpy as np

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import history_of


class Storage:
    """Checkpoints of pyrevolve in a store: a slot is a version, which is written anew again and again. They go with the object.

    store: an ephemeral :class:`ebbtide.Store`.
    slots: how many checkpoints there are; for a multi-level revolver.
    size, dtype: elements of a checkpoint, and their type; for a multi-level revolver.
    write_cost, read_cost, name: likewise, in units of a time step.

    Raises :class:`ebbtide.InvalidArgument` (a persistent store).

    >>> revolver = pyrevolve.MemoryRevolver(checkpoint, forward, reverse, 20, steps)
    >>> revolver.resetStorageList()
    >>> revolver.addStorage(ebbtide.seismic.Storage(store, 20))
    """

    def __init__(
        self,
        store: ebbtide.Store,
        slots: int,
        size: int = 0,
        dtype: Any = np.float32,
        *,
        write_cost: float = 0,
        read_cost: float = 0,
        name: str = "ebbtide",
    ) -> None:
        if slots < 1:
            raise errors.InvalidArgument(f"slots={slots!r} is not valid: expected at least 1")
        if store.durability != "ephemeral":
            raise errors.InvalidArgument("the store is persistent: slots need one that forgets them (an ephemeral one)")
        self.size_ckp, self.n_ckp, self.nckp, self.dtype = size, slots, slots, dtype
        self.wd, self.rd, self.name = write_cost, read_cost, name
        self.profiler: Any = None  # pyrevolve sets it
        self._history = history_of(self, store, "revolve")
        self._top = -1

    def save(self, key: int, data_pointers: list[Any]) -> None:
        """Write the arrays into slot ``key``, which may have others already."""
        if key in self._history:
            self._history.drop(key)
        self._history.checkpoint(key, [np.asarray(data) for data in data_pointers])

    def load(self, key: int, locations: list[Any]) -> None:
        """Read slot ``key`` into the arrays; it stays."""
        self._history.restore(key, out=[_plain(place) for place in locations], keep=True)

    def push(self, data_pointers: list[Any]) -> None:
        if self.isFull():
            raise errors.InvalidArgument(f"all {self.n_ckp} slots are in use")
        self._top += 1
        self.save(self._top, data_pointers)

    def peek(self, locations: list[Any]) -> None:
        if not self.isEmpty():
            self.load(self._top, locations)

    def pop(self, locations: list[Any]) -> None:
        if self.isEmpty():
            raise errors.InvalidArgument("no slot is in use")
        self.load(self._top, locations)
        self._top -= 1

    def isFull(self) -> bool:
        return self._top >= self.n_ckp - 1

    def isEmpty(self) -> bool:
        return self._top == -1


def _plain(place: Any) -> Any:
    """The same memory, of an array of Devito's as an array of NumPy's."""
    return np.asarray(place) if isinstance(place, np.ndarray) else place
