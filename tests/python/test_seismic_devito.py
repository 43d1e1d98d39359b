"""pyrevolve's checkpoints in a store: Devito's and others' results are those in memory, bit for bit."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pyrevolve = pytest.importorskip("pyrevolve", reason="pyrevolve is not installed")

import ebbtide
from ebbtide.seismic import Storage


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(disk, device_cache="64KiB", host_cache="128KiB", disk="64MiB") as store:
        yield store


class State(pyrevolve.Checkpoint):
    """Two arrays that a step changes."""

    dtype = np.float64

    def __init__(self) -> None:
        self.arrays = [np.linspace(0, 1, 2000), np.zeros(1000)]

    @property
    def size(self) -> int:
        return sum(array.size for array in self.arrays)

    def get_data(self, timestep: int) -> list[np.ndarray]:
        return self.arrays

    get_data_location = get_data


class Forward(pyrevolve.Operator):
    def __init__(self, state: State) -> None:
        self.state = state

    def apply(self, t_start: int, t_end: int) -> None:
        for t in range(t_start, t_end):
            a, b = self.state.arrays
            a[:] = np.sin(a + 0.01 * t)
            b += a[:1000]


class Reverse(pyrevolve.Operator):
    """Notes what it finds, from the last step to the first."""

    def __init__(self, state: State) -> None:
        self.state, self.seen = state, []

    def apply(self, t_start: int, t_end: int) -> None:
        self.seen.append((t_start, self.state.arrays[0].copy(), self.state.arrays[1].copy()))


def run(revolver_of: Any) -> list[Any]:
    state = State()
    reverse = Reverse(state)
    revolver = revolver_of(state, Forward(state), reverse)
    revolver.apply_forward()
    revolver.apply_reverse()
    return reverse.seen


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        s == t and x.tobytes() == u.tobytes() and y.tobytes() == v.tobytes() for (s, x, y), (t, u, v) in zip(a, b)
    )


def test_single_level_revolve(store: ebbtide.Store) -> None:
    def stored(*given: Any) -> Any:
        revolver = pyrevolve.MemoryRevolver(*given, 7, 60)
        revolver.resetStorageList()
        revolver.addStorage(Storage(store, 7))
        return revolver

    plain = run(lambda *given: pyrevolve.MemoryRevolver(*given, 7, 60))
    assert [t for t, _, _ in plain] == list(reversed(range(60)))
    assert same(run(stored), plain)


def test_multi_level_revolve(store: ebbtide.Store) -> None:
    levels = {}

    def stored(state: State, *operators: Any) -> Any:
        levels["a"] = [
            Storage(store, 3, state.size, state.dtype, name="fast"),
            Storage(store, 40, state.size, state.dtype, write_cost=2, read_cost=2, name="slow"),
        ]
        return pyrevolve.MultiLevelRevolver(state, *operators, 60, storage_list=levels["a"])

    plain = run(lambda *given: pyrevolve.MemoryRevolver(*given, 7, 60))
    assert same(sorted(run(stored), key=lambda one: -one[0]), plain)


def test_slots_are_refused_by_name(store: ebbtide.Store, disk: Path) -> None:
    with ebbtide.open(disk / "kept", durability="process", disk="16MiB") as kept:
        with pytest.raises(ebbtide.InvalidArgument, match="the store is persistent"):
            Storage(kept, 2)
    with pytest.raises(ebbtide.InvalidArgument, match="^slots=0"):
        Storage(store, 0)
    storage = Storage(store, 1)
    with pytest.raises(ebbtide.InvalidArgument, match="no slot is in use"):
        storage.pop([np.zeros(3)])
    storage.push([np.zeros(3)])
    with pytest.raises(ebbtide.InvalidArgument, match="all 1 slots are in use"):
        storage.push([np.zeros(3)])


def test_slots_go_with_their_storage(store: ebbtide.Store) -> None:
    storage = Storage(store, 2)
    storage.push([np.zeros(3)])
    assert len(store.histories()) == 1
    del storage
    gc.collect()
    assert store.histories() == []


def test_a_place_that_is_no_array_is_refused(store: ebbtide.Store) -> None:
    storage = Storage(store, 2)
    storage.save(0, [np.arange(2.0)])
    with pytest.raises(ebbtide.Error, match=r"^out"):
        storage.load(0, [[0.0, 0.0]])


def test_devito(store: ebbtide.Store) -> None:
    devito = pytest.importorskip("devito", reason="devito is not installed")
    from devito.checkpointing import CheckpointOperator, DevitoCheckpoint

    devito.configuration["log-level"] = "ERROR"
    steps = 50

    def gradient(stored: bool) -> np.ndarray:
        grid = devito.Grid(shape=(31, 31))
        u = devito.TimeFunction(name="u", grid=grid, time_order=2, space_order=2)
        v = devito.TimeFunction(name="v", grid=grid, time_order=2, space_order=2)
        image = devito.Function(name="image", grid=grid)
        u.data[:, 15, 15] = 1.0
        v.data[:, 10, 20] = 1.0
        dt = 0.2 * min(grid.spacing)
        forward = devito.Operator([devito.Eq(u.forward, 2 * u - u.backward + dt**2 * u.laplace)], name="Forward")
        reverse = devito.Operator(
            [devito.Eq(v.backward, 2 * v - v.forward + dt**2 * v.laplace), devito.Eq(image, image + u * v)],
            name="Reverse",
        )
        revolver = pyrevolve.MemoryRevolver(
            DevitoCheckpoint([u]),
            CheckpointOperator(forward, u=u, time_m=1, time_M=steps),
            CheckpointOperator(reverse, u=u, v=v, image=image, time_m=1, time_M=steps),
            5,
            steps,
        )
        if stored:
            revolver.resetStorageList()
            revolver.addStorage(Storage(store, 5))
        revolver.apply_forward()
        revolver.apply_reverse()
        return np.array(image.data)

    plain = gradient(False)
    assert np.abs(plain).max() > 0 and (gradient(True) == plain).all()
