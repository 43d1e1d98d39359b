"""torch.distributed.checkpoint over stores: each rank writes one of its own, and reads those of all."""

from __future__ import annotations

import dataclasses
import io
import os
import pickle
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint import StorageReader, StorageWriter
from torch.distributed.checkpoint.metadata import Metadata
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


class _Written(NamedTuple):
    """One write of a step. A step that is written anew has another number: no part is ever overwritten."""

    step: int
    number: int

    @property
    def parts(self) -> str:
        """The history of one rank's parts: version i is item i."""
        return f"dcp/{self.step}/{self.number}"


def _metadata_of(step: int) -> str:
    """The history of what DCP knows of a step, in the coordinator's store: a version is a write's number."""
    return f"dcp/{step}"


def _complete(store: ebbtide.Store) -> list[_Written]:
    """The writes whose metadata is there, ascending."""
    steps = sorted(int(found[1]) for found in map(_METADATA.fullmatch, store.histories()) if found)
    return [_Written(step, number) for step in steps for number in store.versions(_metadata_of(step))]


def _step_of(checkpoint_id: str | os.PathLike[str] | int) -> int:
    try:
        return int(os.fspath(checkpoint_id) if not isinstance(checkpoint_id, int) else checkpoint_id)
    except ValueError:
        raise errors.InvalidArgument(f"checkpoint_id={checkpoint_id!r} is not valid: expected a step") from None


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

    When ``save`` returns, the checkpoint is durable; :class:`Reader` finds no other. Raises as :func:`ebbtide.open` and
    :meth:`ebbtide.History.checkpoint`; :class:`ebbtide.InvalidArgument` for a store in a job of several ranks.

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
        self._where = where if isinstance(where, ebbtide.Store) else Path(where)
        self._options: dict[str, Any] = {"durability": "storage"} | options
        self._step = step
        self._steps: set[int] = set()  # that this writer wrote
        self._writing = _Written(step, 0)
        self._store: ebbtide.Store | None = where if isinstance(where, ebbtide.Store) else None
        self._rank = 0

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = _step_of(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        there = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank = kwargs.get("rank")
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

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        complete = _complete(self._open_store())
        newest = max((one.number for one in complete if one.step == self._step), default=0)
        writing = _Written(self._step, max(time.time_ns(), newest + 1))
        return [dataclasses.replace(plan, storage_data=(writing, complete)) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        store = self._open_store()
        self._writing, complete = plan.storage_data
        self._steps.add(self._writing.step)
        self._forget(keep={one.parts for one in complete})
        history = store.history(self._writing.parts)
        results = []
        for number, item in enumerate(plan.items):
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                assert isinstance(data, io.BytesIO)
                array: Any = np.frombuffer(data.getbuffer(), np.uint8)
            else:
                assert isinstance(data, torch.Tensor)
                array = data.detach().resolve_conj().resolve_neg()
                array = array.contiguous() if array.layout is torch.strided else array
            try:
                history.checkpoint(number, array)
            except (errors.InvalidArgument, errors.Unsupported) as error:
                raise type(error)(str(error).replace("arrays", item.index.fqn, 1)) from error
            results.append(WriteResult(index=item.index, size_in_bytes=array.nbytes, storage_data=(self._rank, number)))
        if plan.items:
            history.wait(store.durability)
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {one.index: one.storage_data for of_rank in results for one in of_rank}
        store = self._open_store()
        history = store.history(_metadata_of(self._writing.step))
        data = np.frombuffer(pickle.dumps(metadata), np.uint8)
        history.checkpoint(self._writing.number, data).wait(store.durability)
        for number in history.versions():
            if number != self._writing.number:
                history.drop(number)
        self._forget(keep={one.parts for one in _complete(store)})

    def _forget(self, keep: set[str]) -> None:
        """Drop this rank's parts of writes that were replaced or never completed, of the steps that this writer wrote."""
        store = self._open_store()
        for name in store.histories():
            found = re.fullmatch(r"dcp/(-?\d+)/\d+", name)
            if found and int(found[1]) in self._steps and name not in keep:
                store.history(name).drop()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return os.fspath(checkpoint_id).lstrip("-").isdigit()

    def drop(self, step: int) -> None:
        """Forget this rank's part of a checkpoint. Rank 0 does so first: without its part the checkpoint is not there."""
        store = self._open_store()
        store.history(_metadata_of(step)).drop()
        for name in store.histories():
            if name.startswith(f"dcp/{step}/"):
                store.history(name).drop()

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
        self._stores: dict[int, ebbtide.Store] = {}
        self._storage_data: dict[Any, Any] = {}

    @property
    def step(self) -> int | None:
        """The checkpoint that is read."""
        return self._step

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = self._asked = _step_of(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self.close()  # a store that was opened for another load need not know what was written since
        self._step = self._asked
        store = self._store_of(0)
        if self._step is None:
            for step in sorted({one.step for one in _complete(store)}, reverse=True):
                number = store.latest(_metadata_of(step))  # passes over what is damaged
                if number is not None:
                    return self._read(_Written(step, number))
            raise errors.UnknownVersion(f"{self._where} has no checkpoint of torch.distributed.checkpoint")
        numbers = store.versions(_metadata_of(self._step))
        if not numbers:
            raise errors.UnknownVersion(f"{self._where} has no checkpoint of step {self._step}")
        return self._read(_Written(self._step, numbers[-1]))

    def _read(self, chosen: _Written) -> Metadata:
        self._step, self._chosen = chosen.step, chosen
        history = self._store_of(0).history(_metadata_of(chosen.step))
        metadata = pickle.loads(np.asarray(history.restore(chosen.number, keep=True)).tobytes())
        assert isinstance(metadata, Metadata)
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._storage_data = dict(metadata.storage_data)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        # Ranks that looked at different moments may have found different checkpoints: all read the coordinator's.
        return [dataclasses.replace(plan, storage_data=self._chosen) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        if plan.storage_data != self._chosen:
            self.close()  # this rank's stores may have been opened before that checkpoint was there
            self._storage_data = dict(self._read(plan.storage_data).storage_data)
        assert self._chosen is not None
        by_place: dict[tuple[int, int], list[Any]] = {}
        for item in plan.items:
            if item.storage_index not in self._storage_data:
                raise errors.SizeMismatch(
                    f"{item.storage_index.fqn} is in other parts in the checkpoint of step {self._chosen.step} than in the one "
                    "that this rank planned to load: load again"
                )
            by_place.setdefault(self._storage_data[item.storage_index], []).append(item)
        places = sorted(by_place)
        for rank in {rank for rank, _ in places}:
            self._store_of(rank).history(self._chosen.parts).hint([number for of, number in places if of == rank])
        for rank, number in places:
            stored = self._store_of(rank).history(self._chosen.parts).restore(number, keep=True)
            for item in by_place[rank, number]:
                if item.type == LoadItemType.BYTE_IO:
                    planner.load_bytes(item, io.BytesIO(np.asarray(stored).tobytes()))
                    continue
                part = stored
                for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                    part = torch.narrow(part, axis, start, length)
                target = planner.resolve_tensor(item).detach()
                target.copy_(part)
                planner.commit_tensor(item, target)
        return _done(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return Writer.validate_checkpoint_id(checkpoint_id)

    def _store_of(self, rank: int) -> ebbtide.Store:
        if isinstance(self._where, ebbtide.Store):
            return self._where
        if rank not in self._stores:
            self._stores[rank] = ebbtide.open(self._where / f"rank-{rank}", readonly=True)
        return self._stores[rank]

    def close(self) -> None:
        """Close the stores that it opened."""
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
