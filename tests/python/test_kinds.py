"""Arrays that are more than their bytes are refused by name, with the line that makes one that is not."""

from __future__ import annotations

import array
import gc
import os
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dlpack_support import Exporter

import ebbtide


def refuse(store: ebbtide.Store, given: Any, words: str) -> None:
    for arrays in (given, [np.zeros(1), given], {"p": given}):
        where = {list: r"arrays\[1\]", dict: r"arrays\['p'\]"}.get(type(arrays), "arrays")
        with pytest.raises(ebbtide.Unsupported, match=rf"^{where}.*{words}"):
            store.checkpoint(0, arrays)
    assert store.versions() == []


class Metres(np.ndarray):
    unit = "m"


class Volts(np.float64):
    unit = "V"


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    MATRIX = np.matrix([[1.0, 2.0]])


@pytest.mark.parametrize(
    ("given", "words", "plain"),
    [
        (np.ma.masked_array([1.0, 2.0], [True, False]), r"masked array.*numpy\.ma\.getmaskarray\(x\)", np.ma.getdata),
        (np.ma.masked_array([1.0, 2.0]), r"masked array.*x\.filled\(value\)", lambda x: x.filled(0)),
        (MATRIX, r"matrix, .*numpy\.asarray\(x\)", np.asarray),
        (np.rec.array([(1, 2.0)], "i4,f8"), r"recarray, .*numpy\.asarray\(x\)", np.asarray),
        (np.char.array(["a"]), r"chararray, .*numpy\.asarray\(x\)", np.asarray),
        (np.zeros(3).view(Metres), r"Metres, .*numpy\.asarray\(x\)", np.asarray),
        (Volts(3), r"Volts, .*numpy\.asarray\(x\)", np.asarray),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_adds_to_numpys_arrays_is_refused(store: ebbtide.Store, given: Any, words: str, plain: Any) -> None:
    refuse(store, given, words)
    store.checkpoint(0, plain(given))
    if isinstance(given, np.ndarray):
        with pytest.raises(ebbtide.Unsupported, match="^out is a "):
            store.restore(0, out=given)
    assert (store.restore(0) == plain(given)).all()


@pytest.mark.parametrize(
    "given",
    [np.float32(2), np.datetime64("2020-01-02"), np.str_("abc"), np.bytes_(b"abc"), np.void(b"ab"),
     np.zeros(1, [("a", "i4"), ("b", "f8")])[0], np.bool_(True), np.timedelta64(3, "s")],
    ids=lambda one: type(one).__name__,
)  # fmt: skip
def test_scalars_keep_their_type(store: ebbtide.Store, given: Any) -> None:
    store.checkpoint(0, given)
    with pytest.raises(ebbtide.InvalidArgument, match="out is read-only"):
        store.restore(0, out=given)
    back = store.restore(0)
    assert back.shape == () and back.dtype == given.dtype and back[()] == given


# --- without the libraries


class Tensor:
    """What is asked of a tensor of PyTorch's."""

    is_cuda = is_nested = False
    device = SimpleNamespace(type="cpu")

    def __init__(self, inner: np.ndarray, dtype: str = "torch.float64", **more: Any) -> None:
        self.inner, self.dtype, self.shape, self.nbytes = inner, dtype, inner.shape, inner.nbytes
        self.__dict__.update(more)

    def is_neg(self) -> bool:
        return False

    def is_contiguous(self) -> bool:
        return True

    def untyped_storage(self) -> object:
        return self

    def data_ptr(self) -> int:
        return self.inner.ctypes.data


class Parameter(Tensor):
    pass


class Buffer(Tensor):
    pass


class Wrapper(Tensor):
    pass


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    torch = SimpleNamespace(
        Tensor=Tensor, nn=SimpleNamespace(Parameter=Parameter, Buffer=Buffer), from_numpy=lambda a: a
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.nn", torch.nn)
    yield torch


@pytest.mark.parametrize("kind", [Tensor, Parameter, Buffer])
def test_whole_tensors_are_taken(store: ebbtide.Store, torch: Any, kind: type) -> None:
    store.checkpoint(0, kind(np.arange(3.0)))
    out = kind(np.zeros(3))
    store.restore(0, out=out)
    assert (out.inner == np.arange(3)).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Tensor(np.zeros(3, "i1"), "torch.qint8", is_quantized=True), r"quantised.*x\.int_repr\(\).*x\.dequantize\(\)"),
        (Tensor(np.zeros(3), is_nested=True), r"nested.*x\.unbind\(\)"),
        (Tensor(np.zeros(3), has_names=lambda: True), r"named.*x\.rename\(None\)"),
        (Tensor(np.zeros(3), data_ptr=lambda: 0), r"without memory of its own.*x\.clone\(\)"),
        (Wrapper(np.zeros(3)), r"Wrapper, .*x\.as_subclass\(torch\.Tensor\)"),
    ],
)
def test_tensors_that_are_more_than_their_bytes_are_refused(
    store: ebbtide.Store, torch: Any, given: Any, words: str
) -> None:
    refuse(store, given, words)


def test_what_adds_to_arrays_of_cupy_and_jax_is_refused(store: ebbtide.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(Exporter):
        pass

    class More(Plain):
        pass

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ndarray=Plain))
    refuse(store, More(np.zeros(3)), r"More, .*cupy\.asarray\(x\)")
    monkeypatch.setitem(sys.modules, "cupy", None)

    class Array(Exporter):
        pass

    class Key(Array):
        pass

    class ArrayImpl(Array):  # JAX's own
        pass

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(Array=Array))
    refuse(store, Key(np.zeros(3)), r"Key, which is more than its bytes.*jax\.random\.key_data\(x\)")
    for version, kind in enumerate((Array, ArrayImpl)):
        store.checkpoint(version, kind(np.arange(3.0)))
        assert (store.restore(version, out=np.zeros(3)) == np.arange(3)).all()


def test_a_foreign_class_is_taken_whatever_it_adds(store: ebbtide.Store) -> None:
    class Bytes(bytearray):
        pass

    class Numbers(array.array):
        pass

    for version, given in enumerate((Bytes(b"abc"), Numbers("d", [1, 2]), Exporter(np.arange(3.0)))):
        store.checkpoint(version, given)
        assert len(store.restore(version)) in (2, 3)


def test_the_kind_of_a_type_that_is_gone_is_not_that_of_the_next(store: ebbtide.Store) -> None:
    class Foreign(Exporter):
        pass

    for i in range(600):
        if i % 2:
            with pytest.raises(ebbtide.Unsupported, match="numpy.asarray"):
                store.checkpoint(i, np.zeros(1).view(type("Some", (np.ndarray,), {})))
        else:
            store.checkpoint(i, type("Some", (Foreign,), {})(np.zeros(1)))
        if i % 100 == 0:
            gc.collect()


def test_a_store_is_not_kept_by_the_types_of_what_it_was_given(disk: Path) -> None:
    def use() -> weakref.ref[ebbtide.Store]:
        store = ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="8MiB")

        class Local(Exporter):
            of = store

        store.checkpoint(0, Local(np.zeros(1)))
        return weakref.ref(store)

    gone = use()
    gc.collect()
    assert gone() is None


# --- with the libraries


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what PyTorch is about to take away
def test_real_tensors_that_are_more_than_their_bytes(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    ones = torch.ones(3)

    class More(torch.Tensor):
        pass

    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([1, 2])
    cases = [
        (torch.quantize_per_tensor(ones, 0.1, 3, torch.qint8), "quantised tensor"),
        (torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.quint8), "quantised tensor"),
        (torch.nested.nested_tensor([ones, ones]), "nested tensor"),
        (torch.nested.nested_tensor([ones, ones], layout=torch.jagged), "nested tensor"),
        (ones.as_subclass(More), "More, whose additions"),
        (torch._to_functional_tensor(ones), "without memory of its own"),
        (torch._efficientzerotensor(3), "without memory of its own"),
        (ones.to_sparse(), r"torch\.sparse_coo\): x\.to_dense\(\)"),
        (torch.ones(3, device="meta"), "device 'meta'"),
    ]
    if hasattr(torch.Tensor, "has_names"):  # until 2.12
        cases.append((torch.zeros(2, 3, names=("a", "b")), "named tensor"))
    for given, words in cases:
        with pytest.raises(ebbtide.Unsupported, match=words):
            store.checkpoint(0, [given])

    def inside(x: Any) -> Any:
        with pytest.raises(ebbtide.Unsupported, match="without memory of its own"):
            store.checkpoint(0, x)
        return x

    torch.vmap(inside)(torch.ones(2, 3))
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(ones, torch.zeros(3))
        with pytest.raises(ebbtide.Unsupported, match=r"^arrays\[0\] is a dual tensor.*unpack_dual\(x\)"):
            store.checkpoint(0, [dual])
        store.checkpoint(0, forward.unpack_dual(dual))
        assert [part.tolist() for part in store.restore(0)] == [[1, 1, 1], [0, 0, 0]]
    assert store.versions() == []
    q = torch.quantize_per_tensor(ones, 0.1, 3, torch.qint8)
    store.checkpoint(0, torch.zeros(3, dtype=torch.int8))
    with pytest.raises(ebbtide.Unsupported, match="^out is a quantised tensor"):
        store.restore(0, out=q)
    with pytest.raises(ebbtide.Unsupported, match="scale and zero point"):
        store.reserve(1, 3, torch.qint8)
    assert torch.equal(q.dequantize(), torch.quantize_per_tensor(ones, 0.1, 3, torch.qint8).dequantize())


def test_real_tensors_that_are_whole(store: ebbtide.Store) -> None:
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        inference = torch.ones(3)
    given = [torch.nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True) * 2, torch.tensor(4.0), inference,
             torch.ones(3).to(torch.bfloat16), torch.ones(3).to(torch.float8_e4m3fn), torch.zeros(0, 3)]  # fmt: skip
    if hasattr(torch.nn, "Buffer"):
        given.append(torch.nn.Buffer(torch.ones(3)))
    store.checkpoint(0, given)
    out = [torch.zeros_like(one) for one in given]
    store.restore(0, out=out, keep=True)
    for back in (out, store.restore(0)):
        for one, other in zip(back, given, strict=True):
            assert one.dtype == other.dtype and torch.equal(one.float(), other.detach().float())


def test_real_arrays_of_jax(store: ebbtide.Store) -> None:
    jax = pytest.importorskip("jax")
    refuse(store, jax.random.key(0), r"jax\.random\.key_data\(x\)")

    def inside(x: Any) -> Any:
        refuse(store, x, "tracing")
        return x

    jax.jit(inside)(jax.numpy.zeros(3))
    host = jax.local_devices(backend="cpu")[0]
    with jax.enable_x64(True), jax.default_device(host):  # the types are kept where it is off, too
        types = ("float32", "bfloat16", "bool", "float8_e4m3fn", "float8_e5m2", "float64", "int64", "complex128")
        given = {dtype: jax.numpy.ones((2, 3), dtype) for dtype in types}
        given |= {"none": jax.numpy.zeros((0, 4)), "scalar": jax.numpy.ones((), "float32")}
    store.checkpoint(0, given | {"host": np.ones(3)})
    for back in (store.restore(0, keep=True), store.restore_async(0).result()):
        assert type(back.pop("host")) is np.ndarray
        assert back.pop("none").shape == (0, 4) and back.pop("scalar").at[()].set(3) == 3
        for dtype, found in back.items():
            assert isinstance(found, jax.Array) and found.dtype == dtype and (found == given[dtype]).all()
            assert found.devices() == {host}


CALLBACKS = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import ebbtide, jax, jax.numpy as jnp
from jax.experimental import io_callback

with ebbtide.open(sys.argv[1], device="cpu", device_cache="64MiB", host_cache="64MiB", disk="1GiB") as store:
    history = store.history("f", order="reverse")

    def write(i, x):
        history.checkpoint(int(i), x)

    def read(i):
        array = history.restore(int(i))
        assert isinstance(array, jax.Array)
        return array

    @jax.jit
    def run(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)

        def forth(i, x):
            io_callback(write, None, i, x, ordered=True)
            return jnp.sin(x) + 1

        def back(i, x):
            return x + io_callback(read, shape, 9 - i, ordered=True)

        return jax.lax.fori_loop(0, 10, back, jax.lax.fori_loop(0, 10, forth, x))

    print(float(jax.block_until_ready(run(jnp.ones(6 << 20))).sum()) > 0)
"""


def test_arrays_of_jax_in_callbacks_of_jax(disk: Path) -> None:
    """JAX waits for what these return, on its only thread where there is one processor: nothing there may need that thread."""
    pytest.importorskip("jax")
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CALLBACKS, disk]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr
