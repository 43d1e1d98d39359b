"""A tape whose steps keep their checkpoints in a history."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyadjoint
from checkpoint_schedules import CheckpointSchedule, Forward, StorageType
from pyadjoint.checkpointing import CheckpointManager
from pyadjoint.tape import Tape, TapePackageData, TimeStep, TimeStepSequence, get_working_tape

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import drop, history_of

_OLDEST = (2026, 9)
Unpack = Callable[[Any], Any]
Pack = Callable[[Any], tuple[Any, Unpack] | None]


def enable_checkpointing(
    store: ebbtide.Store,
    schedule: CheckpointSchedule,
    tape: Tape | None = None,
    *,
    pack: Pack | None = None,
    **options: Any,
) -> None:
    """As ``tape.enable_checkpointing(schedule)``, with what the schedule keeps on ``DISK`` in ``store``.

    store: an ephemeral one. What the tape has there is dropped with the tape, and when that is cleared.
    schedule: with ``DISK`` as a storage; what it keeps in ``RAM`` pyadjoint keeps in memory, as ever.
    tape: without blocks; the working tape if it is None.
    pack: for types of values other than arrays of NumPy, which else stay in memory: ``pack(value)`` returns None, or the value
    as :meth:`ebbtide.History.checkpoint` takes it, and a function that makes a value of what comes back.
    options: those of ``Tape.enable_checkpointing``.

    Raises :class:`ebbtide.InvalidArgument` (a persistent store, no tape, or one with blocks), :class:`ebbtide.Unsupported` (a pyadjoint
    older than 2026.9), and as ``Tape.enable_checkpointing``.

    >>> tape = pyadjoint.get_working_tape()
    >>> ebbtide.pyadjoint.enable_checkpointing(store, MultistageCheckpointSchedule(1000, 0, 50))
    >>> for step in tape.timestepper(iter(range(1000))):
    ...     field = advance(field)
    """
    if tuple(map(int, pyadjoint.__version__.split(".")[:2])) < _OLDEST:
        raise errors.Unsupported(
            f"pyadjoint-ad {pyadjoint.__version__} is too old, its gradients with checkpoints may be wrong: "
            f"pip install 'pyadjoint-ad>={'.'.join(map(str, _OLDEST))}'"
        )
    tape = get_working_tape() if tape is None else tape
    if store.durability != "ephemeral":
        raise errors.InvalidArgument("the store is persistent: a tape needs one that forgets (an ephemeral one)")
    if tape is None:
        raise errors.InvalidArgument(
            "there is no working tape: call pyadjoint.set_working_tape() first, or give a tape"
        )
    if tape.get_blocks():
        raise errors.InvalidArgument("the tape has blocks: enable checkpointing before the first, or clear the tape")
    package = _Package(store, pack or _pack_array)
    tape._package_data["ebbtide"] = package  # without it, pyadjoint refuses a schedule with DISK
    tape._blocks = _Steps(package)
    tape._checkpoint_manager = _Manager(schedule, tape, **options)


def _pack_array(value: Any) -> tuple[Any, Unpack] | None:
    kind = type(value)
    return (value.view(np.ndarray), lambda array: array.view(kind)) if isinstance(value, np.ndarray) else None


class _Package(TapePackageData):
    """What pyadjoint tells of the tape as a whole: above all, whether a checkpoint is one on ``DISK``."""

    def __init__(self, store: ebbtide.Store, pack: Pack) -> None:
        self.pack = pack
        self.history = history_of(self, store, "pyadjoint", "lifo")
        self.on_disk = False
        self.versions = itertools.count()
        self._store = store

    def continue_checkpointing(self) -> None:
        self.on_disk = True

    def pause_checkpointing(self) -> None:
        self.on_disk = False

    def clear(self) -> None:
        self.history.drop()

    def reset(self) -> None:
        """A forward pass begins, from the checkpoint of its first step: each step replaces its own when it writes."""

    def checkpoint(self) -> None:
        """Of the tape's variables alone, none of which is in the store."""

    def restore_from_checkpoint(self, state: None) -> None: ...

    def copy(self) -> _Package:
        return _Package(self._store, self.pack)


class _Manager(CheckpointManager):
    """pyadjoint's own, but what a step begins with outlives the step where its adjoint is next.

    pyadjoint forgets that then, and takes what the variable had when the tape was recorded: a gradient at another control would
    be wrong, unless the step's adjoint needs only what the step computes.
    """

    def process_operation(self, cp_action: Any, progress_bar: Any, **given: Any) -> None:
        if not (isinstance(cp_action, Forward) and cp_action.write_adj_deps and cp_action.storage is StorageType.WORK):
            super().process_operation(cp_action, progress_bar, **given)
            return
        for step in range(cp_action.n0, min(cp_action.n1, self.total_timesteps)):
            inputs = {variable: variable.checkpoint for variable in self.tape.timesteps[step].checkpointable_state}
            super().process_operation(Forward(step, step + 1, False, True, StorageType.WORK), progress_bar, **given)
            for variable, value in inputs.items():
                if variable.checkpoint is None:
                    variable.checkpoint = value


class _Stored:
    """Stands for a value whose arrays are in the store."""

    def __init__(self, unpack: Unpack) -> None:
        self.unpack = unpack


class _Step(TimeStep):
    """A step whose checkpoint on ``DISK`` is a version of the history."""

    def __init__(self, package: _Package) -> None:
        super().__init__()
        self._checkpoint: dict[Any, Any]
        self._package = package
        self._version: int | None = None

    def checkpoint(self, *given: Any) -> None:
        if not self._package.on_disk:
            super().checkpoint(*given)
            return
        self.delete_checkpoint()
        super().checkpoint(*given)
        # What all steps use is the variable's own value: it stays in memory in any case.
        packed = {
            variable: None if value is variable.checkpoint else self._package.pack(value)
            for variable, value in self._checkpoint.items()
        }
        arrays = [found[0] for found in packed.values() if found is not None]
        if arrays:
            self._version = next(self._package.versions)
            self._package.history.checkpoint(self._version, arrays)
        self._checkpoint.update(
            {variable: _Stored(found[1]) for variable, found in packed.items() if found is not None}
        )

    def restore_from_checkpoint(self, *given: Any) -> None:
        if self._version is None:
            super().restore_from_checkpoint(*given)
            return
        history, stored = self._package.history, self._checkpoint
        arrays = iter(history.restore(self._version, keep=True))
        history.hint_front(self._version)  # until it is deleted, it may be the next one again
        self._checkpoint = {
            variable: value.unpack(next(arrays)) if isinstance(value, _Stored) else value
            for variable, value in stored.items()
        }
        try:
            super().restore_from_checkpoint(*given)
        finally:
            self._checkpoint = stored

    def delete_checkpoint(self) -> None:
        super().delete_checkpoint()
        if self._version is not None:
            drop(self._package.history, self._version)
            self._version = None


class _Steps(TimeStepSequence):
    """The blocks of a tape, by steps of ours."""

    def __init__(self, package: _Package) -> None:
        super().__init__()
        self._package = package

    def append_step(self, step: TimeStep | None = None) -> None:
        self.steps.append(_Step(self._package) if step is None else step)
