"""Arrays that a store keeps in place of copies."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebbtide

SIZE = 64 << 10


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(
        disk, device="cpu", device_cache="256KiB", adopted="256KiB", host_cache="2MiB", disk="16MiB"
    ) as store:
        yield store


def array(version: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(version).integers(0, 256, SIZE, np.uint8)


def address(values: Any) -> int:
    return int(np.asarray(values).__array_interface__["data"][0])


def test_the_array_itself_is_kept_and_returned(store: ebbtide.Store) -> None:
    given = array(1)
    store.checkpoint(1, given, adopt=True)
    where, alive = address(given), weakref.ref(given)
    del given
    gc.collect()
    assert alive() is not None
    store.wait("host")  # nothing reads it any more
    back = store.restore(1, adopt=True)
    assert address(back) == where and not back.flags.writeable
    assert np.array_equal(back, array(1))
    del back
    gc.collect()
    with pytest.raises(ebbtide.Consumed):
        store.restore(1)
    store.checkpoint(2, array(2))  # what has ended is let go of by the next call at the latest
    assert alive() is None


def test_its_bytes_are_copied_where_another_array_is_given(store: ebbtide.Store) -> None:
    store.checkpoint(1, {"a": array(1)}, adopt=True)
    out = np.zeros(SIZE, np.uint8)
    store.restore(1, out={"a": out})
    assert np.array_equal(out, array(1))


@pytest.mark.parametrize("end", ["drop", "close", "evict"])
def test_it_is_let_go_of(store: ebbtide.Store, end: str) -> None:
    given = array(1)
    alive = weakref.ref(given)
    store.checkpoint(1, given, adopt=True)
    del given
    store.wait("host")
    if end == "drop":
        store.drop(1)
    elif end == "close":
        store.close()
    else:
        for version in range(2, 20):
            store.checkpoint(version, array(version), adopt=True)
        store.wait("host")
        assert np.array_equal(store.restore(1), array(1))
    if end != "close":
        store.checkpoint(100, np.zeros(1))
    assert alive() is None


def test_cache_memory_is_returned_once_the_array_is_gone(store: ebbtide.Store) -> None:
    for version in range(20):
        store.checkpoint(version, array(version), adopt=True)
    for version in reversed(range(20)):
        assert np.array_equal(store.restore(version, adopt=True), array(version))


def test_views_of_what_was_returned_outlive_the_store(store: ebbtide.Store) -> None:
    store.checkpoint(1, array(1), adopt=True)
    view = store.restore(1, adopt=True)[100:]
    store.close()
    assert np.array_equal(view, array(1)[100:])


def test_a_check_finds_what_was_written_to() -> None:
    given = np.zeros(SIZE, np.uint8)
    with ebbtide.open(device="cpu", device_cache="256KiB", adopted="256KiB", host_cache=0, disk=0) as store:
        store.checkpoint(1, given, adopt=True, check=True)
        given[7] = 1
        with pytest.raises(ebbtide.Damaged, match="version 1 is damaged"):
            store.restore(1)


def test_refusals(store: ebbtide.Store) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match="one region"):
        store.checkpoint(1, [array(1), array(2)], adopt=True)
    store.checkpoint(1, array(1), adopt=True)
    other = array(2)
    alive = weakref.ref(other)
    with pytest.raises(ebbtide.VersionExists):
        store.checkpoint(1, other, adopt=True)
    with pytest.raises(ebbtide.InvalidArgument, match="adopt="):
        store.restore(1, out=other, adopt=True)
    del other
    store.checkpoint(3, array(3))
    assert alive() is None


def test_without_a_budget_it_is_copied(disk: Path) -> None:
    with ebbtide.open(disk, device="cpu", device_cache="256KiB", host_cache="1MiB", disk=0) as store:
        given = array(1)
        store.checkpoint(1, given, adopt=True)
        given[:] = 0
        assert np.array_equal(store.restore(1), array(1))
    with pytest.raises(ebbtide.InvalidArgument, match="adopted"):
        ebbtide.open(disk, device="cpu", device_cache=0, adopted="1MiB", host_cache="1MiB")


KILLED = """
import sys, os, signal, numpy as np, ebbtide
store = ebbtide.open(sys.argv[1], device="cpu", device_cache="256KiB", adopted="256KiB", host_cache="1MiB", durability="storage")
for version in range(8):
    store.checkpoint(version, np.full(65536, version, np.uint8), adopt=True)
store.wait("storage")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_durable_outlives_a_kill(disk: Path) -> None:
    kept = disk / "kept"
    done = subprocess.run([sys.executable, "-c", KILLED, os.fspath(kept)], timeout=120)
    assert done.returncode == -signal.SIGKILL
    with ebbtide.open(kept, durability="storage") as store:
        for version in range(8):
            assert (store.restore(version) == version).all()
