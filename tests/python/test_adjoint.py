"""Schedules played through a store: the adjoint sees what it would see if all states were kept in a list."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

schedules = pytest.importorskip("checkpoint_schedules", reason="checkpoint_schedules is not installed")

from checkpoint_schedules import Copy, EndForward, EndReverse, Forward, Move, Reverse, StorageType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ebbtide
from ebbtide.adjoint import Passes, run

pytestmark = pytest.mark.filterwarnings("ignore:Numba not available")
RAM, DISK, WORK, NONE = StorageType.RAM, StorageType.DISK, StorageType.WORK, StorageType.NONE
CLASSES: dict[str, Callable[[int], Any]] = {
    "SingleMemoryStorageSchedule": lambda steps: schedules.SingleMemoryStorageSchedule(),
    "SingleDiskStorageSchedule": lambda steps: schedules.SingleDiskStorageSchedule(),
    "SingleDiskStorageSchedule, moved": lambda steps: schedules.SingleDiskStorageSchedule(move_data=True),
    "MultistageCheckpointSchedule": lambda steps: schedules.MultistageCheckpointSchedule(steps, 3, 4),
    "MixedCheckpointSchedule": lambda steps: schedules.MixedCheckpointSchedule(steps, 6),
    "TwoLevelCheckpointSchedule": lambda steps: schedules.TwoLevelCheckpointSchedule(12, 3, binomial_storage=RAM),
    "Revolve": lambda steps: schedules.Revolve(steps, 5),
    "DiskRevolve": lambda steps: schedules.DiskRevolve(steps, 4),
    "PeriodicDiskRevolve": lambda steps: schedules.PeriodicDiskRevolve(steps, 4),
    "HRevolve": lambda steps: schedules.HRevolve(steps, 2, 3),
}
REPEATING = ["SingleMemoryStorageSchedule", "SingleDiskStorageSchedule", "TwoLevelCheckpointSchedule"]


def made(name: str, steps: int) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # PeriodicDiskRevolve prints its period
        return CLASSES[name](steps)


class Listed(schedules.CheckpointSchedule):
    """The actions of a list."""

    def __init__(self, steps: int, actions: list[Any]) -> None:
        super().__init__(steps)
        self._listed = actions

    def _iterator(self) -> Iterator[Any]:
        yield from self._listed

    def uses_storage_type(self, storage_type: Any) -> bool:
        return True


# --- a program whose every state tells its step, and every adjoint the states that were seen ---------------------------


def first() -> Any:
    return {"field": np.array([1.0, 2.0, 3.0]), "step": 0}


def forward(step: int, state: Any) -> Any:
    assert state["step"] == step
    return {"field": np.sin(state["field"]) + 0.01 * step, "step": step + 1}


def reverse(step: int, state: Any, adjoint: Any) -> Any:
    assert state["step"] == step
    return adjoint * np.cos(state["field"]) + state["field"]


def seed(last: Any) -> Any:
    return 2 * last["field"]


def with_all_in_a_list(steps: int, factor: float = 1) -> Any:
    states = list(itertools.accumulate(range(steps), lambda state, step: forward(step, state), initial=first()))
    adjoint = factor * seed(states[-1])
    for step in reversed(range(steps)):
        adjoint = reverse(step, states[step], adjoint)
    return adjoint


def with_a_dictionary(schedule: Any, steps: int) -> Any:
    """What the actions mean, over a dict."""
    kept: dict[tuple[Any, int], Any] = {}
    state, adjoint, records = first(), None, {}
    for action in schedule:
        if isinstance(action, Forward):
            wrote: dict[str, Any] = {"state": state if action.write_ics else None, "records": {}}
            for step in range(action.n0, min(action.n1, steps)):
                if action.write_adj_deps:
                    wrote["records"][step] = state
                state = forward(step, state)
            if action.storage is WORK:
                records.update(wrote["records"])
            else:
                kept[action.storage, action.n0] = wrote
            if schedule.max_n is None and action.n1 >= steps:
                schedule.finalize(steps)
        elif isinstance(action, (Copy, Move)):
            found = kept[action.from_storage, action.n]
            if isinstance(action, Move):
                del kept[action.from_storage, action.n]
            if action.to_storage is WORK:
                state = found["state"]
                records.update(found["records"])
            elif action.to_storage is not NONE:
                kept[action.to_storage, action.n] = found
        elif isinstance(action, EndForward):
            adjoint = seed(state)
        elif isinstance(action, Reverse):
            for step in action:
                adjoint = reverse(step, records.pop(step), adjoint)
        elif isinstance(action, EndReverse):
            return adjoint


def played(schedule: Any, history: ebbtide.History, steps: int, **options: Any) -> Any:
    return run(schedule, history, steps=steps, state=first(), forward=forward, reverse=reverse, seed=seed, **options)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_is_as_with_a_dictionary(name: str, store: ebbtide.Store) -> None:
    for steps in range(2 if name == "HRevolve" else 1, 251):  # checkpoint_schedules makes no HRevolve of one step
        schedule = made(name, steps)
        adjoint = played(copy.deepcopy(schedule), store.history("run"), steps)
        assert (adjoint == with_a_dictionary(schedule, steps)).all(), steps
        assert store.history("run").versions() == []


# --- schedules that nobody would write ---------------------------------------------------------------------------------


class Draw:
    """Draws actions that follow from one another. Some place always has the state at step 0."""

    WRITES = [(False, False, WORK), *itertools.product((True, False), (True, False), (RAM, DISK))]

    def __init__(self, data: Any) -> None:
        self.data = data
        self.steps = data.draw(st.integers(1, 12))
        self.actions: list[Any] = []
        # Of each storage and step: whether the state is there, and up to which step what the steps recorded is.
        self.kept: dict[tuple[Any, int], tuple[bool, int]] = {}

    def one_of(self, choices: Any) -> Any:
        return self.data.draw(st.sampled_from(sorted(choices, key=str)))

    def is_last_root(self, place: tuple[Any, int]) -> bool:
        return [root for root, (state, _) in self.kept.items() if root[1] == 0 and state] == [place]

    def advance(self, at: int, to: int) -> None:
        while at < to:
            end = self.data.draw(st.integers(at + 1, to))
            state, records, storage = self.one_of(self.WRITES if self.kept else [w for w in self.WRITES if w[0]])
            state = state or self.is_last_root((storage, at))
            self.actions.append(Forward(at, end, state, records, storage))
            if storage is not WORK and (state or records):
                self.kept[storage, at] = (state, end if records else 0)
            at = end

    def shift(self) -> None:
        place, to = self.one_of(self.kept), self.one_of([RAM, DISK, NONE])
        if to is place[0] or self.is_last_root((to, place[1])) or (self.is_last_root(place) and to is NONE):
            return
        kind = Move if to is NONE else self.one_of([Copy, Move])
        self.actions.append(kind(place[1], place[0], to))
        found = self.kept[place] if kind is Copy else self.kept.pop(place)
        if to is not NONE:
            self.kept[to, place[1]] = found

    def go_back(self, left: int) -> int:
        place = self.one_of(
            place for place, (state, end) in self.kept.items() if place[1] < left and (state or end == left)
        )
        kind = Copy if self.is_last_root(place) else self.one_of([Copy, Move])
        self.actions.append(kind(place[1], place[0], WORK))
        state, end = self.kept[place] if kind is Copy else self.kept.pop(place)
        to = place[1]
        if end != left:
            to = self.data.draw(st.integers(to, left - 1))
            self.advance(place[1], to)
            self.actions.append(Forward(to, left, False, True, WORK))
        self.actions.append(Reverse(left, to, self.data.draw(st.booleans())))
        return to

    def all(self) -> list[Any]:
        self.advance(0, self.steps)
        self.actions.append(EndForward())
        left = self.steps
        while left:
            if self.data.draw(st.booleans()):
                self.shift()
            left = self.go_back(left)
        return [*self.actions, EndReverse()]


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_schedule_is_as_with_a_list(store: ebbtide.Store, data: Any) -> None:
    draw, history = Draw(data), store.history("any")
    given = {"steps": draw.steps, "state": first(), "forward": forward, "reverse": reverse}
    with Passes(Listed(draw.steps, draw.all()), history, **given) as passes:
        adjoint = passes.reverse(seed(passes.forward()))
        assert (adjoint == with_all_in_a_list(draw.steps)).all()
        kept = sum(state + max(0, end - step) for (_, step), (state, end) in draw.kept.items())
        assert len(history.versions()) <= kept, "what was moved, or written over, is still there"


# --- passes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPEATING)
def test_a_schedule_goes_back_as_often_as_it_allows(name: str, store: ebbtide.Store) -> None:
    history = store.history("passes")
    with Passes(made(name, 40), history, steps=40, state=first(), forward=forward, reverse=reverse) as passes:
        last = passes.forward()
        for factor in (1, 2, 3):
            assert (passes.reverse(factor * seed(last)) == with_all_in_a_list(40, factor)).all()
    assert history.versions() == []


@pytest.mark.parametrize("name", sorted(set(CLASSES) - set(REPEATING)))
def test_a_further_pass_than_the_schedule_has_is_refused(name: str, store: ebbtide.Store) -> None:
    with Passes(made(name, 9), store, steps=9, state=first(), forward=forward, reverse=reverse) as passes:
        passes.reverse(seed(passes.forward()))
        with pytest.raises(ebbtide.InvalidArgument, match="has no further reverse pass"):
            passes.reverse(1)


def test_passes_out_of_turn_are_refused(store: ebbtide.Store) -> None:
    with Passes(made("Revolve", 9), store, steps=9, state=first(), forward=forward, reverse=reverse) as passes:
        with pytest.raises(ebbtide.InvalidArgument, match="the forward pass comes first"):
            passes.reverse(1)
        last = passes.forward()
        with pytest.raises(ebbtide.InvalidArgument, match="runs once"):
            passes.forward()
        assert (passes.reverse(seed(last)) == with_all_in_a_list(9)).all()


def test_a_schedule_without_an_adjoint_computes_forward_alone(store: ebbtide.Store) -> None:
    with Passes(
        schedules.NoneCheckpointSchedule(), store, steps=5, state=first(), forward=forward, reverse=reverse
    ) as passes:
        assert passes.forward()["step"] == 5
    with pytest.raises(ebbtide.InvalidArgument, match="NoneCheckpointSchedule has no further reverse pass"):
        run(schedules.NoneCheckpointSchedule(), store, steps=5, state=None, forward=never, reverse=never)


def test_numpy_reads_the_cache_itself_and_torch_gets_tensors(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    writeable = []

    def look(step: int, state: Any, adjoint: Any) -> Any:
        writeable.append(state.flags.writeable)

    def advance(step: int, state: Any) -> Any:
        return state + 1

    def same(step: int, state: Any, adjoint: Any) -> Any:
        assert torch.equal(state, torch.full((1000,), step))

    def schedule() -> Any:
        return made("MultistageCheckpointSchedule", 30)

    run(schedule(), store.history("n"), steps=30, state=np.zeros(1000), forward=advance, reverse=look)
    assert not all(writeable)
    run(schedule(), store.history("t"), steps=30, state=torch.zeros(1000), forward=advance, reverse=same)


class Noting:
    """A history that notes what is hinted and what is read."""

    def __init__(self, history: ebbtide.History) -> None:
        self._history = history
        self.hinted: list[int] = []
        self.read: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._history, name)

    def __len__(self) -> int:
        return len(self._history)

    def hint(self, order: list[int]) -> None:
        self.hinted += order
        self._history.hint(order)

    def restore(self, version: int, **options: Any) -> Any:
        self.read.append(version)
        assert self.hinted[: len(self.read)] == self.read
        return self._history.restore(version, **options)


@pytest.mark.parametrize("name", CLASSES)
def test_all_reads_are_hinted_in_their_order(name: str, store: ebbtide.Store) -> None:
    history: Any = Noting(store.history("noting"))
    played(made(name, 60), history, 60)
    assert history.read == history.hinted


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_step_records_is_what_its_adjoint_gets(name: str, store: ebbtide.Store) -> None:
    def record(step: int, state: Any) -> tuple[Any, Any]:
        after = forward(step, state)
        return after, [state["field"], after["field"], step]

    def reverse_recorded(step: int, recorded: Any, adjoint: Any) -> Any:
        before, after, recorded_step = recorded
        assert recorded_step == step and (after == np.sin(before) + 0.01 * step).all()
        return reverse(step, {"field": before, "step": step}, adjoint)

    given = {"state": first(), "forward": forward, "reverse": reverse_recorded, "record": record, "seed": seed}
    adjoint = run(made(name, 30), store.history("recorded"), steps=30, **given)
    assert (adjoint == with_all_in_a_list(30)).all()


def test_a_run_that_fails_leaves_nothing_and_another_may_follow(store: ebbtide.Store) -> None:
    def fails(step: int, state: Any, adjoint: Any) -> Any:
        if step == 7:
            raise OSError("by design")

    history = store.history("again")
    with pytest.raises(OSError, match="by design"):
        run(made("Revolve", 20), history, steps=20, state=first(), forward=forward, reverse=fails)
    assert history.versions() == []
    assert (played(made("Revolve", 20), history, 20) == with_all_in_a_list(20)).all()


def test_passes_that_have_ended_leave_a_later_run_of_the_history_alone(store: ebbtide.Store) -> None:
    history = store.history("shared")
    given = {"steps": 9, "state": first(), "forward": forward, "reverse": reverse}
    with Passes(made("Revolve", 9), history, **given) as ended:
        ended.reverse(seed(ended.forward()))
    with Passes(made("Revolve", 9), history, **given) as passes:
        last = passes.forward()
        del ended
        gc.collect()
        assert (passes.reverse(seed(last)) == with_all_in_a_list(9)).all()


# --- a wave -------------------------------------------------------------------------------------------------------------

COUNT = 120
MIDDLE = (slice(1, -1), slice(1, -1))


def laplacian(field: Any) -> Any:
    out = np.zeros_like(field)
    out[MIDDLE] = field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2] - 4 * field[MIDDLE]
    return out


@pytest.mark.parametrize("name", CLASSES)
def test_the_gradient_of_a_wave_has_the_bits_of_that_with_all_states(name: str, store: ebbtide.Store) -> None:
    """Of half the square of the last field, by the square of the velocity: 46 KiB a state, which the caches do not hold."""
    speed = np.full((54, 54), 0.2)

    def wave(step: int, state: Any) -> Any:
        before, now = state
        after = 2 * now - before + speed * laplacian(now)
        after[27, 27] += np.sin(0.3 * step)
        return now, after

    def back(step: int, state: Any, adjoint: Any) -> Any:
        of_now, of_after, gradient = adjoint
        return -of_after, of_now + 2 * of_after + laplacian(speed * of_after), gradient + of_after * laplacian(state[1])

    def begin(last: Any) -> Any:
        return np.zeros_like(speed), last[1], np.zeros_like(speed)

    still = (np.zeros_like(speed), np.zeros_like(speed))
    states = list(itertools.accumulate(range(COUNT), lambda state, step: wave(step, state), initial=still))
    adjoint = begin(states[-1])
    for step in reversed(range(COUNT)):
        adjoint = back(step, states[step], adjoint)
    given = {"steps": COUNT, "state": still, "forward": wave, "reverse": back, "seed": begin}
    *_, gradient = run(made(name, COUNT), store.history("wave"), **given)
    assert gradient.any() and (gradient == adjoint[2]).all()


# --- refusals -----------------------------------------------------------------------------------------------------------


def never(*given: Any) -> Any:
    raise AssertionError("nothing may be computed")


class Clear:
    def __repr__(self) -> str:
        return "Clear(True, True)"


BEGIN = [Forward(0, 2, True, False, RAM), Forward(2, 3, False, True, WORK), EndForward(), Reverse(3, 2, True)]
REFUSED = {
    r"action 0 of the schedule, Clear\(True, True\), is unknown": [Clear()],
    r"action 1 .*Forward\(2, 3, .*begins at step 1": [Forward(0, 1, True, False, RAM), Forward(2, 3, False, True, WORK)],
    r"action 0 .*Forward\(0, 4, .*takes no step, or more than there are: there are 3": [Forward(0, 4, True, False, RAM)],
    r"action 0 .*Forward\(0, 0, .*takes no step": [Forward(0, 0, True, False, RAM)],
    r"action 1 .*EndForward\(\).*ends the forward pass of 3 steps at step 2": [*BEGIN[:1], EndForward()],
    r"action 0 .*Reverse\(3, 2, True\), comes in the forward pass": [Reverse(3, 2, True)],
    r"action 0 .*EndReverse\(\), comes where EndForward was expected": [EndReverse()],
    r"action 4 .*Copy\(0, StorageType.DISK, .*reads what was not written: StorageType.DISK has no checkpoint": [
        *BEGIN, Copy(0, DISK, WORK),
    ],
    r"action 4 .*Copy\(1, StorageType.RAM, .*reads what was not written: StorageType.RAM has those of steps \[0\]": [
        *BEGIN, Copy(1, RAM, WORK),
    ],
    r"action 6 .*Copy\(0, StorageType.RAM, .*reads what was not written": [
        *BEGIN, Move(0, RAM, WORK), Forward(0, 1, False, False, WORK), Copy(0, RAM, WORK),
    ],
    r"action 4 .*Copy\(0, StorageType.RAM, 'disk'\), goes to an unknown storage": [*BEGIN, Copy(0, RAM, "disk")],
    r"action 0 .*Forward\(0, 2, True, False, 'RAM'\), writes to an unknown storage": [Forward(0, 2, True, False, "RAM")],
    r"action 4 .*Reverse\(1, 0, True\), comes where the adjoint is at step 2": [*BEGIN, Reverse(1, 0, True)],
    r"action 4 .*Reverse\(2, 2, True\), takes no step": [*BEGIN, Reverse(2, 2, True)],
    r"action 4 .*Reverse\(2, 1, True\), needs what step 1 recorded": [*BEGIN, Reverse(2, 1, True)],
    r"action 4 .*EndReverse\(\), ends the reverse pass with 2 steps left": [*BEGIN, EndReverse()],
    r"the schedule ends before action 4: expected EndReverse": BEGIN,
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_a_wrong_schedule_is_refused_by_the_action_and_its_place_before_anything_is_computed(
    message: str, store: ebbtide.Store
) -> None:
    schedule = Listed(3, REFUSED[message])
    with pytest.raises(ebbtide.InvalidArgument, match=message):
        run(schedule, store, steps=3, state=None, forward=never, reverse=never)


def test_what_is_no_new_schedule_for_these_steps_is_refused(store: ebbtide.Store) -> None:
    used = made("Revolve", 3)
    next(used)
    for schedule, message in [
        (used, "Revolve has been iterated"),
        (made("Revolve", 4), "steps=3 is not valid: the schedule is for 4 steps"),
        ([Forward(0, 3, False, True, WORK)], "expected one of checkpoint_schedules 1"),
    ]:
        with pytest.raises(ebbtide.InvalidArgument, match=message):
            run(schedule, store, steps=3, state=None, forward=never, reverse=never)
    for wrong in (0, 3.0, "3"):
        with pytest.raises(
            ebbtide.InvalidArgument, match=f"steps={wrong!r} is not valid: expected an int of at least 1"
        ):
            run(made("Revolve", 3), store, steps=wrong, state=None, forward=never, reverse=never)


def test_the_number_of_steps_may_be_an_int_of_numpy(store: ebbtide.Store) -> None:
    with Passes(
        made("Revolve", 9), store, steps=np.int64(9), state=first(), forward=forward, reverse=reverse
    ) as passes:
        assert (passes.reverse(seed(passes.forward())) == with_all_in_a_list(9)).all()


def test_a_package_without_the_actions_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_schedules.py").write_text("class Forward: ...")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ebbtide.adjoint"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "ebbtide.adjoint needs checkpoint_schedules 1: pip install" in done.stderr


def test_a_history_with_versions_is_refused_and_left_alone(store: ebbtide.Store) -> None:
    store.checkpoint(5, np.arange(4))
    with pytest.raises(ebbtide.InvalidArgument, match="has versions: give each run an empty history"):
        run(made("Revolve", 3), store, steps=3, state=None, forward=never, reverse=never)
    assert store.versions() == [5]
