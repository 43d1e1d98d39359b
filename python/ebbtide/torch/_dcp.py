"""torch.distributed.checkpoint over stores: each rank writes one of its own, and reads those of all."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint import StorageReader, StorageWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

import ebbtide
from ebbtide import errors

_METADATA = re.compile(r"dcp/(-?\d+)")
_PARTS = re.compile(r"dcp/(-?\d+)/(\d+)")


class _Written(NamedTuple):
    """One rank's write of a step. A step that is written anew has another number: no part is ever overwritten. Each rank
    has its own numbers, since what DCP's plans carry from rank to rank is kept from an earlier save if plans are cached."""

    step: int
    number: int

    @property
    def parts(self) -> str:
        """The history of the parts: version i is item i."""
        return f"dcp/{self.step}/{self.number}"


def _metadata_of(step: int) -> str:
    """The history of what DCP knows of a step, in the coordinator's store: a version is its write's number."""
    return f"dcp/{step}"


def _writes(store: ebbtide.Store) -> list[_Written]:
    """Those of which the store has parts, complete or not."""
    return [_Written(int(found[1]), int(found[2])) for found in map(_PARTS.fullmatch, store.histories()) if found]


def _place(written: _Written, place: tuple[int, ...]) -> tuple[int, _Written, int]:
    """Rank, its write and the version there, of a part of the coordinator's write: all ranks once had its number."""
    rank, *number, version = place
    return rank, _Written(written.step, *number) if number else written, version


def _metadata(store: ebbtide.Store, written: _Written) -> Metadata:
    stored = store.history(_metadata_of(written.step)).restore(written.number, keep=True)
    metadata = pickle.loads(np.asarray(stored).tobytes())
    assert isinstance(metadata, Metadata)
    return metadata


def _parts(metadata: Metadata) -> dict[MetadataIndex, Any]:
    """All parts that it has, with shape and type; None: bytes."""
    found: dict[MetadataIndex, Any] = {}
    for name, one in metadata.state_dict_metadata.items():
        if isinstance(one, TensorStorageMetadata):
            dtype = one.properties.dtype
            found |= {MetadataIndex(name, chunk.offsets): (tuple(chunk.sizes), dtype) for chunk in one.chunks}
        else:
            found[MetadataIndex(name)] = None
    return found


def _step_of(checkpoint_id: str | os.PathLike[str] | int) -> int:
    try:
        return int(os.fspath(checkpoint_id) if not isinstance(checkpoint_id, int) else checkpoint_id)
    except ValueError:
        raise errors.InvalidArgument(f"checkpoint_id={checkpoint_id!r} is not valid: expected a step") from None


def _cannot_be_pickled(one: object) -> TypeError:
    name = type(one).__name__
    return TypeError(
        f"a {name} cannot be pickled: its store belongs to this process. Make another {name} of the directory in the other "
        "process; for async_save use AsyncCheckpointerType.THREAD, its default"
    )


def _was_dropped() -> errors.Dropped:
    return errors.Dropped("the step was dropped while it was saved")


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Writer(StorageWriter):
    """Where ``torch.distributed.checkpoint.save`` and ``async_save`` write.

    where: a directory, in which each rank has a persistent store of its own; or, in a job of one rank, an open persistent
    :class:`ebbtide.Store`.
    step: which checkpoint this is; ``checkpoint_id`` of ``save`` takes its place. One that is there already is written anew,
    and stays until the new one is durable; its parts on other ranks than 0 go with the next ``save`` or :meth:`drop`.
    options: for :func:`ebbtide.open`.

    When ``save`` returns, the checkpoint is durable; :class:`Reader` finds no other. Several saves may be in flight
    (``async_save``), each of another step: a step that is being saved is refused until it is done, and nothing is dropped.
    Planners may cache their plans (``enable_plan_caching``). Raises as :func:`ebbtide.open` and
    :meth:`ebbtide.History.checkpoint`; :class:`ebbtide.InvalidArgument` for a store in a job of several ranks, and for a step
    that is being saved. A Writer belongs to its process: it cannot be pickled.

    Thread safety: all but ``close``. A save is one thread from its beginning to its end, so what belongs to it is kept by thread.

    >>> with ebbtide.torch.Writer("run-7") as writer:
    ...     torch.distributed.checkpoint.save(state, checkpoint_id=step, storage_writer=writer)
    """

    def __init__(
        self,
        where: str | os.PathLike[str] | ebbtide.Store,
        step: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        for name in ("keep_last", "keep_every"):
            if options.get(name):
                raise errors.InvalidArgument(
                    f"{name}={options[name]} would drop parts of checkpoints, each of which is a version: leave it out, and drop "
                    "the steps that are no longer wanted with drop(step)"
                )
        self._where = where if isinstance(where, ebbtide.Store) else Path(where)
        self._options: dict[str, Any] = {"durability": "storage"} | options | {"keep_last": 0, "keep_every": 0}
        self._step = step
        self._store: ebbtide.Store | None = where if isinstance(where, ebbtide.Store) else None
        self._rank = 0
        self._lock = threading.Lock()  # of all below
        self._asked: dict[threading.Thread, int] = {}  # the step of the save that a thread begins next
        self._saves: dict[threading.Thread, _Written] = {}  # that each thread is at, or was at last
        self._steps: set[int] = set()  # that this writer wrote
        self._last = 0  # number of a write

    def __reduce__(self) -> Any:
        raise _cannot_be_pickled(self)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._asked[threading.current_thread()] = _step_of(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        there = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = kwargs.get("rank")
        if there and torch.distributed.get_world_size() > 1 and not kwargs.get("use_collectives", True):
            raise errors.InvalidArgument("use_collectives=False: the ranks' metadata belongs together; leave it True")
        with self._lock:
            self._rank = rank if rank is not None else torch.distributed.get_rank() if there else 0
            if isinstance(self._where, Path):
                if self._store is None:
                    self._where.mkdir(parents=True, exist_ok=True)
                    self._store = ebbtide.open(self._where / f"rank-{self._rank}", **self._options)
            elif self._where.durability == "ephemeral":
                raise errors.InvalidArgument(
                    'the store is ephemeral: a checkpoint needs durability="storage" (or "process")'
                )
            elif there and torch.distributed.get_world_size() > 1:
                raise errors.InvalidArgument("each rank needs a store of its own: give Writer a directory")
            thread = threading.current_thread()
            step = self._asked.pop(thread, self._step)
            self._saves.pop(thread, None)
            if is_coordinator and step in {one.step for one in self._in_flight()}:
                raise errors.InvalidArgument(
                    f"step {step} is being saved: wait for that save before the next of this step. If it failed, a Writer may "
                    f"not know: save the step again on the same thread, or call drop({step}) before"
                )
            there_already = [one.number for one in _writes(self._open_store()) if one.step == step]
            self._last = max(time.time_ns(), self._last + 1, max(there_already, default=0) + 1)
            self._saves[thread] = _Written(step, self._last)
            self._steps.add(step)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        store, writing = self._open_store(), self._save_here()
        self._forget_replaced()
        history = store.history(writing.parts)
        results = []
        try:
            for number, item in enumerate(plan.items):
                data = planner.resolve_data(item)
                if item.type == WriteItemType.BYTE_IO:
                    assert isinstance(data, io.BytesIO)
                    array: Any = np.frombuffer(data.getbuffer(), np.uint8)
                    kind = None
                else:
                    assert isinstance(data, torch.Tensor)
                    planned = item.tensor_data
                    if planned is not None and data.shape != planned.chunk.sizes:
                        raise errors.InvalidArgument(
                            f"{item.index.fqn} has the shape {tuple(data.shape)}, and this save's plan has "
                            f"{tuple(planned.chunk.sizes)}: a planner with enable_plan_caching serves one save at a time"
                        )
                    if planned is not None and data.dtype != planned.properties.dtype:
                        raise errors.InvalidArgument(
                            f"{item.index.fqn} is {data.dtype}, and this save's plan has {planned.properties.dtype}: "
                            "enable_plan_caching does not see that a type changed; save with a planner without it"
                        )
                    kind = (tuple(data.shape), data.dtype)
                    array = data.detach().resolve_conj().resolve_neg()
                    array = array.contiguous() if array.layout is torch.strided else array
                try:
                    history.checkpoint(number, array)
                except (errors.InvalidArgument, errors.Unsupported) as error:
                    raise type(error)(str(error).replace("arrays", item.index.fqn, 1)) from error
                place = (self._rank, writing.number, number)
                results.append(WriteResult(index=item.index, size_in_bytes=array.nbytes, storage_data=(place, kind)))
            if plan.items:
                history.wait(store.durability)
            self._save_here()
            if len(there := history.versions()) != len(plan.items):
                raise errors.InvalidArgument(
                    f"{len(there)} of {len(plan.items)} parts are left: the store was opened with keep_last, which drops the "
                    "others; open it without"
                )
        except BaseException:
            self._end_save()
            history.drop()
            raise
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        store, writing = self._open_store(), self._save_here()
        history = store.history(_metadata_of(writing.step))
        try:
            written = {one.index: one.storage_data for of_rank in results for one in of_rank}
            other = [
                index for index, kind in _parts(metadata).items() if index not in written or written[index][1] != kind
            ]
            if other:
                raise errors.InvalidArgument(
                    f"no rank wrote {min(one.fqn for one in other)} as it is in the metadata: the plans of this save and its "
                    "metadata differ. A planner with enable_plan_caching serves one save at a time"
                )
            places = {index: place for index, (place, _) in written.items()}
            metadata = dataclasses.replace(
                metadata, storage_data=places
            )  # the planner may keep its own for the next save
            data = np.frombuffer(pickle.dumps(metadata), np.uint8)
            history.checkpoint(writing.number, data).wait(store.durability)
            with self._lock:
                dropped = threading.current_thread() not in self._saves
            if dropped:
                history.drop(writing.number)
                raise _was_dropped()
        finally:
            self._end_save()
        for number in history.versions():
            if number != writing.number:
                history.drop(number)
        found = _writes(store)  # before the saves in flight: one that begins in between is in neither
        with self._lock:
            kept = {*self._in_flight(), writing}
            steps = set(self._steps)
        for one in found:
            if one.step in steps and one not in kept and one.number not in store.versions(_metadata_of(one.step)):
                store.history(one.parts).drop()

    def _save_here(self) -> _Written:
        with self._lock:
            if (save := self._saves.get(threading.current_thread())) is None:
                raise _was_dropped()
            return save

    def _in_flight(self) -> set[_Written]:
        """The saves that have not ended. A thread that has ended, or begun another save, is done with its last one."""
        self._saves = {thread: one for thread, one in self._saves.items() if thread.is_alive()}
        return set(self._saves.values())

    def _end_save(self) -> None:
        with self._lock:
            self._saves.pop(threading.current_thread(), None)

    def _forget_replaced(self) -> None:
        """Drops what other ranks than the coordinator have of earlier writes of a step: the coordinator did so at its end.
        Which of several writes counts, its metadata says."""
        store = self._open_store()
        there = _writes(store)  # before the saves in flight, as in finish
        with self._lock:
            kept, steps = self._in_flight(), set(self._steps)
        writes: dict[int, list[_Written]] = {}
        for one in there:
            if one.step in steps and one not in kept:
                writes.setdefault(one.step, []).append(one)
        several = {step: found for step, found in writes.items() if len(found) > 1}
        if not several or self._rank == 0 or not isinstance(self._where, Path):
            return
        try:
            with ebbtide.open(self._where / "rank-0", readonly=True) as coordinators:
                for step, found in several.items():
                    number = coordinators.latest(_metadata_of(step))
                    if number is None:
                        continue
                    written = _Written(step, number)
                    places = [_place(written, one) for one in _metadata(coordinators, written).storage_data.values()]
                    counts = {write for rank, write, _ in places if rank == self._rank}
                    for one in found:
                        if counts and one not in counts:
                            store.history(one.parts).drop()
        except errors.Error:
            return  # the next save tries again

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.fspath(checkpoint_id).lstrip("-").isdigit()

    def drop(self, step: int) -> None:
        """Forget this rank's part of a checkpoint. Rank 0 does so first: without its part the checkpoint is not there.

        A save of this step that is in flight fails.
        """
        store = self._open_store()
        with self._lock:
            self._saves = {thread: one for thread, one in self._saves.items() if one.step != step}
        store.history(_metadata_of(step)).drop()
        for one in _writes(store):
            if one.step == step:
                store.history(one.parts).drop()

    def _open_store(self) -> ebbtide.Store:
        if self._store is None:
            raise errors.InvalidArgument("this Writer is closed, or was not set up by torch.distributed.checkpoint")
        return self._store

    def close(self) -> None:
        """Close the rank's store, unless it was given open."""
        if isinstance(self._where, Path) and self._store is not None:
            self._store.close()
            self._store = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Reader(StorageReader):
    """Where ``torch.distributed.checkpoint.load`` reads what :class:`Writer` wrote, with any number of ranks.

    where: as given to :class:`Writer`. A directory is read even while ranks write to it.
    step: which checkpoint; None: the newest that is complete. ``checkpoint_id`` of ``load`` takes its place.

    What DCP knows of a checkpoint is stored as pickle, as DCP does it itself: read only stores that you trust. Raises
    :class:`ebbtide.UnknownVersion`, :class:`ebbtide.Damaged`, :class:`ebbtide.NotAStore`.

    >>> with ebbtide.torch.Reader("run-7") as reader:
    ...     torch.distributed.checkpoint.load(state, storage_reader=reader)
    """

    def __init__(self, where: str | os.PathLike[str] | ebbtide.Store, step: int | None = None) -> None:
        super().__init__()
        self._where = where if isinstance(where, ebbtide.Store) else Path(where)
        self._step, self._asked = step, step
        self._chosen: _Written | None = None
        self._storage_data: dict[Any, Any] = {}

    def __reduce__(self) -> Any:
        raise _cannot_be_pickled(self)

    @property
    def step(self) -> int | None:
        """The checkpoint that is read."""
        return self._step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = self._asked = _step_of(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._step = self._asked
        with self._opened(0) as store:
            self._chosen = self._choose(store)
            self._step = self._chosen.step
            return _metadata(store, self._chosen)

    def _choose(self, store: ebbtide.Store) -> _Written:
        if self._step is None:
            steps = {int(found[1]) for found in map(_METADATA.fullmatch, store.histories()) if found}
            for step in sorted(steps, reverse=True):
                number = store.latest(_metadata_of(step))  # passes over what is damaged
                if number is not None:
                    return _Written(step, number)
            raise errors.UnknownVersion(f"{self._where} has no checkpoint of torch.distributed.checkpoint")
        numbers = store.versions(_metadata_of(self._step))
        if not numbers:
            raise errors.UnknownVersion(f"{self._where} has no checkpoint of step {self._step}")
        return _Written(self._step, numbers[-1])

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._storage_data = dict(metadata.storage_data)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        # Ranks that looked at different moments may have found different checkpoints: all read the coordinator's.
        return [dataclasses.replace(plan, storage_data=self._chosen) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        if plan.storage_data != self._chosen:
            self._chosen = plan.storage_data
            self._step = self._chosen.step
            with self._opened(0) as store:
                self._storage_data = dict(_metadata(store, self._chosen).storage_data)
        assert self._chosen is not None
        by_place: dict[int, dict[str, dict[int, list[Any]]]] = {}  # rank, its history, the version
        for item in plan.items:
            if item.storage_index not in self._storage_data:
                raise errors.SizeMismatch(
                    f"{item.storage_index.fqn} is in other parts in the checkpoint of step {self._chosen.step} than in the one "
                    "that this rank planned to load: load again"
                )
            rank, write, version = _place(self._chosen, self._storage_data[item.storage_index])
            by_place.setdefault(rank, {}).setdefault(write.parts, {}).setdefault(version, []).append(item)
        for rank, histories in sorted(by_place.items()):
            with self._opened(rank) as store:
                for parts, versions in histories.items():
                    history = store.history(parts)
                    history.hint(sorted(versions))
                    for version in sorted(versions):
                        stored = history.restore(version, keep=True)
                        for item in versions[version]:
                            self._load(item, stored, planner)
        return _done(None)

    @staticmethod
    def _load(item: Any, stored: Any, planner: LoadPlanner) -> None:
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(np.asarray(stored).tobytes()))
            return
        for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            stored = torch.narrow(stored, axis, start, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(stored)
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return Writer.validate_checkpoint_id(checkpoint_id)

    @contextlib.contextmanager
    def _opened(self, rank: int) -> Iterator[ebbtide.Store]:
        """A rank's store, open no longer than it is read: the memory and the descriptors of a load are those of one store,
        however many ranks saved."""
        if isinstance(self._where, ebbtide.Store):
            yield self._where
        else:
            with ebbtide.open(self._where / f"rank-{rank}", readonly=True) as store:
                yield store

    def close(self) -> None:
        """Nothing is open between loads: there for symmetry with :class:`Writer`."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
