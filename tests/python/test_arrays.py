"""What may be given as an array, and what comes back."""

from __future__ import annotations

import array
import collections
import ctypes
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ebbtide

STRUCTURED = np.dtype([("a", "<i4"), ("b", "<f8", (2,)), ("name", "S3")])
DTYPES = ["?", "i1", "u8", "f2", "<f4", ">f8", "c8", "c16", "S5", "U3", "V7", "M8[ns]", "m8[s]", "g", STRUCTURED]


def filled(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    kind = np.dtype(dtype)
    count = int(np.prod(shape)) * kind.itemsize
    raw = np.random.default_rng(seed).integers(65, 90, count, dtype="u1")
    if kind == np.dtype("U3"):
        return np.full(shape, "xyz", kind)
    if kind.kind == "b":
        raw %= 2
    return np.frombuffer(raw.tobytes(), kind).reshape(shape).copy()


def same(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back(store: ebbtide.Store, dtype: Any) -> None:
    given = filled((3, 5), dtype)
    store.checkpoint(0, given)
    back = store.restore(0)
    assert type(back) is np.ndarray
    assert same(back, given)


@pytest.mark.parametrize("shape", [(), (0,), (4, 0, 2), (1,), (2, 3, 4, 5)])
def test_every_shape_comes_back(store: ebbtide.Store, shape: tuple[int, ...]) -> None:
    given = filled(shape, "f8") if 0 not in shape else np.empty(shape)
    store.checkpoint(0, given)
    assert same(store.restore(0, keep=True), given)
    out = np.full(shape, np.nan)
    assert store.restore(0, out=out) is out
    assert same(out, given)


def test_types_that_other_packages_register_come_back(store: ebbtide.Store) -> None:
    registered = pytest.importorskip("ml_dtypes")
    for version, name in enumerate(sorted(set(dir(registered)) - {"finfo", "iinfo"})):
        if isinstance(getattr(registered, name), type):
            given = np.array([0, 1, 1, 0], np.uint8).astype(getattr(registered, name))
            store.checkpoint(version, given)
            out = np.zeros_like(given)
            store.restore(version, out=out, keep=True)
            found = store.restore(version)
            assert found.dtype == out.dtype == given.dtype
            assert found.tobytes() == out.tobytes() == given.tobytes()


def test_structures_come_back(store: ebbtide.Store) -> None:
    a, b = np.arange(5), np.float32(2.5)
    given: list[Any] = [[a, b], (a,), {"p": a, "v": b}, {1: a, 2: b}, {}, [], a]
    for version, arrays in enumerate(given):
        store.checkpoint(version, arrays)
    for version, arrays in enumerate(given):
        back = store.restore(version)
        assert type(back) is type(arrays)
        if isinstance(arrays, dict):
            assert list(back) == list(arrays)
            back, arrays = list(back.values()), list(arrays.values())
        if not isinstance(arrays, np.ndarray):
            assert len(back) == len(arrays)
            assert all(same(x, y) for x, y in zip(back, arrays))


def test_ordered_dict_and_named_tuple_count_as_dict_and_tuple(store: ebbtide.Store) -> None:
    point = collections.namedtuple("point", "x y")
    store.checkpoint(0, collections.OrderedDict(a=np.arange(3)))
    store.checkpoint(1, point(np.arange(2), np.arange(3)))
    assert same(store.restore(0)["a"], np.arange(3))
    assert type(store.restore(1)) is tuple


class Int3(ctypes.Structure):
    _fields_ = [("v", ctypes.c_int * 3)]


@pytest.mark.parametrize(
    "given",
    [
        b"bytes",
        bytearray(b"array"),
        memoryview(b"view"),
        array.array("d", [1, 2]),
        (ctypes.c_int * 3)(1, 2, 3),
        np.float64(3),
    ],
    ids=lambda g: type(g).__name__,
)
def test_the_buffer_protocol_is_enough(store: ebbtide.Store, given: Any) -> None:
    store.checkpoint(0, given)
    assert same(store.restore(0), np.asarray(memoryview(given)))


class OnlyDLPack:
    """An array of a library that ebbtide has never heard of."""

    def __init__(self, inner: np.ndarray, device: int = 1) -> None:
        self.inner, self.device = inner, device

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner.__dlpack__(*args, **kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "?", "c8", "f2"])
def test_dlpack_is_enough(store: ebbtide.Store, dtype: str) -> None:
    given = filled((4, 3), dtype)
    store.checkpoint(0, OnlyDLPack(given))
    out = np.zeros_like(given)
    store.restore(0, out=OnlyDLPack(out), keep=True)
    assert same(out, given)
    assert same(store.restore(0), given)


def test_gpu_memory_is_refused_by_name(store: ebbtide.Store) -> None:
    class Gpu:
        __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (0xDEAD, False), "version": 3}

    with pytest.raises(ebbtide.Unsupported, match=r"arrays\['p'\].*GPU.*host"):
        store.checkpoint(0, {"p": Gpu()})
    with pytest.raises(ebbtide.Unsupported, match="DLPack device 2"):
        store.checkpoint(0, OnlyDLPack(np.zeros(1), device=2))
    assert store.versions() == []


def test_read_only_targets_are_refused(store: ebbtide.Store) -> None:
    store.checkpoint(0, np.arange(3, dtype="u1"))
    frozen = np.zeros(3, "u1")
    frozen.flags.writeable = False
    for out in (frozen, b"abc"):
        with pytest.raises(ebbtide.InvalidArgument, match="read-only"):
            store.restore(0, out=out)
    target = bytearray(3)
    store.restore(0, out=target)
    assert target == bytearray(range(3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3.5, "arrays is of type 'float'"),
        (None, "arrays is of type 'NoneType'"),
        ("text", "arrays is of type 'str'"),
        ({"a": object()}, r"arrays\['a'\] is of type 'object'"),
        (np.array([object()]), "holds Python objects"),
        (np.zeros(2, [("a", object)]), "holds Python objects"),
    ],
)
def test_what_is_no_array_is_refused_by_name(store: ebbtide.Store, given: Any, words: str) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=words):
        store.checkpoint(0, given)
    assert store.versions() == []


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (
            np.zeros((2, 2)),
            r"out is one array \(2, 2\) of float64; version 0 holds \{'a': \(3,\) of int32, 'b': \(\) of float64\}",
        ),
        ({"a": np.zeros(3, "i4")}, "out is {'a'"),
        ({"a": np.zeros(3, "i4"), "c": np.zeros(())}, "'c'"),
        ({"a": np.zeros(3, "f4"), "b": np.zeros(())}, r"\(3,\) of float32"),
        ({"a": np.zeros((3, 1), "i4"), "b": np.zeros(())}, r"\(3, 1\) of int32"),
        ([np.zeros(3, "i4"), np.zeros(())], r"out is \["),
    ],
)
def test_a_wrong_out_is_refused_and_nothing_is_consumed(store: ebbtide.Store, out: Any, words: str) -> None:
    store.checkpoint(0, {"a": np.arange(3, dtype="i4"), "b": np.float64(7)})
    for call in (store.restore, store.restore_async):
        with pytest.raises(ebbtide.SizeMismatch, match=words):
            call(0, out=out)
    assert store.restore(0)["b"] == 7


def test_out_may_have_its_keys_in_any_order_and_a_list_stands_for_a_tuple(store: ebbtide.Store) -> None:
    store.checkpoint(0, {"a": np.int64(1), "b": np.int64(2)})
    out = {"b": np.zeros((), "i8"), "a": np.zeros((), "i8")}
    store.restore(0, out=out)
    assert (out["a"], out["b"]) == (1, 2)
    store.checkpoint(1, (np.int64(1), np.int64(2)))
    pair = [np.zeros((), "i8"), np.zeros((), "i8")]
    assert store.restore(1, out=pair) is pair
    assert pair == [1, 2]


def test_the_source_may_be_changed_as_soon_as_the_call_returns(store: ebbtide.Store) -> None:
    field = np.zeros(40_000)
    for version in range(8):  # past the device and host caches
        field[:] = version
        store.checkpoint(version, field)
        field[:] = -1
    for version in reversed(range(8)):
        assert (store.restore(version) == version).all()


def test_torch_tensors_come_back_as_tensors(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    for version, dtype in enumerate((torch.float32, torch.bfloat16, torch.bool, torch.complex64)):
        given = torch.ones(3, 4).to(dtype)
        store.checkpoint(version, [given.T])
        (back,) = store.restore(version)
        assert isinstance(back, torch.Tensor)
        assert back.dtype == dtype
        assert torch.equal(back, given.T)


def test_torchs_default_device_is_not_that_of_host_memory(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    for version, dtype in enumerate((torch.float32, torch.bfloat16)):
        given = torch.ones(3).to(dtype)
        store.checkpoint(version, given)
        with torch.device("meta"):
            back = store.restore(version)
        assert back.device.type == "cpu" and torch.equal(back, given)


@pytest.mark.parametrize("torch_is_there", [True, False])
def test_arrays_of_a_gpu_come_back_in_host_memory_where_it_is_not_there(
    disk: Path, monkeypatch: pytest.MonkeyPatch, torch_is_there: bool
) -> None:
    writer = pytest.importorskip("format_writer", reason="needs the test extra's xxhash")
    given = [filled((2, 3), "<f4", seed) for seed in range(3)]
    origins = [(1, 3), (2, 3), (3, 0)]  # of PyTorch, CuPy and JAX
    kept = writer.Writer(disk / "kept")
    leaves = [("<f4", (2, 3))] * 3
    kept.add(b"", 7, *(one.tobytes() for one in given), metadata=writer.layout(1, [], leaves, origins))
    made = []
    torch = SimpleNamespace(Tensor=type("Tensor", (), {}), from_numpy=lambda array: made.append(array) or array)
    monkeypatch.setitem(sys.modules, "torch", torch if torch_is_there else None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=type("ndarray", (), {})))
    with ebbtide.open(kept.write(), readonly=True, device_cache="1MiB", host_cache="1MiB") as store:
        back = store.restore(7, keep=True)
        assert all(same(one, other) for one, other in zip(back, given, strict=True))
        assert [id(one) for one in made] == ([id(back[0])] if torch_is_there else [])
