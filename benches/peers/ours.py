"""A store of Ebbtide that outlives the process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import ebbtide
import numpy as np

from peers.base import Restart, Saver, State

_MIB = 1 << 20


class _Said(logging.Handler):
    """The warnings of a store, which name what is damaged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "warning:" in record.getMessage():
            self.lines.append(record.getMessage())


class Ebbtide(Saver):
    key, title, packages = "ebbtide", "Ebbtide", ("ebbtide",)
    how = 'open(durability="storage"), checkpoint(...).wait("storage"); latest() and restore'

    def __init__(
        self, directory: Path, *, keep: int = 0, to_read: bool = False, in_memory: bool = False, **options: Any
    ) -> None:
        super().__init__(directory, keep=keep, to_read=to_read, in_memory=in_memory)
        self.level = "process" if in_memory else "storage"
        sizes = {"device": "cpu", "device_cache": 8 * _MIB, "host_cache": 8 * _MIB, "disk": 1024 * _MIB}
        self._said = _Said()
        logger = logging.getLogger("ebbtide")
        logger.addHandler(self._said)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        kept = {"readonly": True} if to_read else {"keep_last": keep}
        options = sizes | {"tuning": {"direct_io": not in_memory}} | kept | options
        try:
            self.store = ebbtide.open(directory, durability=self.level, **options)
        except BaseException:
            logger.removeHandler(self._said)
            raise

    def begin(self, step: int, state: Any) -> None:
        self._written = self.store.checkpoint(step, state, timeout=None)

    def finish(self) -> None:
        self._written.wait(self.level)

    def steps(self) -> list[int]:
        return sorted(self.store.versions(), reverse=True)

    def load(self, step: int) -> State:
        return {name: np.asarray(array) for name, array in self.store.restore(step).items()}

    def restart(self) -> Restart:
        step = self.store.latest()
        return Restart(step, None if step is None else self.load(step), self._said.lines)

    def forget(self, step: int) -> None:
        self.store.drop(step)

    def close(self) -> None:
        logging.getLogger("ebbtide").removeHandler(self._said)
        self.store.close()


class EbbtideReserve(Ebbtide):
    """The state is computed inside the store's own memory, all arrays in one."""

    key, title, in_place = "ebbtide_reserve", "Ebbtide, reserve", False
    how = "reserve: the state is computed inside the store's device cache, as one array; commit, wait"

    def prepare(self, step: int, state: Any) -> None:
        total = sum(array.nbytes for array in state.values())
        self._reserved = self.store.reserve(step, total, "uint8", timeout=None)
        inside, at = self._reserved.array, 0
        for array in state.values():
            inside[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
            at += array.nbytes

    def begin(self, step: int, state: Any) -> None:
        self._reserved.commit()

    def finish(self) -> None:
        self.store.wait(self.level)

    def load(self, step: int) -> State:
        return {"": np.asarray(self.store.restore(step))}
