"""Valid `out` arguments: arrays that are provably writable, and that have the restored bytes afterwards."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dlpack_support import COPIED, READ_ONLY, Exporter

import ebbtide

WRITTEN = np.arange(1.0, 7.0)


def blank() -> np.ndarray:
    return np.zeros(6)


@pytest.fixture
def store(store: ebbtide.Store) -> ebbtide.Store:
    store.checkpoint(0, WRITTEN)
    return store


def refuse(store: ebbtide.Store, out: Any, words: str, version: int = 0) -> None:
    """Both calls refuse `out`, and nothing is consumed."""
    for call in (store.restore, store.restore_async):
        with pytest.raises(ebbtide.InvalidArgument, match=words):
            call(version, out=out)
    assert version in store.versions()


class Interface(Exporter):
    """Exports by DLPack of before version 1, and says by NumPy's protocol where its memory is."""

    def __init__(self, inner: np.ndarray, read_only: bool, shown: np.ndarray | None = None) -> None:
        super().__init__(inner, versioned=False)
        shown = inner if shown is None else shown
        self.__array_interface__ = shown.__array_interface__ | {"data": (shown.ctypes.data, read_only)}


def test_an_export_that_says_it_is_writable_is_filled(store: ebbtide.Store) -> None:
    inner = blank()
    given = Exporter(inner)
    assert store.restore(0, out=given) is given
    assert (inner == WRITTEN).all()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"flags": READ_ONLY}, "out is read-only"),
        ({"flags": COPIED}, "out .*hands out a copy of its memory by its __dlpack__"),
        ({"copies": True}, "out .*hands out a copy of its memory by its __dlpack__"),
        ({"copies": True, "versioned": False}, "out .*hands out a copy"),
        ({"versioned": False}, "out .*does not say that it may be written to"),
    ],
)
def test_an_export_that_proves_nothing_is_refused(store: ebbtide.Store, how: dict[str, Any], words: str) -> None:
    inner = blank()
    refuse(store, Exporter(inner, **how), words)
    assert (inner == 0).all()
    store.checkpoint(1, Exporter(WRITTEN, **how))  # to read from it is another matter
    assert (store.restore(1) == WRITTEN).all()


def test_an_old_export_is_believed_by_what_another_protocol_says_of_the_same_memory(store: ebbtide.Store) -> None:
    inner = blank()
    refuse(store, Interface(inner, read_only=True), "does not say that it may be written to")
    refuse(store, Interface(inner, read_only=False, shown=blank()), "does not say that it may be written to")
    assert (inner == 0).all()
    store.restore(0, out=Interface(inner, read_only=False))
    assert (inner == WRITTEN).all()


def test_what_a_protocol_shows_wrong_is_no_proof(store: ebbtide.Store) -> None:
    for data in (None, 3, (1,), ("a", False), (-1, False)):
        given = Exporter(blank(), versioned=False)
        given.__array_interface__ = {"data": data}  # type: ignore[attr-defined]
        refuse(store, given, "does not say that it may be written to")


def test_buffers_are_believed_by_their_flag(store: ebbtide.Store, disk: Path) -> None:
    size = WRITTEN.nbytes
    store.checkpoint(1, WRITTEN.view("u1"))
    path = disk / "mapped"
    path.write_bytes(bytes(size))
    with path.open("r+b") as file:
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            refuse(store, mapped, "out is read-only", version=1)
        for given in (bytes(size), memoryview(bytearray(size)).toreadonly()):
            refuse(store, given, "out is read-only", version=1)
        with mmap.mmap(file.fileno(), size) as mapped:
            store.restore(1, out=mapped, keep=True)
            assert mapped[:] == WRITTEN.tobytes()
    only_read = np.memmap(path, "f8", "r")
    refuse(store, only_read, "out is read-only")
    store.restore(0, out=np.memmap(path, "f8", "r+"))
    assert (only_read == WRITTEN).all()


@pytest.mark.parametrize("device", [(1, 0), (2, 0)])
def test_arrays_of_jax_are_refused_by_type(
    store: ebbtide.Store, monkeypatch: pytest.MonkeyPatch, device: tuple[int, int]
) -> None:
    class Array(Exporter):
        pass

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(Array=Array))
    inner = blank()
    for out in (Array(inner, device=device), [Array(inner, device=device)]):
        refuse(store, out, r"out(\[0\])? is read-only: arrays of JAX")
    assert (inner == 0).all()


def test_arrays_of_jax_never_change(store: ebbtide.Store) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        given = jax.numpy.zeros(6)
        alias = given
        refuse(store, given, "out is read-only: arrays of JAX")
        refuse(store, np.asarray(given), "out is read-only")
        refuse(store, OnlyForwards(given), "does not say that it may be written to|is read-only")
        assert (np.asarray(alias) == 0).all()
        store.checkpoint(1, given + 1)
        assert (store.restore(1) == 1).all()


class OnlyForwards:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __dlpack__(self, **more: Any) -> Any:
        return self.inner.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


def test_arrays_that_share_memory_are_refused_by_name(store: ebbtide.Store) -> None:
    a, b = np.zeros(6), np.zeros(12)
    store.checkpoint(1, [WRITTEN, WRITTEN])
    store.checkpoint(2, {"p": WRITTEN, "v": WRITTEN[1:], "w": WRITTEN})
    refuse(store, [a, a], r"^out\[0\] and out\[1\] share memory", version=1)
    refuse(store, [a, Exporter(a)], r"^out\[0\] and out\[1\] share memory", version=1)
    refuse(store, (b[5:11], b[:6]), r"^out\[0\] and out\[1\] share memory", version=1)
    refuse(store, {"w": b[6:], "p": a, "v": b[2:7]}, r"^out\['w'\] and out\['v'\] share memory", version=2)
    assert (a == 0).all() and (b == 0).all()
    store.restore(1, out=[b[6:], b[:6]])
    assert (b.reshape(2, 6) == WRITTEN).all()
    empty = np.zeros(0)
    store.checkpoint(3, [empty, empty])
    store.restore(3, out=[empty, empty])
