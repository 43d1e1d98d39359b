"""The passes of a program, forward and back, by a schedule that is walked before it is played."""

from __future__ import annotations

import copy
import operator
import weakref
from collections.abc import Callable
from typing import Any, Self

from checkpoint_schedules import CheckpointSchedule

import ebbtide
from ebbtide import errors
from ebbtide._training.histories import drop
from ebbtide.adjoint._lent import Lent
from ebbtide.adjoint._player import Player, Program


def run(
    schedule: CheckpointSchedule,
    history: ebbtide.History,
    *,
    steps: int,
    state: Any,
    forward: Callable[[int, Any], Any],
    reverse: Callable[[int, Any, Any], Any],
    seed: Callable[[Any], Any] | None = None,
    record: Callable[[int, Any], tuple[Any, Any]] | None = None,
) -> Any:
    """Run ``steps`` steps forward and once back, as ``schedule`` says, and return the adjoint of ``state``.

    schedule: a new one, of any class of checkpoint_schedules; it says which steps are computed again. Its ``RAM`` and ``DISK``
    are both the store, which decides by itself what is in memory when it is read; its ``WORK`` is the program's own memory.
    history: an empty one, which is dropped at the end.
    steps: how many there are; they are counted from 0.
    state: before step 0, anything that :meth:`ebbtide.History.checkpoint` takes.
    forward: ``forward(step, state)`` returns the state after a step. No state may be changed once it is there: arrays of NumPy
    may be the cache's own memory, which is read-only.
    reverse: ``reverse(step, state, adjoint)`` gets the state before a step and the adjoint of the state after it, and returns
    the adjoint of the state before it.
    seed: ``seed(state)`` returns the adjoint of the last state; without it, ``reverse`` first gets None.
    record: ``record(step, state)`` is ``forward`` where the schedule keeps what the adjoint needs: it returns the state after
    the step, and what ``reverse`` gets in place of the state before it.

    The schedule is first walked on a copy, which finds its mistakes before anything is computed, and all its reads are hinted.
    Raises :class:`ebbtide.InvalidArgument`: a schedule for another number of steps, that has been iterated, that has no reverse
    pass, or is not one of checkpoint_schedules 1; one with an action that is unknown, skips a step, or reads what was not
    written, with that action and its place, counted from 0; a history that has versions. And as
    :meth:`ebbtide.History.checkpoint` and :meth:`ebbtide.History.restore`, and whatever the functions raise.

    >>> gradient = ebbtide.adjoint.run(Revolve(1000, 20), store.history("wave"), steps=1000, state=field,
    ...                                forward=advance, reverse=pull, seed=lambda last: last - observed)
    """
    with Passes(schedule, history, steps=steps, state=state, forward=forward, reverse=reverse, record=record) as passes:
        passes._walk_back()
        last = passes.forward()
        return passes.reverse(None if seed is None else seed(last))


class Passes:
    """One pass forward, and as many back as the schedule allows. The arguments are those of :func:`run`.

    As a context manager, and when it is gone, it drops the history.

    >>> with ebbtide.adjoint.Passes(SingleDiskStorageSchedule(), history, steps=1000, state=field,
    ...                             forward=advance, reverse=pull) as passes:
    ...     last = passes.forward()
    ...     gradients = [passes.reverse(seed) for seed in seeds(last)]
    """

    def __init__(
        self,
        schedule: CheckpointSchedule,
        history: ebbtide.History,
        *,
        steps: int,
        state: Any,
        forward: Callable[[int, Any], Any],
        reverse: Callable[[int, Any, Any], Any],
        record: Callable[[int, Any], tuple[Any, Any]] | None = None,
    ) -> None:
        steps = _count(steps)
        ahead = _copy(schedule)
        if schedule.max_n not in (None, steps):
            raise errors.InvalidArgument(f"steps={steps} is not valid: the schedule is for {schedule.max_n} steps")
        if len(history):
            raise errors.InvalidArgument(
                f"{history!r} has versions: give each run an empty history, as store.history(name) of a new name is"
            )
        history.drop()  # the numbers of versions that were consumed are free again
        self._history = history
        self._reads = _Reads()
        self._ahead = Player(ahead, self._reads, Program(steps, _nothing, _nothing, None), None)
        self._ahead.forward()
        self._walked = False
        if self._ahead.goes_on():
            self._walk_back()
        self._player = Player(
            schedule, Lent(history), Program(steps, forward, reverse, record), state, repeats=self._ahead.goes_on()
        )
        self._drop = weakref.finalize(self, drop, history)
        self._drop.atexit = False

    def forward(self) -> Any:
        """Run all steps, and return the last state."""
        self._history.hint(self._reads.taken())
        return self._player.forward()

    def reverse(self, adjoint: Any = None) -> Any:
        """Go back from the ``adjoint`` of the last state, and return that of the first.

        Raises as :func:`run`, and :class:`ebbtide.InvalidArgument` if the schedule has no further reverse pass.
        """
        self._walk_back()
        self._history.hint(self._reads.taken())  # those of the first pass were hinted before the pass forward
        adjoint = self._player.reverse(adjoint)
        self._walked = False
        return adjoint

    def _walk_back(self) -> None:
        """The next reverse pass, for its reads; refused if there is none."""
        if self._walked:
            return
        if not self._ahead.goes_on():
            name = type(self._ahead.schedule).__name__
            raise errors.InvalidArgument(
                f"{name} has no further reverse pass: give a new schedule, of a class that has one"
            )
        self._ahead.reverse(None)
        self._walked = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._drop()


class _Reads:
    """Stands for the history where a schedule is walked: the versions that are read, in their order."""

    def __init__(self) -> None:
        self._versions: list[int] = []

    def checkpoint(self, version: int, arrays: Any) -> None: ...

    def restore(self, version: int, *, keep: bool) -> None:
        self._versions.append(version)

    def drop(self, version: int) -> None: ...

    def taken(self) -> list[int]:
        taken, self._versions = self._versions, []
        return taken


def _count(steps: Any) -> int:
    try:
        count = operator.index(steps)
    except TypeError:
        count = 0
    if count < 1:
        raise errors.InvalidArgument(f"steps={steps!r} is not valid: expected an int of at least 1")
    return count


def _nothing(*given: Any) -> None:
    """Computes nothing, where a schedule is walked."""


def _copy(schedule: CheckpointSchedule) -> CheckpointSchedule:
    """To be walked. A generator, which a schedule that has been iterated holds, has no copy."""
    if not isinstance(schedule, CheckpointSchedule):
        raise errors.InvalidArgument(f"schedule={schedule!r} is not valid: expected one of checkpoint_schedules 1")
    try:
        return copy.deepcopy(schedule)
    except TypeError as error:
        raise errors.InvalidArgument(
            f"{type(schedule).__name__} has been iterated, or has no copy ({error}): give each run a new schedule"
        ) from error
