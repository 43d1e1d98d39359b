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

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import ebbtide
from ebbtide import errors
from ebbtide._core import Agreement

__all__ = ["Group", "GroupHistory", "Ranks", "open"]

_NONE = -1
_MOST = (1 << 63) - 1
_REASONS = sorted(errors.BY_REASON)
_LOOK = 0.001  # seconds
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

    def __init__(self, comm: Any) -> None:
        import numpy as np
        from mpi4py import MPI

        self._comm, self._mpi, self._np = comm.Dup(), MPI, np
        self.rank, self.count = comm.Get_rank(), comm.Get_size()

    def begin_least(self, values: list[int]) -> Any:
        mine = self._np.array(values, self._np.int64)
        found = self._np.empty_like(mine)
        return self._comm.Iallreduce(mine, found, op=self._mpi.MIN), found, mine

    def least(self, begun: Any, wait: bool) -> list[int] | None:
        request, found, _ = begun
        if wait:
            request.Wait()
        elif not request.Test():
            return None
        return [int(value) for value in found]


class _Torch:
    """The ranks of a group of torch.distributed, in a group of their own: rounds keep no order with what the program sends."""

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as distributed

        self._torch, self._distributed = torch, distributed
        self.rank, self.count = distributed.get_rank(group), distributed.get_world_size(group)
        members = distributed.get_process_group_ranks(group)
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
    if type(comm).__module__.startswith("mpi4py"):
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
    :class:`ebbtide.InvalidArgument` where a group of another size wrote the directory.
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
    return Group(ranks, store)


def _open_own(ranks: Ranks, directory: str | os.PathLike[str] | None, options: dict[str, Any]) -> ebbtide.Store:
    places = {"directory": directory or os.environ.get("EBBTIDE_DIR"), "shared": options.get("shared")}
    places["shared"] = places["shared"] or os.environ.get("EBBTIDE_SHARED")
    if places["directory"] is None:
        raise errors.InvalidArgument("directory is not given: each rank's store is in it (or in EBBTIDE_DIR)")
    pool = options.get("node_pool") or os.environ.get("EBBTIDE_NODE_POOL")
    parents = [Path(place) for place in places.values() if place]
    for parent in parents:
        parent.mkdir(parents=True, exist_ok=True)
        if not pool:
            _check_count(parent, ranks)
    own = {key: place if pool else Path(place) / f"rank-{ranks.rank}" for key, place in places.items() if place}
    kept = "shared" if "shared" in own else "storage"
    given = options.get("durability") or os.environ.get("EBBTIDE_DURABILITY") or kept
    if given == "ephemeral":
        raise errors.InvalidArgument('durability="ephemeral" is not valid for a group: give "storage", or leave it out')
    store = ebbtide.open(**(options | own | {"durability": given, "agreed": True}))
    if not pool:
        for parent in parents:
            text = parent / f"ranks.{ranks.rank}"
            text.write_text(f"{ranks.count}\n")
            text.replace(parent / "ranks")
    return store


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
    """What a group and its histories share: the rounds of its agreement."""

    def __init__(self, ranks: Ranks, store: ebbtide.Store) -> None:
        self.ranks, self.store, self.level = ranks, store, store.durability
        self.agreement = Agreement()
        self.begun: Any = None
        self.histories: list[ebbtide.History] = []
        self.pending: list[deque[tuple[int, ebbtide.Future]]] = []
        self.add(store)

    def add(self, history: ebbtide.History) -> int:
        self.histories.append(history)
        self.pending.append(deque())
        return self.agreement.add_history()

    def begin(self) -> None:
        for number, pending in enumerate(self.pending):
            while pending:
                version, future = pending[0]
                try:
                    if not future.done(self.level):
                        break
                    self.agreement.durable(number, version)
                except errors.Error:
                    self.agreement.failed(number, version)
                pending.popleft()
        if self.begun is None:
            self.begun = self.ranks.begin_least(self.agreement.offer())

    def end(self, wait: bool) -> None:
        if self.begun is None:
            return
        minima = self.ranks.least(self.begun, wait)
        if minima is None:
            return
        self.begun = None
        voided, agreed = self.agreement.take(minima)
        for number, version in voided:
            self.pending[number] = deque(one for one in self.pending[number] if one[0] != version)
            self.histories[number].drop(version)
        for number, version in agreed:
            self.histories[number].agree(version)

    def progress(self) -> None:
        """Takes part in what rounds there are, and waits for nobody."""
        self.begin()
        self.end(wait=False)
        self.begin()

    def meet(self) -> None:
        """Returns when every rank is here."""
        self.agreement.arrive()
        while not self.agreement.met():
            self.begin()
            self.end(wait=True)

    def find(self, at_most: int | None, newest: Callable[[int], int | None]) -> int | None:
        """Each rank's newest below a bound, which is the least of those before it, until they are the same."""
        bound = _MOST if at_most is None else at_most
        while True:
            own, error = _tried(lambda: newest(bound))
            _all(self.ranks, error, "looking for the newest version")
            mine = _NONE if own is None else own
            bound, most = _least(self.ranks, [mine, -mine])
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
        self._older = False  # versions that no resume() could go on from may be in the way

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
        _all(self._members.ranks, error, "listing the versions")
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
        """:meth:`latest`, and the job goes on from there: what is newer is dropped in every rank, to be written again.

        None: there is no such version, and ranks keep what they have until they write the same versions. To be called before the
        first checkpoint, and to go back. Collective.
        """
        found = self.latest(at_most)

        def restart() -> None:
            self._members.pending[self._number].clear()
            self._members.agreement.restart(self._number, _NONE if found is None else found)
            self._older = found is None
            for version in self.mine.versions():
                if found is not None and version > found:
                    self.mine.drop(version)
            self.mine.agree(_NONE if found is None else found)

        _all(self._members.ranks, _tried(restart)[1], "going on from there")
        return found

    def checkpoint(self, version: int, arrays: Any, timeout: float = 10, **how: Any) -> ebbtide.Future:
        """:meth:`ebbtide.History.checkpoint` of this rank's part.

        It waits for no other rank, unless the disk is full of what the others have not agreed on, and for ``timeout`` then.
        Versions ascend, and every rank writes the same ones. If one rank cannot store its part, the version is void: it is dropped
        in all, and those that come to it later raise :class:`ebbtide.Dropped`.

        Raises as there, and :class:`ebbtide.InvalidArgument` (the version is not above the last one).
        """
        members, number = self._members, self._number
        self._require_ascending(version)
        members.progress()
        try:
            future = self._write(version, arrays, timeout, how)
        except Exception:
            members.agreement.failed(number, version)
            members.progress()
            raise
        members.agreement.written(number, version)
        members.pending[number].append((version, future))
        members.progress()
        return future

    def _require_ascending(self, version: int) -> None:
        last = self._members.agreement.last(self._number)
        if version <= last:
            raise errors.InvalidArgument(
                f"version {version} is not above version {last}, the last one: the versions of a group ascend; resume() goes back"
            )

    def _write(self, version: int, arrays: Any, timeout: float, how: dict[str, Any]) -> ebbtide.Future:
        until = time.monotonic() + timeout
        older = self._older
        while True:
            if self._members.agreement.is_void(self._number, version):
                raise errors.Dropped(f"version {version} is void: another rank could not store its part, and says why")
            try:
                return self.mine.checkpoint(version, arrays, **how)
            except errors.VersionExists:
                if not older:
                    raise
                older = False
                self.mine.drop(version)
            except errors.NoSpace:
                if time.monotonic() >= until:
                    raise
                time.sleep(_LOOK)  # what others agree on makes room
                self._members.progress()

    def restore(self, version: int, **how: Any) -> Any:
        """:meth:`ebbtide.History.restore` of this rank's part. The version is kept."""
        return self.mine.restore(version, **({"keep": True} | how))

    def wait(self, level: str, timeout: float | None = None) -> None:
        """Wait until what every rank has written is as durable as ``level``, as :meth:`ebbtide.History.wait`. Collective."""
        _, error = _tried(lambda: self.mine.wait(level, timeout=timeout))
        self._members.meet()
        _all(self._members.ranks, error, f"waiting for level={level!r}")


class Group(GroupHistory):
    """What :func:`open` gives: the ranks' stores, and itself the history named ``""``."""

    def __init__(self, ranks: Ranks, store: ebbtide.Store) -> None:
        super().__init__(_Members(ranks, store), 0)

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
        self._members.meet()
        return GroupHistory(self._members, self._members.add(self.store.history(name)))

    def snapshot(self, version: int, **how: Any) -> ebbtide.Future:
        """A snapshot of what this rank has protected, at the same point of the program in all ranks: one version, or none.

        Raises as :meth:`ebbtide.Store.snapshot`; the version is then dropped in all. Collective.
        """
        self._require_ascending(version)
        self._members.meet()
        taken, error = _tried(lambda: self.store.snapshot(version, **how))
        try:
            _all(self._members.ranks, error, f"snapshot {version}")
        except Exception:
            self._members.agreement.failed(0, version)
            raise
        assert taken is not None
        self._members.agreement.written(0, version)
        self._members.pending[0].append((version, taken))
        return taken

    def close(self) -> None:
        """Wait until what every rank has written is as durable as the store promises, and close the stores. Collective."""
        waited = [_tried(lambda: one.wait(self._members.level))[1] for one in self._members.histories]
        self._members.meet()
        closed = _tried(self.store.close)[1]
        _all(self._members.ranks, next((one for one in [*waited, closed] if one is not None), None), "closing")

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
