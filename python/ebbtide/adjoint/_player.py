"""What the actions of a schedule do to working memory and to a history."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol

from checkpoint_schedules import (
    CheckpointSchedule,
    Copy,
    EndForward,
    EndReverse,
    Forward,
    Move,
    Reverse,
    StorageType,
)

from ebbtide import errors

_EXPECTED = f"expected one of {', '.join(map(str, StorageType))}"
_STORED = (StorageType.RAM, StorageType.DISK)


class Program(NamedTuple):
    """What is computed."""

    steps: int
    forward: Callable[[int, Any], Any]
    reverse: Callable[[int, Any, Any], Any]
    record: Callable[[int, Any], tuple[Any, Any]] | None


class Versions(Protocol):
    """What is used of a history."""

    def checkpoint(self, version: int, arrays: Any, /) -> Any: ...
    def restore(self, version: int, /, *, keep: bool) -> Any: ...
    def drop(self, version: int, /) -> None: ...


@dataclasses.dataclass
class _Checkpoint:
    """What one action wrote: versions of the history, each written once. A copy in another place is the same checkpoint."""

    state: int | None = None
    records: dict[int, int] = dataclasses.field(default_factory=dict)  # by step
    places: int = 0

    def versions(self) -> list[int]:
        return [*([] if self.state is None else [self.state]), *self.records.values()]


class Player:
    """Plays a schedule, and refuses an action that does not follow from those before it."""

    def __init__(
        self,
        schedule: CheckpointSchedule,
        history: Versions,
        program: Program,
        state: Any,
        repeats: bool = True,
    ) -> None:
        self.schedule = schedule
        self._history, self._program, self._repeats = history, program, repeats
        self._actions: Iterator[tuple[int, Any]] = enumerate(schedule)
        self._now: tuple[int, Any] = (-1, None)  # the action that is played, with its place before it
        self._versions = itertools.count()
        self._checkpoints: dict[tuple[StorageType, int], _Checkpoint] = {}
        # Working memory: the state before step _at, which is the state before step _due as soon as that is needed (None: there
        # is none), and what steps have recorded.
        self._state, self._at = state, 0
        self._due: int | None = 0
        self._records: dict[int, Any] = {}
        self._recorded_forward: dict[int, Any] = {}  # which every reverse pass begins with
        self._left: int | None = None  # how many steps the reverse pass still has to take; None in the forward pass
        self._adjoint: Any = None

    def goes_on(self) -> bool:
        """Whether the schedule has a further action."""
        for action in self._actions:
            self._actions = itertools.chain([action], self._actions)
            return True
        return False

    def forward(self) -> Any:
        if self._left is not None:
            raise errors.InvalidArgument("the forward pass has ended: it runs once")
        self._play_to(EndForward)
        if self._due != self._program.steps:
            self._refuse(f"ends the forward pass of {self._program.steps} steps {self._whereabouts()}")
        self._reach(self._program.steps)
        self._left = self._program.steps
        if self._repeats:
            self._recorded_forward = dict(self._records)
        return self._state

    def reverse(self, adjoint: Any) -> Any:
        if self._left is None:
            raise errors.InvalidArgument("the forward pass comes first")
        self._adjoint = adjoint
        self._play_to(EndReverse)
        if self._left:
            self._refuse(f"ends the reverse pass with {self._left} steps left")
        self._left = self._program.steps
        self._state = self._due = None
        self._records = dict(self._recorded_forward)
        adjoint, self._adjoint = self._adjoint, None
        return adjoint

    def _play_to(self, end: type) -> None:
        for self._now in self._actions:
            match self._now[1]:
                case Forward() as action:
                    self._advance(action)
                case Copy() | Move() as action:
                    self._fetch(action)
                case Reverse() as action:
                    self._go_back(action)
                case EndForward() | EndReverse() as action:
                    if not isinstance(action, end):
                        self._refuse(f"comes where {end.__name__} was expected")
                    return
                case _:
                    self._refuse(
                        "is unknown: expected Forward, Copy, Move, Reverse, EndForward or EndReverse of checkpoint_schedules 1"
                    )
        place = self._now[0] + 1
        raise errors.InvalidArgument(f"the schedule ends before action {place}: expected {end.__name__} at its end")

    def _refuse(self, reason: str) -> NoReturn:
        place, action = self._now
        raise errors.InvalidArgument(f"action {place} of the schedule, {action!r}, {reason}")

    def _whereabouts(self) -> str:
        return "where there is no state" if self._due is None else f"at step {self._due}"

    def _advance(self, action: Forward) -> None:
        first, end, steps = action.n0, action.n1, self._program.steps
        if self._due != first:
            self._refuse(f"begins {self._whereabouts()}")
        if self.schedule.max_n is None:
            end = min(end, steps)
        if not first < end <= steps:
            self._refuse(f"takes no step, or more than there are: there are {steps}")
        if not isinstance(action.storage, StorageType):
            self._refuse(f"writes to an unknown storage: {_EXPECTED}")
        kept = action.storage in _STORED
        written = _Checkpoint()
        if action.write_ics and kept:
            self._reach(first)
            written.state = self._write(self._state)
        if action.write_adj_deps:
            for step in range(first, end):
                record = self._record(step)
                if kept:
                    written.records[step] = self._write(record)
                else:
                    self._records[step] = record
        else:
            self._reach(end)
        self._due = end
        if written.versions():
            self._put(action.storage, first, written)
        if self.schedule.max_n is None and end == steps:
            self.schedule.finalize(steps)

    def _reach(self, step: int) -> None:
        while self._at < step:
            self._state = self._program.forward(self._at, self._state)
            self._at += 1

    def _record(self, step: int) -> Any:
        """What the adjoint of a step needs: without ``record`` the state before it, and the step itself may wait."""
        self._reach(step)
        if self._program.record is None:
            return self._state
        self._state, record = self._program.record(step, self._state)
        self._at += 1
        return record

    def _write(self, arrays: Any) -> int:
        version = next(self._versions)
        self._history.checkpoint(version, arrays)
        return version

    def _put(self, storage: StorageType, step: int, checkpoint: _Checkpoint) -> None:
        before = self._checkpoints.get((storage, step))
        self._checkpoints[storage, step] = checkpoint
        checkpoint.places += 1
        if before is not None:
            before.places -= 1
            self._forget_lost(before)

    def _forget_lost(self, checkpoint: _Checkpoint) -> None:
        if checkpoint.places == 0:
            for version in checkpoint.versions():
                self._history.drop(version)

    def _fetch(self, action: Copy | Move) -> None:
        place = action.from_storage, action.n
        checkpoint = self._checkpoints.get(place)
        if checkpoint is None:
            self._refuse(f"reads what was not written: {self._contents(action.from_storage)}")
        if isinstance(action, Move):
            del self._checkpoints[place]
            checkpoint.places -= 1
        if action.to_storage in _STORED:
            self._put(action.to_storage, action.n, checkpoint)  # no byte moves: both are the store
        elif action.to_storage is StorageType.WORK:
            self._load(action.n, checkpoint)
        elif action.to_storage is StorageType.NONE:
            self._forget_lost(checkpoint)
        else:
            self._refuse(f"goes to an unknown storage: {_EXPECTED}")

    def _load(self, step: int, checkpoint: _Checkpoint) -> None:
        keep = checkpoint.places > 0
        self._state = self._due = None
        if checkpoint.state is not None:
            self._state = self._history.restore(checkpoint.state, keep=keep)
            self._at = self._due = step
        for recorded, version in checkpoint.records.items():
            self._records[recorded] = self._history.restore(version, keep=keep)

    def _contents(self, storage: Any) -> str:
        steps = sorted(step for place, step in self._checkpoints if place is storage)
        return f"{storage} has {f'those of steps {steps}' if steps else 'no checkpoint'}"

    def _go_back(self, action: Reverse) -> None:
        if self._left != action.n1:
            at = "in the forward pass" if self._left is None else f"where the adjoint is at step {self._left}"
            self._refuse(f"comes {at}")
        if not 0 <= action.n0 < action.n1:
            self._refuse("takes no step, or more than there are")
        for step in range(action.n1 - 1, action.n0 - 1, -1):
            if step not in self._records:
                self._refuse(f"needs what step {step} recorded, which is not in working memory")
            record = self._records.pop(step) if action.clear_adj_deps else self._records[step]
            self._adjoint = self._program.reverse(step, record, self._adjoint)
        self._left = action.n0
