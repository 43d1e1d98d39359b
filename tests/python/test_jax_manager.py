"""Pytrees come back as they were, and a run goes on where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from memory_support import resident

jax = pytest.importorskip("jax", reason="jax is not installed")
Manager = pytest.importorskip("ebbtide.jax").Manager
jnp = jax.numpy

import ebbtide

DEVICE = "cuda" if jax.default_backend() == "gpu" else "cpu"
SMALL = {"device": DEVICE, "device_cache": "4MiB", "host_cache": "8MiB", "disk": "256MiB"}


class Moments(NamedTuple):
    mean: Any
    count: Any


def state(value: float = 0.0) -> Any:
    types = ("float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64", "float8_e4m3fn", "float8_e5m2")
    return {
        "weights": [jnp.full((3, 4), value, kind) for kind in types],
        "moments": Moments(jnp.zeros(()) + value, np.int64(7)),
        "key": jax.random.key(int(value)),
        "keys": jax.random.split(jax.random.key(int(value), impl="rbg"), 3),
        "host": np.arange(6.0).reshape(2, 3) + value,
        "values": (int(value), None, "text", 2.5),
    }


def same(a: Any, b: Any) -> bool:
    def plain(x: Any) -> Any:
        return jax.random.key_data(x) if hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    def equal(x: Any, y: Any) -> bool:
        if type(x) is not type(y):
            return False
        x, y = plain(x), plain(y)
        return bool(np.array_equal(np.asarray(x), np.asarray(y))) and getattr(x, "dtype", 0) == getattr(y, "dtype", 0)

    return jax.tree.structure(a) == jax.tree.structure(b) and all(map(equal, jax.tree.leaves(a), jax.tree.leaves(b)))


def test_a_pytree_of_every_kind_comes_back(disk: Path) -> None:
    with Manager(disk / "run", every=2, keep_last=2, **SMALL) as manager:
        first, now = manager.resume(state())
        assert first == 0 and same(now, state())
        for step in range(7):
            manager.step(step, state(step))
            manager.wait()
        assert manager.history.versions() == [4, 6]
    with Manager(disk / "run", **SMALL) as manager:
        first, now = manager.resume(state())
        assert first == 7 and same(now, state(6))
        assert manager.resume(state(), at_most=5)[0] == 5
        shapes = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype) if isinstance(x, jax.Array) else x, state()
        )
        assert same(manager.resume(shapes)[1], state(6))


def test_weak_types_stay_weak(disk: Path) -> None:
    given = {"scale": jnp.asarray(0.5), "row": jnp.full(3, 0.1), "count": jnp.asarray(3), "strong": jnp.ones(3)}
    assert [leaf.weak_type for leaf in given.values()] == [True, True, True, False]
    with Manager(disk / "run", **SMALL) as manager:
        manager.save(0, given)
    with Manager(disk / "run", **SMALL) as manager:
        found = manager.resume(jax.tree.map(jnp.zeros_like, given))[1]
    assert same(found, given)
    assert {name: leaf.weak_type for name, leaf in found.items()} == {
        name: leaf.weak_type for name, leaf in given.items()
    }
    assert (found["scale"] * jnp.ones(3, "bfloat16")).dtype == jnp.bfloat16


def test_elements_smaller_than_a_byte(disk: Path) -> None:
    given = [jnp.arange(3).astype(kind) for kind in ("int4", "uint4", "int2", "float4_e2m1fn")]
    with Manager(disk / "run", **SMALL) as manager:
        manager.save(0, given)
        assert same(manager.resume(given)[1], given)


# In a process of its own: the number of devices is that of the process.
SEVERAL = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from ebbtide.jax import Manager

over = NamedSharding(jax.make_mesh((4,), ("x",)), PartitionSpec("x"))
given = {
    "split": jax.device_put(jnp.arange(8.0), over),
    "keys": jax.device_put(jax.random.split(jax.random.key(1), 8), over),
    "third": jax.device_put(jnp.ones(8), jax.devices()[2]),
    "anywhere": jnp.float32(3),
}
with Manager(sys.argv[1], device_cache="1MiB", host_cache="2MiB", disk="64MiB") as manager:
    manager.save(0, given)
    found = manager.resume(given)[1]
    for name, leaf in given.items():
        assert found[name].sharding == leaf.sharding and found[name].committed == leaf.committed, name
        assert (found[name] == leaf).all(), name
    jax.jit(lambda tree: tree["split"] * tree["anywhere"])({name: found[name] for name in ("split", "anywhere")})
print("done")
"""


def test_arrays_of_several_devices(disk: Path) -> None:
    four = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    ran = subprocess.run(
        [sys.executable, "-c", SEVERAL, disk / "run"], env=four, capture_output=True, text=True, timeout=300
    )
    assert ran.stdout == "done\n", ran.stderr


def test_what_cannot_be_stored_is_refused_by_the_leafs_name(disk: Path) -> None:
    nan, other, gone = float("nan"), float("nan"), jnp.ones(3)
    gone.delete()
    with Manager(disk / "run", **SMALL) as manager:
        for state, words in (
            (
                {"a": [1, b"bytes"]},
                r"^state\['a'\]\[1\] is of type 'bytes': expected an array of JAX or NumPy, a number or text",
            ),
            ({"a": gone}, r"^state\['a'\] was deleted: it was donated to a call"),
            ({"a": object()}, r"^state\['a'\] is of type 'object': expected an array of JAX"),
            ({"a": 1, "b": np.array([None])}, r"^state\['b'\] holds Python objects"),
            ({"b": np.ma.masked_array([1], [True])}, r"^state\['b'\] is a masked array"),
            ({nan: 1, other: 2}, r"^state\[nan\] is there twice: expected leaves with paths of their own"),
        ):
            with pytest.raises(ebbtide.Error, match=words):
                manager.save(0, state)
        assert manager.history.versions() == []


def test_another_tree_is_refused_by_the_leafs_name(disk: Path) -> None:
    with Manager(disk / "run", **SMALL) as manager:
        manager.step(3, {"a": [jnp.zeros(3), 1], "b": jnp.zeros(2)})
        for like, words in (
            ({"a": [jnp.zeros(3), 1]}, r"^state has no leaf \['b'\], which the checkpoint of step 3 has"),
            ({"a": [jnp.zeros(3), 1], "b": jnp.zeros(2), "c": 1}, r"^state\['c'\] is not in the checkpoint of step 3"),
            (
                {"a": [jnp.zeros(4), 1], "b": jnp.zeros(2)},
                r"^state\['a'\]\[0\] is float32\[4\]; .* step 3 it is float32\[3\]",
            ),
            (
                {"a": [jnp.zeros(3, int), 1], "b": jnp.zeros(2)},
                r"^state\['a'\]\[0\] is int32\[3\]; .* it is float32\[3\]",
            ),
            ({"a": [1, 1], "b": jnp.zeros(2)}, r"^state\['a'\]\[0\] is a int; .* has an array there"),
        ):
            with pytest.raises(ebbtide.SizeMismatch, match=words):
                manager.resume(like)


def test_the_best_are_kept_and_damage_is_skipped(disk: Path) -> None:
    x = jnp.arange(1000.0)
    with Manager(disk / "run", keep_last=2, best=("loss", 1), **SMALL) as manager:
        for step in range(5):
            manager.step(step, x + step, loss=abs(step - 1))
    segment = next((disk / "run").glob("segment-*"))
    data = bytearray(segment.read_bytes())
    data[data.index(np.asarray(x + 4).tobytes()) + 100] ^= 1
    segment.write_bytes(data)
    with Manager(disk / "run", **SMALL) as manager:
        assert manager.history.versions() == [1, 3, 4]
        with pytest.warns(ebbtide.DamagedWarning, match="step 4 is skipped"):
            first, now = manager.resume(x)
        assert first == 4 and (now == x + 3).all()


def test_a_tracer_and_other_stores_are_refused(disk: Path) -> None:
    with Manager(disk / "run", **SMALL) as manager:
        with pytest.raises(ebbtide.Unsupported, match="tracing"):
            jax.jit(lambda x: manager.step(0, {"x": x}))(jnp.ones(3))
        manager.store.history("training").checkpoint(0, [np.zeros(3)])
        with pytest.raises(ebbtide.InvalidArgument, match="not written by ebbtide.jax"):
            manager.resume(0)
    with ebbtide.open(disk, **SMALL) as store, pytest.raises(ebbtide.InvalidArgument, match="the store is ephemeral"):
        Manager(store)


def test_a_warm_manager_has_its_memory_before_the_first_save(disk: Path) -> None:
    state = {"x": jax.block_until_ready(jnp.ones(20 << 18))}  # 20 MiB
    sizes = {"device": DEVICE, "device_cache": "24MiB", "host_cache": "40MiB", "disk": "256MiB"}
    with Manager(disk / "run", warm=True, **sizes) as manager:
        before = resident()
        manager.step(0, state)
        assert resident() - before < 4 << 20
