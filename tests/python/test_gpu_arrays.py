"""What may be given to a store on a GPU, and what comes back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from child import run_python
import numpy as np
import pytest
from gpu_support import Cupy, Interface, OnlyDLPack, Torch, by_library, needs_gpu, open_gpu

import ebbtide

pytestmark = needs_gpu


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with open_gpu(disk, device_cache="16MiB", host_cache="16MiB", disk="64MiB") as store:
        yield store


@by_library
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "int64", "uint8", "bool", "complex64", "complex128"]
)
def test_every_type_comes_back_where_it_was(store: ebbtide.Store, make: Any, dtype: str) -> None:
    lib = make()
    given = lib.full((3, 5), 1, dtype)
    store.checkpoint(0, given)
    back = store.restore(0, keep=True)
    assert lib.is_one(back) and back.dtype == given.dtype and tuple(back.shape) == (3, 5)
    assert lib.same(back, 1)
    out = np.zeros((3, 5), dtype)
    assert store.restore(0, out=out) is out and (out == 1).all()


def test_torchs_own_types_come_back(store: ebbtide.Store) -> None:
    lib = Torch()
    for version, dtype in enumerate(("bfloat16", "float8_e4m3fn")):
        given = lib.full(64, 1).to(getattr(lib.torch, dtype))
        store.checkpoint(version, given)
        back = store.restore(version)
        assert back.dtype == given.dtype and lib.same(back.float(), 1)


@by_library
def test_structures_come_back(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    a, b = lib.full((4, 4), 1), lib.full(7, 2, "int32")
    for version, arrays in enumerate(([a, b], (a,), {"p": a, "v": b}, {1: a, 2: b})):
        store.checkpoint(version, arrays)
        back = store.restore(version)
        assert type(back) is type(arrays)
        pairs = zip(back.values(), arrays.values()) if isinstance(arrays, dict) else zip(back, arrays)
        for found, given in pairs:
            assert lib.is_one(found) and found.dtype == given.dtype and bool((found == given).all())


@by_library
@pytest.mark.parametrize("shape", [(0,), (4, 0, 2), ()])
def test_shapes_without_or_with_one_element(store: ebbtide.Store, make: Any, shape: tuple[int, ...]) -> None:
    lib = make()
    given = lib.full(shape, 3)
    store.checkpoint(0, given)
    store.checkpoint(1, [given, lib.full(5, 1)])
    back = store.restore(0)
    assert lib.is_one(back) and tuple(back.shape) == shape and lib.same(back, 3)
    out = [lib.full(shape, 0), lib.full(5, 0)]
    store.restore(1, out=out)
    assert lib.same(out[0], 3) and lib.same(out[1], 1)


def in_any_order(lib: Any, whole: Any) -> dict[str, Any]:
    """Views of an array of three axes."""
    return {
        "permuted": whole.swapaxes(0, 2),
        "with gaps": whole[:, ::2],
        "both": whole[::2].swapaxes(0, 1),
        "repeated": getattr(lib, lib.name).broadcast_to(whole[:1], (3, *whole.shape[1:])),
    }


def strides(lib: Any, array: Any) -> list[int]:
    return list(array.stride()) if lib.name == "torch" else [step // array.itemsize for step in array.strides]


@by_library
def test_arrays_in_any_order_come_back(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    whole = lib.put(np.arange(192, dtype="f4").reshape(8, 6, 4))
    kept = {"permuted": [1, 4, 24], "with gaps": [12, 4, 1], "both": [4, 24, 1], "repeated": [0, 4, 1]}
    for version, (name, given) in enumerate(in_any_order(lib, whole).items()):
        expected = lib.get(given)
        store.checkpoint(version, {"x": given, "y": whole})
        back = store.restore(version, keep=True)
        assert lib.is_one(back["x"]) and strides(lib, back["x"]) == kept[name], name
        assert (lib.get(back["x"]) == expected).all() and (lib.get(back["y"]) == lib.get(whole)).all(), name
        shape = tuple(expected.shape)
        outs = [lib.full(shape, 0), lib.full(shape[::-1], 0).swapaxes(0, 2)]
        outs.append(lib.full(tuple(2 * n for n in shape), 0)[::2, ::2, ::2])
        for out in outs:
            store.restore(version, out={"x": out, "y": lib.full((8, 6, 4), 0)}, keep=True)
            assert (lib.get(out) == expected).all(), name
            lib.fill(out, -1)
            store.restore_async(version, out={"x": out, "y": lib.full((8, 6, 4), 0)}, keep=True).wait()
            assert (lib.get(out) == expected).all(), name
        in_host_memory = np.zeros(shape, "f4", order="F")
        store.restore(version, out={"x": in_host_memory, "y": np.zeros((8, 6, 4), "f4")}, keep=True)
        assert (in_host_memory == expected).all(), name
        with store.borrow(version, keep=True) as lent:
            over = lib.over(lent["x"])
            assert (lib.get(over) == expected).all() and strides(lib, over) == kept[name], name
            del over, lent
    with pytest.raises(ebbtide.InvalidArgument, match=r"out\['x'\] overlaps itself"):
        store.restore(0, out={"x": in_any_order(lib, whole)["repeated"], "y": whole})


@by_library
@pytest.mark.parametrize("wrap", [Interface, OnlyDLPack])
def test_arrays_of_other_libraries_with_gaps_are_packed_by_one_that_can(
    store: ebbtide.Store, make: Any, wrap: Any
) -> None:
    lib = make()
    whole = lib.put(np.arange(192, dtype="f4").reshape(8, 6, 4))
    given = whole[:, ::2]
    store.checkpoint(0, wrap(given))
    assert (
        store.restore(0, keep=True) == lib.get(given)
    ).all()  # NumPy's, as nothing else makes arrays of that library
    out = lib.full((8, 6, 4), 0)
    store.restore(0, out=Interface(out[:, ::2]))
    assert (lib.get(out[:, ::2]) == lib.get(given)).all() and float(out[:, 1::2].sum()) == 0


def test_lazy_views_of_torch_are_resolved(store: ebbtide.Store) -> None:
    lib = Torch()
    whole = lib.put((np.arange(12) + 1j * np.arange(12)[::-1]).astype("c8").reshape(3, 4))
    for version, given in enumerate((whole.conj(), whole.conj().imag, whole.t().conj())):
        plain = given.resolve_conj().resolve_neg()
        store.checkpoint(version, given)
        assert lib.torch.equal(store.restore(version, keep=True), plain)
        out = lib.torch.zeros_like(plain)
        for one in (out.conj() if plain.is_complex() else lib.torch._neg_view(out), out):
            store.restore(version, out=one, keep=True)
            assert lib.torch.equal(one, plain)


@by_library
def test_a_store_without_a_gpu_refuses_them_by_name(disk: Path, make: Any) -> None:
    lib = make()
    given = lib.full(4, 1)
    with ebbtide.open(disk, device="cpu", device_cache="1MiB", host_cache="1MiB", disk="4MiB") as store:
        with pytest.raises(ebbtide.Unsupported, match=r"arrays\[0\] is a GPU array.*device=\"cuda\""):
            store.checkpoint(0, [given])
        store.checkpoint(0, np.ones(4, "f4"))
        with pytest.raises(ebbtide.Unsupported, match="out is a GPU array"):
            store.restore(0, out=given)
        with pytest.raises(ebbtide.Unsupported, match="GPU"):
            store.restore(0, stream=1)
        assert store.versions() == [0]


@by_library
def test_what_was_written_on_a_gpu_is_read_without_one(disk: Path, make: Any) -> None:
    lib = make()
    with open_gpu(disk / "kept", durability="process") as store:
        store.checkpoint(0, {"a": lib.full((4, 3), 5), "b": lib.full(7, 6, "int64")})
    with open_gpu(disk / "kept", durability="process", device="cpu") as store:
        back = [store.restore(0, keep=True), store.restore_async(0).result(timeout=30)]
    kind = np.ndarray if lib.name == "cupy" else lib.torch.Tensor
    for found in back:
        assert all(isinstance(array, kind) and not lib.is_one(array) for array in found.values())
        assert tuple(found["a"].shape) == (4, 3) and lib.same(found["a"], 5) and lib.same(found["b"], 6)


@by_library
def test_numpy_in_and_out(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    for version in range(12):  # past the device and the host cache
        store.checkpoint(version, np.full(1 << 20, version, "f4"), timeout=30)
    for version in reversed(range(12)):
        if version % 2:
            back = store.restore(version)
            assert type(back) is np.ndarray and (back == version).all()
        else:
            out = lib.full(1 << 20, -1)
            store.restore(version, out=out)
            assert lib.same(out, version)


@by_library
@pytest.mark.parametrize("wrap", [Interface, OnlyDLPack])
def test_the_protocols_are_enough(store: ebbtide.Store, make: Any, wrap: Any) -> None:
    lib = make()
    given, out = lib.full((4, 3), 5), lib.full((4, 3), 0)
    lib.spin()
    lib.fill(given, 6)
    store.checkpoint(0, wrap(given))
    assert not lib.busy(lib.current()), "the call has blocked"
    lib.fill(given, 0)
    lib.spin()
    lib.fill(out, 1)
    store.restore(0, out=wrap(out), keep=True)
    assert not lib.busy(lib.current())
    assert lib.same(out, 6)
    assert (np.asarray(store.restore(0)) == 6).all()


@by_library
def test_the_stream_that_an_array_names_is_kept_to(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    stream = lib.stream()
    with lib.on(stream):
        x = lib.full(1 << 20, 1)
        lib.spin()
        lib.fill(x, 2)
    named = Interface(x, stream=lib.handle(stream))
    store.checkpoint(0, named)
    with lib.on(stream):
        lib.fill(x, 3)
    store.restore(0, out=named)
    with lib.on(stream):
        assert lib.same(x, 2)


@by_library
def test_read_only_targets_are_refused(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    given = lib.full(4, 6)
    store.checkpoint(0, given)
    with pytest.raises(ebbtide.InvalidArgument, match="out is read-only"):
        store.restore(0, out=Interface(given, read_only=True))


class CopiedInterface(Interface):
    """Names another copy each time."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.kept = [*getattr(self, "kept", ()), self.inner * 1]
        return dict(self.kept[-1].__cuda_array_interface__)


class CopiedDLPack(OnlyDLPack):
    def __dlpack__(self, *given: Any, **named: Any) -> Any:
        return (self.inner * 1).__dlpack__(*given, **named)


class OldDLPack(OnlyDLPack):
    """Of before version 1."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.inner.__dlpack__(stream=stream)


class OldWithInterface(OldDLPack, Interface):
    def __init__(self, inner: Any, read_only: bool = False) -> None:
        OldDLPack.__init__(self, inner)
        Interface.__init__(self, inner, read_only)


@by_library
def test_targets_must_prove_that_what_is_read_is_in_them(store: ebbtide.Store, make: Any) -> None:
    lib = make()
    given = lib.full(4, 6)
    store.checkpoint(0, given)
    for out, words in [
        (CopiedInterface(given), "hands out a copy"),
        (CopiedDLPack(given), "hands out a copy"),
        (OldDLPack(given), "does not say that it may be written to"),
        (OldWithInterface(given, read_only=True), "does not say that it may be written to"),
        ([given, given], r"out\[0\] and out\[1\] share memory"),
    ]:
        with pytest.raises(ebbtide.InvalidArgument, match=words):
            store.restore(0, out=out)
    out = lib.full(4, 0)
    store.restore(0, out=OldWithInterface(out), keep=True)
    assert lib.same(out, 6)
    whole = lib.full(6, 0)
    store.checkpoint(1, [given, given])
    with pytest.raises(ebbtide.InvalidArgument, match=r"out\[0\] and out\[1\] share memory"):
        store.restore(1, out=[whole[:4], whole[2:]])
    assert lib.same(whole, 0)


@by_library
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": 3}, "shape"),
        ({"shape": (1.5,)}, "shape"),
        ({"shape": (-1,)}, "shape"),
        ({"typestr": "nonsense"}, "typestr"),
        ({"typestr": None}, "typestr"),
        ({"data": None}, "data"),
        ({"data": (1,)}, "data"),
        ({"strides": (1.5,)}, "strides"),
        ({"stream": "one"}, "stream"),
    ],
    ids=str,
)
def test_an_interface_that_is_none_is_refused_by_name(
    store: ebbtide.Store, make: Any, change: dict[str, Any], words: str
) -> None:
    class Odd(Interface):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return super().__cuda_array_interface__ | change

    with pytest.raises(ebbtide.InvalidArgument, match=f"^arrays .*__cuda_array_interface__ whose {words} is not"):
        store.checkpoint(0, Odd(make().full(4, 1)))
    assert store.versions() == []


def test_tensors_that_are_more_than_their_bytes_are_refused(store: ebbtide.Store) -> None:
    lib = Torch()
    kind = type("More", (lib.torch.Tensor,), {})
    with pytest.raises(ebbtide.Unsupported, match=r"More, .*as_subclass\(torch\.Tensor\)"):
        store.checkpoint(0, lib.full(4, 1).as_subclass(kind))
    store.checkpoint(0, lib.torch.nn.Parameter(lib.full(4, 1)))
    assert lib.same(store.restore(0), 1)


def test_managed_memory_is_taken(store: ebbtide.Store) -> None:
    lib = Cupy()
    memory = lib.cupy.cuda.malloc_managed(4096)
    given = lib.cupy.ndarray((1024,), "f4", memptr=memory)
    given.fill(4)
    store.checkpoint(0, given)
    given.fill(0)
    store.restore(0, out=given)
    assert lib.same(given, 4)


@pytest.mark.parametrize("beside", ["sys", "torch"])
def test_jax_arrays_come_back_as_such(disk: Path, beside: str) -> None:
    pytest.importorskip("jax")
    pytest.importorskip(beside)
    program = f"""
import jax, jax.numpy as jnp, numpy as np, {beside}, ebbtide
if jax.devices()[0].platform != "gpu":
    print("no gpu"); raise SystemExit
with ebbtide.open({str(disk)!r}, device="cuda", device_cache="16MiB", host_cache="16MiB", disk=0) as store:
    given = {{"a": jnp.arange(1000, dtype=jnp.float32) * 2, "b": jnp.ones((3, 4), jnp.bfloat16), "c": jnp.ones(3, bool)}}
    store.checkpoint(0, given)
    try:
        store.restore(0, out=given)
    except ebbtide.InvalidArgument as error:
        assert "read-only" in str(error), error
    else:
        raise SystemExit("jax's arrays were written to")
    back = store.restore(0, keep=True)
    ordered = store.restore(0, keep=True, stream=2)
    also = store.restore_async(0).result(timeout=30)
    for one in (back, ordered, also):
        for key in given:
            assert isinstance(one[key], jax.Array) and one[key].dtype == given[key].dtype, one
            assert one[key].devices() == given[key].devices(), one
            assert (np.asarray(one[key].astype(jnp.float32)) == np.asarray(given[key].astype(jnp.float32))).all()
print("whole")
"""
    env = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = run_python(program, env=env)
    if done.stdout == "no gpu\n":
        pytest.skip("JAX finds no GPU")
    assert done.stdout == "whole\n", done.stderr
