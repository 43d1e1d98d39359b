"""Processes that checkpoint together and restart together: the ranks of a job, each with a store of its own.

>>> from mpi4py import MPI
>>> with ebbtide.mpi.open(MPI.COMM_WORLD, "run-7", keep_last=2) as group:
...     newest = group.resume()                      # the same on every rank; None: there is none
...     field = initial() if newest is None else group.restore(newest)
...     for step in range(0 if newest is None else newest + 1, 1000):
...         field = advance(field)                   # exchanges data with other ranks
...         group.checkpoint(step, field)
"""

from __future__ import annotations

import math
import os
import zlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Protocol, TypeVar

import ebbtide
from ebbtide import errors
from ebbtide._core import Agreement, parse_bytes

__all__ = ["Group", "GroupHistory", "Ranks", "open"]

_NONE = -1
_MOST = (1 << 63) - 1
_REASONS = sorted(errors.BY_REASON)
_LOOK, _SLICE = 0.001, 0.05  # seconds
_FINAL = (errors.Dropped, errors.Lost, errors.Damaged, errors.UnknownVersion)  # what failed otherwise is tried again
_T = TypeVar("_T")


class Ranks(Protocol):
    """How ranks talk. Called by the thread that calls the group, and by no other."""

    rank: int
    count: int

    def begin_least(self, values: list[int]) -> Any:
        """Begin to find the least that a rank gave, of each number of 64 bits. What is returned goes to :meth:`least`."""

    def least(self, begun: Any, wait: bool) -> list[int] | None:
        """The minima; None: not all ranks are there yet. wait: once they are."""


class _Mpi:
    """The ranks of a communicator of mpi4py, which is duplicated."""

    # MPI may write to what a request was given for as long as it is pending, whatever becomes of the group.
    _pending: ClassVar[set[Any]] = set()

    def __init__(self, comm: Any) -> None:
        import numpy as np
        from mpi4py import MPI

        self._comm, self._mpi, self._np = comm.Dup(), MPI, np
        self.rank, self.count = comm.Get_rank(), comm.Get_size()

    def begin_least(self, values: list[int]) -> Any:
        mine = self._np.array(values, self._np.int64)
        found = self._np.zeros_like(mine)
        begun = _Begun(self._comm.Iallreduce(mine, found, op=self._mpi.MIN), found, mine)
        self._pending.add(begun)
        return begun

    def least(self, begun: Any, wait: bool) -> list[int] | None:
        if wait:
            begun.request.Wait()
        elif not begun.request.Test():
            return None
        self._pending.discard(begun)
        return [int(value) for value in begun.found]

    def free(self) -> None:
        self._comm.Free()


class _Begun:
    def __init__(self, request: Any, found: Any, mine: Any) -> None:
        self.request, self.found, self.mine = request, found, mine


class _Torch:
    """The ranks of a group of torch.distributed, in a group of their own: rounds keep no order with what the program sends."""

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as distributed

        self._torch, self._distributed = torch, distributed
        self.rank, self.count = distributed.get_rank(group), distributed.get_world_size(group)
        members = distributed.get_process_group_ranks(group)
        # The group stays until the program ends all groups: torch would give the name of one that is gone to the next.
        self._group = distributed.new_group(members, backend="gloo", use_local_synchronization=True)

    def begin_least(self, values: list[int]) -> Any:
        found = self._torch.tensor(values, dtype=self._torch.int64)
        work = self._distributed.all_reduce(found, self._distributed.ReduceOp.MIN, group=self._group, async_op=True)
        return work, found

    def least(self, begun: Any, wait: bool) -> list[int] | None:
        work, found = begun
        if not wait and not work.is_completed():
            return None
        work.wait()
        return [int(value) for value in found.tolist()]


def _ranks_of(comm: Any) -> Ranks:
    if comm is None or type(comm).__module__.startswith("torch"):
        return _Torch(comm)
    if type(comm).__module__.startswith("mpi4py") and hasattr(comm, "Iallreduce"):
        return _Mpi(comm)
    if all(hasattr(comm, name) for name in ("rank", "count", "begin_least", "least")):
        ranks: Ranks = comm
        return ranks
    raise errors.InvalidArgument(
        f"comm is of type {type(comm).__name__!r}: expected a communicator of mpi4py, a group of torch.distributed (None: all of its "
        "ranks), or an object as ebbtide.mpi.Ranks describes"
    )


def _least(ranks: Ranks, values: list[int]) -> list[int]:
    found = ranks.least(ranks.begin_least(values), True)
    assert found is not None
    return found


def _all(ranks: Ranks, error: Exception | None, what: str) -> None:
    """An error on one rank is an error on all. Every rank must be here."""
    codes = len(_REASONS) + 1
    own = _MOST
    if error is not None:
        reason = error.reason if isinstance(error, errors.Error) else ""
        own = ranks.rank * codes + (_REASONS.index(reason) if reason in _REASONS else codes - 1)
    (least,) = _least(ranks, [own])
    if error is not None:
        raise error
    if least == _MOST:
        return
    rank, code = divmod(least, codes)
    kind = errors.BY_REASON[_REASONS[code]] if code < len(_REASONS) else errors.Error
    raise kind(f"{what} failed in rank {rank} of {ranks.count} ({kind.__name__}): its own error says why")


def _tried(call: Callable[[], _T]) -> tuple[_T | None, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


def open(comm: Any, directory: str | os.PathLike[str] | None = None, **options: Any) -> Group:
    """Open a store for each rank, as a group. Every rank calls it.

    comm: a communicator of mpi4py, which is duplicated, or a group of torch.distributed (None: all of its ranks), beside which a
    gloo group of the same ranks is made; or an object as :class:`Ranks` describes, that nobody else uses.
    directory, options: as in :func:`ebbtide.open`. Each rank's store is in ``directory/rank-N``, and ``rank-N`` of ``shared``; in a
    node's pool (``node_pool``) ranks share the directory of their node. The durability is ``"storage"`` unless it is given, or
    ``"shared"``. ``keep_last`` counts versions that are durable in every rank, so the newest of those is always kept.

    Raises as :func:`ebbtide.open` in all ranks; those that did not fail say which rank did. Raises
    :class:`ebbtide.InvalidArgument` where a group of another size wrote the directory, or retention, durability, ``shared`` or
    ``readonly`` are not the same in all ranks.
    """
    ranks = _ranks_of(comm)
    store, error = _tried(lambda: _open_own(ranks, directory, options))
    try:
        _all(ranks, error, "opening")
    except errors.Error:
        if store is not None:
            store.close()
        raise
    assert store is not None
    try:
        _check_alike(ranks, options)
    except errors.Error:
        store.close()
        raise
    level = "shared" if _given(options, "shared") else _durability(options)
    if level == "shared" and store.durability == "readonly":
        level = "storage"  # a store that only reads refuses to wait for what it does not send
    return Group(ranks, store, level)


def _open_own(ranks: Ranks, directory: str | os.PathLike[str] | None, options: dict[str, Any]) -> ebbtide.Store:
    places = {"directory": directory or os.environ.get("EBBTIDE_DIR"), "shared": options.get("shared")}
    places["shared"] = places["shared"] or os.environ.get("EBBTIDE_SHARED")
    if places["directory"] is None:
        raise errors.InvalidArgument("directory is not given: each rank's store is in it (or in EBBTIDE_DIR)")
    if str(_given(options, "shared_every") or 0).strip() not in ("0", "1"):
        raise errors.Unsupported("shared_every is not for a group: all of its versions go to the shared directory")
    given_pool = options.get("node_pool", os.environ.get("EBBTIDE_NODE_POOL", 0))
    pool = parse_bytes("node_pool", given_pool) if isinstance(given_pool, str) else given_pool
    of_veloc = options.get("veloc_rank", os.environ.get("EBBTIDE_VELOC_RANK")) is not None
    together = {"shared"} if of_veloc else set()  # a directory that ranks share
    if of_veloc:
        options = options | {"veloc_rank": ranks.rank}
    parents = [Path(place) for key, place in places.items() if place and key not in together]
    for parent in parents:
        parent.mkdir(parents=True, exist_ok=True)
        if not pool:
            _check_count(parent, ranks)
    own = {
        key: place if pool or key in together else Path(place) / f"rank-{ranks.rank}"
        for key, place in places.items()
        if place
    }
    durability = _durability(options)
    if durability == "ephemeral":
        raise errors.InvalidArgument('durability="ephemeral" is not valid for a group: give "storage", or leave it out')
    store = ebbtide.open(**(options | own | {"durability": durability, "agreed": True}))
    if not pool:
        for parent in parents:
            text = parent / f"ranks.{ranks.rank}"
            text.write_text(f"{ranks.count}\n")
            text.replace(parent / "ranks")
    return store


def _given(options: dict[str, Any], name: str) -> Any:
    """An option, or its text in the environment where it is left out."""
    value = options.get(name)
    return os.environ.get(f"EBBTIDE_{name.upper()}") if value is None else value


def _durability(options: dict[str, Any]) -> str:
    """Also of a read-only store, which has one, though it says "readonly"."""
    kept = "shared" if _given(options, "shared") else "storage"
    return str(_given(options, "durability") or kept).strip().lower()


def _is_on(options: dict[str, Any], name: str) -> int:
    return int(str(_given(options, name)).strip().lower() in ("true", "1", "on", "yes"))


def _check_alike(ranks: Ranks, options: dict[str, Any]) -> None:
    """Ranks that are to keep the same versions, at the same level, are opened alike. Stores have accepted the values."""
    keep_last = int(_given(options, "keep_last") or 0)
    keep_last_shared = _given(options, "keep_last_shared")
    own = {
        "keep_last": keep_last,
        "keep_every": int(_given(options, "keep_every") or 0),
        "keep_last_shared": keep_last if keep_last_shared is None else int(keep_last_shared),
        "durability": _durability(options),
        "shared": int(bool(_given(options, "shared"))),
        "veloc_rank": int(_given(options, "veloc_rank") is not None),
        "veloc_meta": int(bool(_given(options, "veloc_meta"))),
        "veloc_chksum": _is_on(options, "veloc_chksum"),
        "readonly": _is_on(options, "readonly"),
    }
    sums = [zlib.crc32(str(value).encode()) for value in own.values()]
    least = _least(ranks, [*sums, *(-each for each in sums)])
    for at, (name, value) in enumerate(own.items()):
        if least[at] != -least[at + len(own)]:
            raise errors.InvalidArgument(
                f'{name} is "{value}" in rank {ranks.rank}, and not in all: give every rank of a group the same'
            )


def _check_count(directory: Path, ranks: Ranks) -> None:
    try:
        found = int((directory / "ranks").read_text())
    except (FileNotFoundError, ValueError):
        return
    if found != ranks.count:
        raise errors.InvalidArgument(
            f"{directory} was written by a group of {found} ranks, and this one has {ranks.count}: start as many, or give a directory "
            "of its own"
        )


class _Members:
    """What a group and its histories share: the rounds of its agreement.

    Once ranks cannot talk, or one could not do what was agreed on, every call raises that error: what this rank knows may differ
    from what the others do.
    """

    def __init__(self, ranks: Ranks, store: ebbtide.Store, level: str) -> None:
        self.ranks, self.store, self.level = ranks, store, level
        self.agreement = Agreement()
        self.begun: Any = None
        self.histories: list[ebbtide.History] = []
        self.pending: list[deque[tuple[int, ebbtide.Future]]] = []
        self.broken: Exception | None = None
        self.lost = False  # ranks cannot talk
        self.closed = False
        self.add(store)

    def add(self, history: ebbtide.History) -> int:
        self.histories.append(history)
        self.pending.append(deque())
        return self.agreement.add_history()

    def talk(self, call: Callable[[], _T]) -> _T:
        if self.lost:
            assert self.broken is not None
            raise self.broken
        try:
            return call()
        except BaseException as error:
            self.lost = True
            self.broken = (
                error if isinstance(error, Exception) else errors.IOFailed(f"a call of the group was ended: {error!r}")
            )
            raise

    def look_at_own(self) -> None:
        for number, pending in enumerate(self.pending):
            while pending:
                version, future = pending[0]
                try:
                    if not future.done(self.level):
                        break
                    self.agreement.durable(number, version)
                except _FINAL:
                    self.agreement.failed(number, version)
                except errors.Error:
                    break
                pending.popleft()

    def begin(self) -> None:
        self.look_at_own()
        if self.begun is None:
            self.begun = self.talk(lambda: self.ranks.begin_least(self.agreement.offer()))

    def end(self, wait: bool) -> None:
        if self.begun is None:
            return
        minima = self.talk(lambda: self.ranks.least(self.begun, wait))
        if minima is None:
            return
        self.begun = None
        voided, agreed = self.agreement.take(minima)
        for number, version in voided:
            self.pending[number] = deque(one for one in self.pending[number] if one[0] != version)
        try:
            for number, version in voided:
                self.histories[number].drop(version)
            for number, version in agreed:
                self.histories[number].agree(version)
        except errors.Error as error:
            self.broken = self.broken or error

    def progress(self) -> None:
        """Takes part in what rounds there are, and waits for nobody."""
        if not self.lost:
            self.end(wait=False)
            self.begin()

    def meet(self) -> None:
        """Returns when every rank is here, and none is broken off."""
        self.agreement.arrive()
        while not self.agreement.met():
            self.begin()
            self.end(wait=True)
        self.all(self.broken, "taking part")

    def least(self, values: list[int]) -> list[int]:
        return self.talk(lambda: _least(self.ranks, values))

    def all(self, error: Exception | None, what: str) -> None:
        if self.lost:
            assert self.broken is not None
            raise self.broken
        _all(self.ranks, error, what)

    def wait_own(self, history: ebbtide.History, level: str, timeout: float | None = None) -> None:
        """The others may wait for this rank meanwhile, to make room."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SLICE if until is None else max(0.0, min(_SLICE, until - time.monotonic()))
            try:
                return history.wait(level, timeout=left)
            except errors.TimedOut:
                if until is not None and time.monotonic() >= until:
                    raise
                self.progress()

    def restart(self, number: int, version: int) -> None:
        """What is newer than the version that all have durable is dropped, and will not come back."""
        history = self.histories[number]
        self.pending[number].clear()
        for one in history.versions():
            if one > version:
                history.drop(one)
        history.wait_for_drops()
        self.agreement.restart(number, version)
        history.agree(version)

    def find(self, at_most: int | None, newest: Callable[[int], int | None]) -> int | None:
        """Each rank's newest below a bound, which is the least of those before it, until they are the same."""
        bound = _MOST if at_most is None else at_most
        while True:
            own, error = _tried(lambda: newest(bound))
            self.all(error, "looking for the newest version")
            mine = _NONE if own is None else own
            bound, most = self.least([mine, -mine])
            if bound == _NONE:
                return None
            if bound == -most:
                return bound


class GroupHistory:
    """A history of every rank: each rank's own part of the same versions.

    *Collective* methods are called by all ranks, in the same order, and wait for each other. An error in one rank is an error in
    all; those that did not fail say which one did. One thread at a time calls a group and its histories.
    """

    def __init__(self, members: _Members, number: int) -> None:
        self._members, self._number = members, number

    @property
    def mine(self) -> ebbtide.History:
        """This rank's part, for all else: hints, borrow, info. Checkpoints that do not go through the group are not agreed on."""
        return self._members.histories[self._number]

    def latest(self, at_most: int | None = None) -> int | None:
        """The newest version, not above ``at_most``, that is complete and intact in every rank. Collective."""
        self._members.meet()
        return self._members.find(at_most, lambda bound: self._members.store.latest(self.mine.name, bound))

    def versions(self) -> list[int]:
        """The versions that every rank has, ascending. Their bytes are not read. Collective."""
        self._members.meet()
        mine, error = _tried(self.mine.versions)
        self._members.all(error, "listing the versions")
        common: list[int] = []
        below: int | None = None
        while True:
            found = self._members.find(
                below, lambda bound: max((one for one in mine or [] if one <= bound), default=None)
            )
            if found is None:
                return common[::-1]
            common.append(found)
            below = found - 1

    def resume(self, at_most: int | None = None) -> int | None:
        """:meth:`latest`, and the job goes on from there.

        It is durable in every rank then, and what is newer is dropped for good, to be written again. None: no rank has a version.
        To be called before the first checkpoint, and to go back. Collective.

        Raises :class:`ebbtide.Lost`: ranks have versions, and none that all have (a directory is missing).
        """
        found = self.latest(at_most)
        mine, error = _tried(self.mine.versions)
        self._members.all(error, "listing the versions")
        (who,) = self._members.least([self._members.ranks.rank if mine else _MOST])
        if found is None and who != _MOST:
            raise errors.Lost(
                f"no version is intact on all ranks, and rank {who} has some: give back the directory that is missing, or drop() them "
                "to begin anew"
            )
        version = _NONE if found is None else found
        if found is not None:  # on every rank before anything is dropped on one
            self._members.all(
                _tried(lambda: self.mine.wait(self._members.level, version))[1], f"making version {version} durable"
            )
        self._members.all(_tried(lambda: self._members.restart(self._number, version))[1], "going on from there")
        return found

    def drop(self) -> None:
        """Forget every version in every rank. Collective."""
        self._members.meet()
        self._members.all(_tried(lambda: self._members.restart(self._number, _NONE))[1], "dropping all versions")

    def checkpoint(self, version: int, arrays: Any, timeout: float | None = 10, **how: Any) -> ebbtide.Future:
        """:meth:`ebbtide.History.checkpoint` of this rank's part.

        It waits for no other rank, unless the disk is full of what the others have not agreed on, and for ``timeout`` seconds then
        (None: as long as it takes).
        Versions ascend, and every rank writes the same ones. If one rank cannot store its part, the version is void: it is dropped
        in all, and those that come to it later raise :class:`ebbtide.Dropped`.

        Raises as there, and :class:`ebbtide.InvalidArgument` (the version is not above the last one).
        """
        members, number = self._members, self._number
        self._require_ascending(version)
        try:
            members.progress()
            future = self._write(version, arrays, timeout, how)
        except BaseException:
            members.agreement.failed(number, version)
            members.progress()
            raise
        members.agreement.written(number, version)
        members.pending[number].append((version, future))
        members.progress()
        return future

    def _require_ascending(self, version: int) -> None:
        if not hasattr(version, "__index__"):
            raise errors.InvalidArgument(f"version={version!r} is not valid: expected an integer")
        last = self._members.agreement.last(self._number)
        if version <= last:
            raise errors.InvalidArgument(
                f"version {version} is not above version {last}, the last one: the versions of a group ascend; resume() goes back"
            )

    def _write(self, version: int, arrays: Any, timeout: float | None, how: dict[str, Any]) -> ebbtide.Future:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            if self._members.broken is not None:
                raise self._members.broken
            if self._members.agreement.is_void(self._number, version):
                raise errors.Dropped(f"version {version} is void: another rank could not store its part, and says why")
            try:
                return self.mine.checkpoint(version, arrays, **how)
            except errors.NoSpace:
                if time.monotonic() >= until:
                    raise
                time.sleep(_LOOK)  # what others agree on makes room
                self._members.progress()

    def restore(self, version: int, **how: Any) -> Any:
        """:meth:`ebbtide.History.restore` of this rank's part. The version is kept."""
        return self.mine.restore(version, **({"keep": True} | how))

    def wait(self, level: str, timeout: float | None = None) -> None:
        """Wait until what every rank has written is as durable as ``level``, as :meth:`ebbtide.History.wait`. Collective.

        timeout: of each rank's wait for its own.
        """
        error = _tried(lambda: self._members.wait_own(self.mine, level, timeout))[1]
        self._members.meet()
        self._members.all(error, f"waiting for level={level!r}")


class Group(GroupHistory):
    """What :func:`open` gives: the ranks' stores, and itself the history named ``""``."""

    def __init__(self, ranks: Ranks, store: ebbtide.Store, level: str) -> None:
        super().__init__(_Members(ranks, store, level), 0)

    @property
    def rank(self) -> int:
        return self._members.ranks.rank

    @property
    def count(self) -> int:
        return self._members.ranks.count

    @property
    def store(self) -> ebbtide.Store:
        """This rank's. To be closed by :meth:`close`."""
        return self._members.store

    def history(self, name: str) -> GroupHistory:
        """The history ``name`` of every rank. Collective."""
        members = self._members
        members.meet()
        names = [one.name for one in members.histories]
        return GroupHistory(members, names.index(name) if name in names else members.add(self.store.history(name)))

    def snapshot(self, version: int, **how: Any) -> ebbtide.Future:
        """A snapshot of what this rank has protected, at the same point of the program in all ranks: one version, or none.

        Raises as :meth:`ebbtide.Store.snapshot`; the version is then dropped in all. Collective.
        """
        self._require_ascending(version)
        self._members.meet()
        taken, error = _tried(lambda: self.store.snapshot(version, **how))
        try:
            self._members.all(error, f"snapshot {version}")
        except Exception:
            self._members.agreement.failed(0, version)
            raise
        assert taken is not None
        self._members.agreement.written(0, version)
        self._members.pending[0].append((version, taken))
        return taken

    def close(self) -> None:
        """Wait until what every rank has written is as durable as the store promises, and close the stores. Collective."""
        members = self._members
        if members.closed:
            return
        waited = [_tried(lambda one=one: members.wait_own(one, members.level))[1] for one in members.histories]  # type: ignore[misc]
        members.meet()
        members.closed = True
        closed = _tried(self.store.close)[1]
        members.all(next((one for one in [*waited, closed] if one is not None), None), "closing")
        if hasattr(members.ranks, "free"):
            members.ranks.free()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes the group; after an error, this rank's store alone: the others may not get here."""
        if error is None:
            self.close()
        else:
            self.store.close()
