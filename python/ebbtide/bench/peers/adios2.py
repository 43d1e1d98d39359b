"""ADIOS2's BP5 engine with asynchronous writes, a file a version, from one pinned buffer: its wheel has no CUDA."""

from __future__ import annotations

from collections import deque
from typing import Any

from adios2 import bindings

from . import Given, Peer
from .files import padded

_OPEN = 4  # engines that may still write: closing one waits for it


def open(given: Given) -> Peer:
    return Bp5(given)


class Bp5(Peer):
    def __init__(self, given: Given) -> None:
        self._given, self._adios = given, bindings.ADIOS()
        self._buffer = given.device.pinned(padded(max(given.sizes)))
        self._writing: deque[tuple[int, Any]] = deque()

    def _io(self, name: str) -> Any:
        io = self._adios.DeclareIO(name)
        io.SetEngine("BP5")
        io.SetParameters({"AsyncWrite": "On", "DirectIO": "true" if self._given.cold else "false"})
        return io

    def _path(self, version: int) -> str:
        return str(self._given.directory / f"{version}.bp")

    def _close(self, count: int) -> None:
        while len(self._writing) > count:
            version, engine = self._writing.popleft()
            engine.Close()
            self._adios.RemoveIO(f"write {version}")

    def checkpoint(self, version: int, window: Any) -> None:
        device, data = self._given.device, self._buffer[: len(window)]
        device.copy(data, window)
        device.synchronize()
        self._close(_OPEN - 1)
        io = self._io(f"write {version}")
        variable = io.DefineVariable("bytes", data, [len(data)], [0], [len(data)], True)
        engine = io.Open(self._path(version), bindings.Mode.Write)
        engine.BeginStep()
        engine.Put(variable, data, bindings.Mode.Sync)
        engine.EndStep()
        self._writing.append((version, engine))

    def restore(self, version: int, out: Any) -> None:
        while any(one == version for one, _ in self._writing):
            self._close(len(self._writing) - 1)
        device, data = self._given.device, self._buffer[: len(out)]
        io = self._io(f"read {version}")
        engine = io.Open(self._path(version), bindings.Mode.Read)
        engine.BeginStep()
        engine.Get(io.InquireVariable("bytes"), data, bindings.Mode.Sync)
        engine.EndStep()
        engine.Close()
        self._adios.RemoveIO(f"read {version}")
        device.copy(out, data)
        device.synchronize()

    def wait(self, tier: str) -> None:
        self._close(0)

    def close(self) -> None:
        self._close(0)
