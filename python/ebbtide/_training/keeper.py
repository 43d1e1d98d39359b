"""The checkpoints of a run: which are written, which are kept, and which one it goes on from."""

from __future__ import annotations

import operator
import os
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ebbtide
from ebbtide import errors
from ebbtide._training.retention import Best, kept

_UNREADABLE = (errors.Damaged, errors.Lost)  # an I/O error may be over: it is raised, and nothing is passed over
_ARRAY = re.compile(r"arrays\['(?:arrays|leaves)'\]\[(\d+)\]")  # in the checkpoints of the managers
_Own = TypeVar("_Own", bound="Keeper")
_Read = TypeVar("_Read")


class OneRank:
    """The processes of a job that checkpoint together; here there is one."""

    count = 1

    def gather(self, mine: Any) -> list[Any]:
        """What each rank gave, in order of ranks. Every rank must call it."""
        return [mine]


class Keeper:
    """The part of a manager that knows no framework."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | ebbtide.Store,
        ranks: OneRank,
        *,
        every: int,
        keep_last: int,
        keep_every: int,
        best: tuple[str, int] | tuple[str, int, str] | None,
        name: str,
        warm: bool,
        **options: Any,
    ) -> None:
        if warm:
            options["warm"] = True
        for key, value, least in (("every", every, 1), ("keep_last", keep_last, 0), ("keep_every", keep_every, 0)):
            if type(value) is not int or value < least:
                raise errors.InvalidArgument(f"{key}={value!r} is not valid: expected an int of at least {least}")
        self._every, self._keep_last, self._keep_every = every, keep_last, keep_every
        self._best = None if best is None else Best.of(best)
        self._ranks = ranks
        self._owns = not isinstance(directory, ebbtide.Store)
        self._earlier: Path | None = None  # the directory, if an earlier process made the store
        if isinstance(directory, ebbtide.Store):
            if options:
                raise errors.InvalidArgument(f"{next(iter(options))}: an open store has its options already")
            self.store = directory
        else:
            if (Path(directory) / "store").exists():
                self._earlier = Path(directory)
            self.store = ebbtide.open(directory, **({"durability": "storage"} | options))
        self._level = self.store.durability
        if self._level == "ephemeral":
            raise errors.InvalidArgument('the store is ephemeral: a manager needs durability="storage" (or "process")')
        self.history = self.store.history(name)
        self._metrics: dict[int, float] = {}
        self._stale: set[int] = set()  # newer than the one that was resumed, or damaged
        self._superseded = False  # what is stale; else it may be all that is left
        self._pending: dict[int, ebbtide.Future] = {}
        self._saved: set[int] = set()  # by this manager
        self._resumed = False  # or it was found that there is nothing to resume

    def wait(self, timeout: float | None = None) -> None:
        """Wait until every checkpoint is durable. Raises as :meth:`ebbtide.History.wait`."""
        self.history.wait(self._level, timeout=timeout)
        self._tidy()

    def close(self) -> None:
        """Wait, and close the store unless it was given open. Raises as :meth:`ebbtide.Store.close`."""
        try:
            if self._pending:
                self.history.wait(self._level)
            if self._ranks.count == 1:  # other ranks may not get here
                self._tidy()
        finally:
            if self._owns:
                self.store.close()

    def __enter__(self: _Own) -> _Own:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.close()
        except errors.Error as failure:
            if error is None:
                raise
            warnings.warn(f"closing the manager failed too: {failure}", RuntimeWarning, stacklevel=2)

    def _is_due(self, step: int) -> bool:
        return operator.index(step) % self._every == 0

    def _metrics_with(self, step: int, values: dict[str, Any]) -> dict[int, float]:
        """The metric of each version, and of the one that is to be saved: each checkpoint has it of all before."""
        metrics = {version: value for version, value in self._metrics.items() if version not in self._stale}
        if self._best is not None:
            if self._best.name not in values:
                raise errors.InvalidArgument(f"{self._best.name} is missing: it decides which checkpoints are the best")
            metrics[step] = self._ranks.gather(_number(self._best.name, values[self._best.name]))[0]
        return metrics

    def _write(
        self, step: int, checkpoint: Any, metrics: dict[int, float], leaves: Sequence[str], stream: Any = None
    ) -> ebbtide.Future:
        """``leaves``: what the program calls the arrays of ``checkpoint``, which errors name."""
        if not self._resumed:
            self._pass_over(step)
        if step in self._stale:
            self.history.drop(step)
        try:
            future = self.history.checkpoint(step, checkpoint, stream=stream)
        except errors.Error as error:
            named = _ARRAY.sub(lambda found: leaves[int(found[1])], str(error))
            if named == str(error):
                raise
            raise type(error)(named) from error
        self._stale.discard(step)
        self._metrics = metrics
        self._pending[step] = future
        self._saved.add(step)
        self._tidy()
        return future

    def _pass_over(self, step: int) -> None:
        """What an earlier run saved of later steps is not part of this one, which did not resume it."""
        self._resumed = True
        self._stale = {version for version in self.history.versions() if version > step}
        if self._stale:
            warnings.warn(
                f"history {self.history.name!r} has checkpoints of an earlier run up to step {max(self._stale)}, and this run saves step "
                f"{step} without resume(): they stay, keep_last does not count them, and the next resume() takes the highest step "
                "of both runs. Call resume() first, or give this run a directory or a `name` of its own",
                RuntimeWarning,
                stacklevel=5,
            )

    def _newest(self, at_most: int | None, decode: Callable[[Any], _Read]) -> tuple[int, _Read] | None:
        """The newest version that every rank can read. Newer ones are stale from then on."""
        self._resumed = True
        candidates = [version for version in self.history.versions() if at_most is None or version <= at_most]
        common: set[int] = set.intersection(*map(set, self._ranks.gather(candidates)))
        for step in sorted(common, reverse=True):
            read = None
            try:
                read = (decode(self.history.restore(step, keep=True)),)
            except _UNREADABLE as failure:
                warnings.warn(
                    errors.DamagedWarning(f"the checkpoint of step {step} is skipped: {failure}"), stacklevel=3
                )
            if all(self._ranks.gather(read is not None)) and read is not None:
                self._stale = {version for version in self.history.versions() if version > step}
                self._superseded = True
                return step, read[0]
        self._stale = set(self.history.versions())
        self._superseded = not candidates
        if not candidates and not self._stale and self._earlier is not None:
            warnings.warn(
                f"{self._earlier} is the store of an earlier process, which ended before any checkpoint was durable: the run begins "
                "anew. wait() returns once all are durable",
                RuntimeWarning,
                stacklevel=3,
            )
        if candidates:
            warnings.warn(
                f"none of {len(candidates)} checkpoints can be read{' by every rank' if self._ranks.count > 1 else ''}: the run "
                "begins anew, and they stay until their steps are saved again",
                errors.DamagedWarning,
                stacklevel=3,
            )
        return None

    def _tidy(self) -> None:
        """Drop what could not be written, and what no rule keeps, up to the newest version that is durable on every rank.

        A version that a rank lacks is not kept.
        """
        for step, future in list(self._pending.items()):
            try:
                if not future.done(self._level):
                    continue
            except errors.Error as failure:
                self.history.drop(step)
                warnings.warn(
                    f"the checkpoint of step {step} is not durable, and was dropped: {failure}",
                    RuntimeWarning,
                    stacklevel=5,
                )
            del self._pending[step]
        there = [version for version in self.history.versions() if version not in self._stale | set(self._pending)]
        common = sorted(set.intersection(*map(set, self._ranks.gather(there))))
        if not common or common[-1] not in self._saved:
            return
        keep = kept(common, self._metrics, keep_last=self._keep_last, keep_every=self._keep_every, best=self._best)
        for version in there:
            if version <= common[-1] and version not in keep:
                self.history.drop(version)
        if self._superseded:
            for version in self._stale:
                self.history.drop(version)
            self._stale = set()
        left = set(self.history.versions())
        self._metrics = {version: value for version, value in self._metrics.items() if version in left}


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise errors.InvalidArgument(
            f"{name} is of type {type(value).__name__!r}: expected a number ({error})"
        ) from error
