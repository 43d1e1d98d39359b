"""Tapes of pyadjoint whose checkpoints are in a store: values and gradients are those of a tape in memory, bit for bit."""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pyadjoint = pytest.importorskip("pyadjoint", reason="pyadjoint is not installed")
schedules = pytest.importorskip("checkpoint_schedules", reason="checkpoint_schedules is not installed")

import numpy_adjoint
from checkpoint_schedules import Forward

import ebbtide
from ebbtide.pyadjoint import enable_checkpointing

pytestmark = pytest.mark.filterwarnings("ignore:Numba not available")
STEPS, COUNT = 40, 5_000
DISK, RAM = schedules.StorageType.DISK, schedules.StorageType.RAM
SCHEDULES: dict[str, Callable[[], Any]] = {
    "SingleDiskStorageSchedule": lambda: schedules.SingleDiskStorageSchedule(),
    "SingleDiskStorageSchedule, moved": lambda: schedules.SingleDiskStorageSchedule(move_data=True),
    "MultistageCheckpointSchedule": lambda: schedules.MultistageCheckpointSchedule(STEPS, 0, 6),
    "MultistageCheckpointSchedule, both": lambda: schedules.MultistageCheckpointSchedule(STEPS, 2, 4),
    "MixedCheckpointSchedule": lambda: schedules.MixedCheckpointSchedule(STEPS, 6),
    "TwoLevelCheckpointSchedule": lambda: schedules.TwoLevelCheckpointSchedule(8, 2, binomial_storage=DISK),
    "HRevolve": lambda: schedules.HRevolve(STEPS, 2, 3),
}


class Array(numpy_adjoint.ndarray):  # type: ignore[misc]
    """An array of pyadjoint that a Taylor test can be made of."""

    def _ad_mul(self, other: Any) -> Any:
        return self * other

    def _ad_add(self, other: Any) -> Any:
        return self + other

    def _ad_dot(self, other: Any) -> float:
        return float(np.dot(self, other))


def array(values: Any) -> Any:
    return Array._ad_init_object(np.ascontiguousarray(values))


class Block(pyadjoint.Block):  # type: ignore[misc]
    """A function of a field and a number."""

    def __init__(self, *inputs: Any) -> None:
        super().__init__()
        for each in inputs:
            self.add_dependency(each)

    def recompute_component(self, inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Any:
        return self.value(*inputs)

    @classmethod
    def call(cls, *inputs: Any) -> Any:
        block = cls(*inputs)
        pyadjoint.get_working_tape().add_block(block)
        with pyadjoint.stop_annotating():
            out = cls.value(*inputs)
        block.add_output(out.create_block_variable())
        return out


class Advance(Block):
    @staticmethod
    def value(field: Any, speed: Any) -> Any:
        return array(np.asarray(field) + 0.05 * float(speed) * np.sin(np.asarray(field)))

    def evaluate_adj_component(self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Any:
        field, speed = np.asarray(inputs[0]), float(inputs[1])
        if idx:
            return float(np.dot(0.05 * np.sin(field), adj_inputs[0]))
        return (1 + 0.05 * speed * np.cos(field)) * adj_inputs[0]


class Misfit(Block):
    @staticmethod
    def value(field: Any) -> Any:
        return pyadjoint.AdjFloat(0.5 * np.dot(field, field))

    def evaluate_adj_component(self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Any:
        return np.asarray(inputs[0]) * adj_inputs[0]


@pytest.fixture(autouse=True)
def annotating() -> Iterator[None]:
    pyadjoint.continue_annotation()
    yield
    pyadjoint.pause_annotation()
    pyadjoint.set_working_tape(pyadjoint.Tape())


def taped(enable: Callable[[], None]) -> Any:
    """The functional of the speed and of the first field."""
    tape = pyadjoint.Tape()
    pyadjoint.set_working_tape(tape)
    enable()
    speed, start = pyadjoint.AdjFloat(0.7), array(np.linspace(0, 3, COUNT))
    field = start
    for _ in tape.timestepper(iter(range(STEPS))):
        field = Advance.call(field, speed)
    misfit = Misfit.call(field)
    return pyadjoint.ReducedFunctional(misfit, [pyadjoint.Control(speed), pyadjoint.Control(start)])


def points() -> list[list[Any]]:
    return [
        [pyadjoint.AdjFloat(0.4), array(np.linspace(1, 2, COUNT))],
        [pyadjoint.AdjFloat(-0.3), array(np.linspace(-1, 2, COUNT))],
    ]


def enabled(name: str, store: ebbtide.Store, **options: Any) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return taped(lambda: enable_checkpointing(store, SCHEDULES[name](), **options))


@pytest.mark.parametrize("name", SCHEDULES)
def test_values_and_gradients_have_the_bits_of_a_tape_in_memory(name: str, store: ebbtide.Store) -> None:
    plain = taped(lambda: None)
    expected = [(float(plain(point)), plain.derivative()) for point in points()]
    functional = enabled(name, store)
    for point, (value, gradient) in zip(points(), expected):
        assert float(functional(point)) == value
        found = functional.derivative()
        assert float(found[0]) == float(gradient[0]) and (np.asarray(found[1]) == np.asarray(gradient[1])).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_taylor_remainder_at_a_new_control_is_of_second_order_twice(name: str, store: ebbtide.Store) -> None:
    functional = enabled(name, store)
    directions = [pyadjoint.AdjFloat(1.0), array(np.cos(np.arange(COUNT)))]
    with pyadjoint.stop_annotating():
        for point in points():
            assert pyadjoint.taylor_test(functional, point, directions) > 1.95


def test_what_the_schedule_keeps_on_disk_is_in_the_store_until_the_tape_is_gone(store: ebbtide.Store) -> None:
    functional = enabled("MultistageCheckpointSchedule, both", store)
    history = functional.tape._package_data["ebbtide"].history
    for point in points():
        functional(point)
        written = [
            action for action in functional.tape._checkpoint_manager.forward_schedule if isinstance(action, Forward)
        ]
        assert len(history) == sum(action.storage is DISK for action in written) > 0
        functional.derivative()
        assert len(history) == 0
    functional(points()[0])
    pyadjoint.set_working_tape(pyadjoint.Tape())
    del functional
    gc.collect()
    assert len(history) == 0


def test_a_tape_that_is_cleared_has_nothing_in_the_store_and_may_be_used_again(store: ebbtide.Store) -> None:
    tape = enabled("MultistageCheckpointSchedule", store).tape
    history = tape._package_data["ebbtide"].history
    tape.clear_tape()
    assert len(history) == 0
    enable_checkpointing(store, SCHEDULES["MultistageCheckpointSchedule"](), tape)


class Boxed(pyadjoint.OverloadedType):  # type: ignore[misc]
    """An array in an object, as functions of finite elements are."""

    def __init__(self, values: Any) -> None:
        super().__init__()
        self.values = values

    def _ad_create_checkpoint(self) -> Any:
        return Boxed(self.values.copy())

    def _ad_restore_at_checkpoint(self, checkpoint: Any) -> Any:
        return checkpoint

    def _ad_init_object(self, value: Any) -> Any:  # type: ignore[override]
        return Boxed(value)


class Sine(Block):
    @staticmethod
    def value(boxed: Any) -> Any:
        return Boxed(np.sin(boxed.values))

    def evaluate_adj_component(self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Any:
        return np.cos(inputs[0].values) * adj_inputs[0]


class Sum(Block):
    @staticmethod
    def value(boxed: Any) -> Any:
        return pyadjoint.AdjFloat(boxed.values.sum())

    def evaluate_adj_component(self, inputs: Any, adj_inputs: Any, block_variable: Any, idx: int, prepared: Any) -> Any:
        return np.full(inputs[0].values.shape, adj_inputs[0])


def test_other_types_are_stored_as_pack_says(store: ebbtide.Store) -> None:
    def gradient(enable: Callable[[], None]) -> Any:
        tape = pyadjoint.Tape()
        pyadjoint.set_working_tape(tape)
        enable()
        boxed = start = Boxed(np.linspace(0, 1, COUNT))
        for _ in tape.timestepper(iter(range(STEPS))):
            boxed = Sine.call(boxed)
        functional = pyadjoint.ReducedFunctional(Sum.call(boxed), pyadjoint.Control(start))
        functional(Boxed(np.linspace(1, 2, COUNT)))
        return functional.derivative().values

    packed = []

    def pack(value: Any) -> Any:
        packed.append(value)
        return (value.values, Boxed) if isinstance(value, Boxed) else None

    found = gradient(lambda: enable_checkpointing(store, SCHEDULES["MixedCheckpointSchedule"](), pack=pack))
    assert packed and (found == gradient(lambda: None)).all()


def test_what_cannot_be_is_refused(store: ebbtide.Store, disk: Any, monkeypatch: Any) -> None:
    tape = pyadjoint.Tape()
    pyadjoint.set_working_tape(tape)
    with ebbtide.open(disk / "kept", durability="process", disk="8MiB") as kept:
        with pytest.raises(ebbtide.InvalidArgument, match="the store is persistent"):
            enable_checkpointing(kept, SCHEDULES["MixedCheckpointSchedule"](), tape)
    monkeypatch.setattr("pyadjoint.tape._working_tape", None)
    with pytest.raises(ebbtide.InvalidArgument, match="there is no working tape"):
        enable_checkpointing(store, SCHEDULES["MixedCheckpointSchedule"]())
    pyadjoint.set_working_tape(tape)
    Misfit.call(array(np.ones(3)))
    with pytest.raises(ebbtide.InvalidArgument, match="the tape has blocks"):
        enable_checkpointing(store, SCHEDULES["MixedCheckpointSchedule"]())


def test_a_pyadjoint_whose_gradients_may_be_wrong_is_refused(store: ebbtide.Store, monkeypatch: Any) -> None:
    monkeypatch.setattr(pyadjoint, "__version__", "2026.4.1")
    with pytest.raises(ebbtide.Unsupported, match="2026.4.1 is too old.*pip install 'pyadjoint-ad>=2026.9'"):
        enable_checkpointing(store, SCHEDULES["MixedCheckpointSchedule"](), pyadjoint.Tape())
