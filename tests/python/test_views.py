"""What a program still holds of a reservation never writes into the checkpoint that it became, nor into another one."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebbtide

COUNT = 1 << 16
VIEWS: dict[str, Callable[[np.ndarray], Any]] = {
    "slice": lambda a: a[:],
    "memoryview": lambda a: memoryview(a),
    "reshape": lambda a: a.reshape(2, -1),
    "other type": lambda a: a.view("u1"),
    "torch": lambda a: pytest.importorskip("torch").from_numpy(a),
}
by_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="16MiB") as store:
        yield store


def numbers(version: int) -> np.ndarray:
    return np.arange(COUNT, dtype="f4") + version


def overwrite(view: Any) -> None:
    view[(0,) * view.ndim] = 99
    view[(-1,) * view.ndim] = 99


def reserved(store: ebbtide.Store, version: int, view: Callable[[np.ndarray], Any]) -> Any:
    """Written and committed; what is left of its array."""
    reservation = store.reserve(version, COUNT, "f4")
    left = view(reservation.array)
    reservation.array[:] = numbers(version)
    reservation.commit()
    return left


@by_view
def test_a_write_after_commit_never_reaches_the_checkpoint(store: ebbtide.Store, view: Any) -> None:
    left = reserved(store, 0, view)
    overwrite(left)
    assert (store.restore(0) == numbers(0)).all()


@by_view
def test_a_write_after_commit_never_reaches_the_files(disk: Path, view: Any) -> None:
    with ebbtide.open(disk / "kept", device_cache="1MiB", host_cache=0, disk="16MiB", durability="process") as store:
        left = reserved(store, 0, view)
        overwrite(left)
        store.wait("process")
    with ebbtide.open(disk / "kept", durability="process") as store:
        assert (store.restore(0) == numbers(0)).all()


@by_view
def test_its_memory_is_given_to_no_other_checkpoint(store: ebbtide.Store, view: Any) -> None:
    left = reserved(store, 0, view)
    before = bytes(memoryview(np.asarray(left)).cast("B"))
    assert (store.restore(0) == numbers(0)).all()
    for version in range(1, 20):  # more than the caches hold
        store.checkpoint(version, numbers(version))
        overwrite(left)
    for version in range(1, 20):
        assert (store.restore(version) == numbers(version)).all()
    overwritten = numbers(0)
    left_bytes = np.frombuffer(memoryview(np.asarray(left)).cast("B"), "u1")
    assert left_bytes[COUNT : 2 * COUNT].tobytes() == overwritten.view("u1")[COUNT : 2 * COUNT].tobytes()
    assert before == overwritten.tobytes(), "what was computed is still shown"


def test_the_array_of_a_block_shows_what_was_computed(store: ebbtide.Store) -> None:
    with store.reserve(0, COUNT, "f4") as a:
        a[:] = numbers(0)
    store.checkpoint(1, numbers(1))
    assert (a == numbers(0)).all()
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 1
    assert (store.restore(1) == numbers(1)).all() and (store.restore(0) == numbers(0)).all()


@by_view
def test_a_view_outlives_an_abandoned_reservation(store: ebbtide.Store, view: Any) -> None:
    reservation = store.reserve(0, COUNT, "f4")
    left = view(reservation.array)
    reservation.abandon()
    for version in range(6):
        store.checkpoint(version, numbers(version))
        overwrite(left)
    del reservation
    for version in range(6):
        assert (store.restore(version) == numbers(version)).all()


def test_a_view_outlives_the_store(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0) as store:
        left = reserved(store, 0, VIEWS["slice"])
    overwrite(left)
    assert (left[1:-1] == numbers(0)[1:-1]).all()


def test_sizes_that_are_no_whole_pages(store: ebbtide.Store) -> None:
    left = []
    for version, size in enumerate((1, 4095, 4096, 4097, 12288, 100_001)):
        store.checkpoint(100 + version, np.full(5000, version, "u1"))  # before and after it in the cache
        reservation = store.reserve(version, size, "u1")
        reservation.array[:] = version + 1
        left.append(reservation.array[:])
        reservation.commit()
        left[-1][:] = 99
        with store.reserve(200 + version, size, "u1") as a:
            a[:] = version + 2
            del a
    for version, size in enumerate((1, 4095, 4096, 4097, 12288, 100_001)):
        assert (store.restore(version) == np.full(size, version + 1, "u1")).all()
        assert (store.restore(100 + version) == np.full(5000, version, "u1")).all()
        assert (store.restore(200 + version) == np.full(size, version + 2, "u1")).all()


def test_a_refused_commit_leaves_the_reservation_as_it_was(store: ebbtide.Store) -> None:
    for alive in (False, True):
        reservation = store.reserve(0, COUNT, "f4")
        reservation.array[:] = numbers(0)
        left = reservation.array if alive else None
        with pytest.raises(ebbtide.Unsupported):
            reservation.commit(stream=7)
        assert (reservation.array == numbers(0)).all()
        reservation.array[:] = numbers(1)
        assert left is None or (left == numbers(1)).all()
        reservation.commit()
        assert (store.restore(0) == numbers(1)).all()


def test_without_a_view_nothing_is_copied(disk: Path) -> None:
    """Bytes that are copied need new pages, pages that move need none."""
    with ebbtide.open(disk, device_cache="8MiB", host_cache=0, disk=0) as store:

        def new_pages(version: int, view: bool) -> int:
            reservation = store.reserve(version, 1 << 20, "u1")
            a = reservation.array
            a[:] = version
            if not view:
                del a
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            reservation.commit()
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

        counted = [new_pages(version, view=False) for version in range(4)]
        assert max(counted) < 64
        for version in range(4):
            assert (store.restore(version) == version).all()


@by_view
def test_a_checked_commit_finds_nothing_wrong_with_a_view(store: ebbtide.Store, view: Any) -> None:
    reservation = store.reserve(0, COUNT, "f4")
    left = view(reservation.array)
    reservation.array[:] = numbers(0)
    reservation.commit(check=True)
    overwrite(left)
    store.wait("local")
    assert (store.restore(0) == numbers(0)).all()
