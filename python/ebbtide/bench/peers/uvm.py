"""CUDA's managed memory as hpdc23 sec. 5.2.2 uses it: advice where each version is to be, prefetching along the hints, and
no more on the GPU than the store's device cache may hold. What the memory cannot hold goes through files.

A version is consumed by its restore, and its place counts as free from then on: the driver moves nothing for it. Files are
written from pinned memory and read into it, so that no processor touches managed memory and no page faults.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from . import Given, Peer
from .files import VersionFiles, padded
from .managed import Cuda

_BUFFERS = 3  # pinned ones, which count as memory too: each thread that writes or reads files has one


def open(given: Given, in_memory: bool = False) -> Peer:
    """in_memory: as much managed memory as the whole history, and no files."""
    if not given.device.on_gpu:
        raise ValueError(f"managed memory needs a GPU, and the device is {given.device.name}")
    return Uvm(given, Cuda, in_memory)


class Lane(Protocol):
    """What one thread asks of managed memory. A call returns when it is done."""

    def copy(self, to: Any, source: Any, size: int) -> None: ...
    def move(self, place: Any, size: int, to_device: bool) -> None: ...
    def advise(self, place: Any, size: int, on_device: bool) -> None: ...


class Managed(Protocol):
    """Managed memory of a program, divided into places of one size."""

    PAGE: int  # bytes; places begin at one

    def __init__(self, given: Given, count: int, room: int) -> None: ...
    @property
    def places(self) -> Sequence[Any]: ...
    def lane(self) -> Lane: ...
    def close(self) -> None: ...


@dataclass
class _Kept:
    """A version that was not consumed yet."""

    version: int
    size: int
    place: Any = None  # in managed memory; None: its file alone has it
    on_device: bool = False
    written: bool = False
    busy: bool = False  # a thread copies or moves it: its place stays


class Uvm(Peer):
    """Thread safety: one program's thread; three of its own. `_changed` guards everything behind an underscore.

    1. `_resident` is the bytes of versions on the device, those on their way there or away included, and at most `_budget`.
    2. A place is free or one version's. It is given up by a version that was consumed, or written and not busy.
    """

    tiers = ("managed", "files")

    def __init__(self, given: Given, managed: type[Managed], in_memory: bool = False) -> None:
        self._sizes, self._device = given.sizes, given.device
        self._largest, self._budget = padded(max(given.sizes)), given.store["device_cache"]
        if self._budget < self._largest:
            raise ValueError(f"the device cache of {self._budget} bytes holds no checkpoint of {self._largest}")
        room = -(-self._largest // managed.PAGE) * managed.PAGE
        count = (self._budget + given.store["host_cache"]) // room - _BUFFERS
        count = len(given.sizes) if in_memory else min(count, len(given.sizes))
        if count < 2:
            raise ValueError(f"the caches hold no two checkpoints of {self._largest} bytes and {_BUFFERS} buffers")
        self._managed = managed(given, count, room)
        self._lane = self._managed.lane()
        self._files = VersionFiles(given.directory, given.cold)
        self._aside = None if in_memory else given.device.pinned(self._largest)  # for files that nobody has read ahead
        self._changed = threading.Condition()
        self._free = list(self._managed.places)
        self._kept: dict[int, _Kept] = {}  # in the order in which they were written
        self._hinted: deque[int] = deque()
        self._next: dict[int, int] = {}  # hinted versions: where in the order
        self._resident, self._going_back, self._closed = 0, False, False
        self._failed: BaseException | None = None
        work = [self._migrate] if in_memory else [self._migrate, self._write, self._read]
        self._threads = [threading.Thread(target=self._run, args=(one,), daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    # --- the program's calls

    def checkpoint(self, version: int, window: Any) -> None:
        self._device.synchronize()  # what fills the window
        kept = _Kept(version, len(window), on_device=True, busy=True)
        with self._changed:
            self._until(lambda: self._has_place(None) and self._resident + kept.size <= self._budget)
            kept.place = self._take_place(self._lane)
            self._resident += kept.size
        self._lane.advise(kept.place, kept.size, True)
        self._lane.copy(kept.place, window, kept.size)
        with self._changed:
            kept.busy = False
            self._kept[version] = kept
            self._changed.notify_all()

    def hint(self, versions: Sequence[int]) -> None:
        with self._changed:
            for version in versions:
                self._next[version] = len(self._next)
                self._hinted.append(version)
            self._changed.notify_all()

    def start_prefetch(self) -> None:
        with self._changed:
            self._going_back = True
            self._changed.notify_all()

    def restore(self, version: int, out: Any) -> None:
        with self._changed:
            kept = self._kept[version]
            self._until(lambda: not kept.busy)
            kept.busy = True
        if kept.place is None:
            assert self._aside is not None
            self._files.read(version, self._aside, kept.size)
            self._lane.copy(out, self._aside, kept.size)
        else:
            self._lane.copy(out, kept.place, kept.size)
            self._lane.advise(kept.place, kept.size, False)
        with self._changed:
            del self._kept[version]
            if kept.place is not None:
                self._free.append(kept.place)
            self._resident -= kept.size if kept.on_device else 0
            self._changed.notify_all()

    def wait(self, tier: str) -> None:
        with self._changed:
            if len(self._threads) > 1:
                self._until(lambda: all(kept.written for kept in self._kept.values()))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._managed.close()

    # --- by the threads, with the lock where not said otherwise

    def _run(self, work: Callable[[Lane], None]) -> None:
        try:
            work(self._managed.lane())
        except _Closed:
            pass
        except BaseException as error:
            with self._changed:
                self._failed = self._failed or error
                self._changed.notify_all()

    def _until(self, ready: Callable[[], Any]) -> None:
        self._changed.wait_for(lambda: self._closed or self._failed or ready())
        if self._failed:
            raise RuntimeError(f"a thread of managed memory has failed: {self._failed}") from self._failed
        if self._closed:
            raise _Closed

    def _need(self, kept: _Kept) -> int:
        """Where in the order it is restored. Those that are not hinted come behind all others, the oldest last."""
        return self._next.get(kept.version, len(self._next) - kept.version + len(self._sizes))

    def _farthest(self, among: Callable[[_Kept], bool], beyond: _Kept | None) -> _Kept | None:
        """The one that is restored last, if that is after `beyond`."""
        found = max(
            (kept for kept in self._kept.values() if not kept.busy and among(kept)), key=self._need, default=None
        )
        return found if found and (beyond is None or self._need(found) > self._need(beyond)) else None

    def _to_give_up(self, beyond: _Kept | None) -> _Kept | None:
        """A version that its file can keep alone."""
        return self._farthest(lambda kept: kept.place is not None and kept.written, beyond)

    def _has_place(self, beyond: _Kept | None) -> bool:
        return bool(self._free) or self._to_give_up(beyond) is not None

    def _take_place(self, lane: Lane, beyond: _Kept | None = None) -> Any:
        if not self._free:
            given_up = self._to_give_up(beyond)
            assert given_up is not None
            self._free.append(given_up.place)
            lane.advise(given_up.place, given_up.size, False)
            self._resident -= given_up.size if given_up.on_device else 0
            given_up.place, given_up.on_device = None, False
        return self._free.pop()

    def _migrate(self, lane: Lane) -> None:
        """Keeps room on the device while versions are written, and brings what is restored next there afterwards."""
        while True:
            with self._changed:
                self._until(lambda: self._to_move() is not None)
                kept = self._to_move()
                assert kept is not None
                kept.busy, there = True, not kept.on_device
                if there:
                    self._resident += kept.size
            lane.advise(kept.place, kept.size, there)
            lane.move(kept.place, kept.size, there)
            with self._changed:
                kept.busy, kept.on_device = False, there
                if not there:
                    self._resident -= kept.size
                self._changed.notify_all()

    def _to_move(self) -> _Kept | None:
        if not self._going_back:
            short = self._resident + 2 * self._largest > self._budget
            return self._farthest(lambda kept: kept.on_device, None) if short else None
        kept = self._first_hinted(lambda one: not one.on_device)
        if kept is None or kept.busy or kept.place is None:  # it is being restored or read
            return None
        if self._resident + kept.size <= self._budget:
            return kept
        return self._farthest(lambda one: one.on_device, kept)

    def _first_hinted(self, among: Callable[[_Kept], bool]) -> _Kept | None:
        while self._hinted and self._hinted[0] not in self._kept:
            self._hinted.popleft()
        there = (self._kept[version] for version in self._hinted if version in self._kept)
        return next(filter(among, there), None)

    def _write(self, lane: Lane) -> None:
        buffer = self._device.pinned(self._largest)
        while True:
            with self._changed:
                self._until(lambda: self._to_write() is not None)
                kept = self._to_write()
                assert kept is not None
                kept.busy = True
            lane.copy(buffer, kept.place, kept.size)
            with self._changed:
                kept.busy = False
                self._changed.notify_all()
            self._files.write(kept.version, buffer, kept.size)
            with self._changed:
                kept.written = True
                self._changed.notify_all()

    def _to_write(self) -> _Kept | None:
        return next((kept for kept in self._kept.values() if not kept.written and not kept.busy), None)

    def _read(self, lane: Lane) -> None:
        """Reads ahead into managed memory, along the hints."""
        buffer = self._device.pinned(self._largest)
        while True:
            with self._changed:
                self._until(lambda: self._to_read() is not None)
                kept = self._to_read()
                assert kept is not None
                kept.place, kept.busy = self._take_place(lane, kept), True
            self._files.read(kept.version, buffer, kept.size)
            lane.copy(kept.place, buffer, kept.size)
            with self._changed:
                kept.busy = False
                self._changed.notify_all()

    def _to_read(self) -> _Kept | None:
        kept = self._first_hinted(lambda one: one.place is None) if self._going_back else None
        return kept if kept and not kept.busy and self._has_place(kept) else None


class _Closed(Exception):
    """Ends a thread."""
