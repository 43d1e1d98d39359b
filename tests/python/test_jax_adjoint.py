"""Gradients through a store are those of JAX, however the transformations are combined."""

from __future__ import annotations

from collections.abc import Iterator
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
adjoint = pytest.importorskip("ebbtide.jax").adjoint
jnp = jax.numpy

import ebbtide

STEPS = 25


@pytest.fixture
def store(disk: Path) -> Iterator[ebbtide.Store]:
    with ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="256MiB") as store:
        yield store


def step(state: Any, i: Any, parameters: Any) -> Any:
    """Floats, a half, an int and random keys; parameters that are used and one that is not."""
    key, use = jax.random.split(state["key"])
    field = (
        jnp.sin(state["field"] * parameters["speed"]) + 0.01 * i + 1e-3 * jax.random.normal(use, state["field"].shape)
    )
    half = (state["half"] * jnp.bfloat16(0.9) + field[:5].astype(jnp.bfloat16)).astype(jnp.bfloat16)
    return {"field": field, "half": half, "key": key, "n": state["n"] + parameters["by"]}


def begin(count: int = 20_000) -> tuple[Any, Any]:
    state = {
        "field": jnp.linspace(0, 1, count),
        "half": jnp.ones(5, jnp.bfloat16),
        "key": jax.random.key(3),
        "n": jnp.int32(0),
    }
    return state, {"speed": jnp.float32(1.1), "by": 2, "unused": jnp.zeros(3)}


def in_memory(state: Any, parameters: Any) -> Any:
    return jax.lax.scan(lambda now, i: (step(now, i, parameters), None), state, jnp.arange(STEPS))[0]


def misfit_of(run: Any) -> Any:
    start, fixed = begin()

    def misfit(field: Any, speed: Any) -> Any:
        last = run({**start, "field": field}, {**fixed, "speed": speed})
        return (last["field"] ** 2).sum() + last["half"].astype(jnp.float32).sum() + 0.0 * last["n"]

    return misfit


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f: jax.grad(f, (0, 1)),
        lambda f: jax.jit(jax.grad(f, (0, 1))),
        lambda f: jax.grad(jax.jit(f), (0, 1)),
        lambda f: jax.jit(jax.grad(jax.jit(f), (0, 1))),
        lambda f: lambda *at: jax.value_and_grad(f, (0, 1))(*at)[1],
        lambda f: lambda *at: jax.vjp(f, *at)[1](1.0),
    ],
    ids=["grad", "jit of grad", "grad of jit", "jit of grad of jit", "value_and_grad", "vjp"],
)
def test_gradients_are_those_in_memory(store: ebbtide.Store, transformed: Any) -> None:
    start, fixed = begin()
    run = adjoint(store, steps=STEPS)(step)
    at = start["field"], fixed["speed"]
    expected = jax.jit(jax.grad(misfit_of(in_memory), (0, 1)))(*at)
    gradient = transformed(misfit_of(run))
    for _ in range(2):
        for found, right in zip(gradient(*at), expected):
            np.testing.assert_allclose(found, right, rtol=2e-4, atol=1e-5)
    jax.effects_barrier()
    assert store.histories() == []  # the states went with the backward passes


def test_without_a_gradient_nothing_is_stored(store: ebbtide.Store) -> None:
    run = adjoint(store, steps=STEPS)(step)
    last, right = jax.jit(run)(*begin()), in_memory(*begin())
    assert last["n"] == 2 * STEPS and last["half"].dtype == jnp.bfloat16
    np.testing.assert_allclose(last["field"], right["field"], rtol=1e-5)
    assert (jax.random.key_data(last["key"]) == jax.random.key_data(right["key"])).all()
    assert store.stats()["checkpoints"] == 0 and store.histories() == []


def test_each_call_has_a_history_of_its_own(store: ebbtide.Store) -> None:
    run = adjoint(store, steps=5)(lambda x, i, c: x * c + i)

    @jax.jit
    @jax.grad
    def both(c: Any) -> Any:
        return (run(jnp.ones(1000), c) * run(jnp.full(1000, 2.0), c + 1)).sum()

    def plain(x: Any, c: Any) -> Any:
        for i in range(5):
            x = x * c + i
        return x

    right = jax.grad(lambda c: (plain(jnp.ones(1000), c) * plain(jnp.full(1000, 2.0), c + 1)).sum())(1.5)
    np.testing.assert_allclose(both(1.5), right, rtol=1e-5)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "scale", [lambda: jnp.asarray(0.7), lambda: 0.7, lambda: jnp.float32(0.7)], ids=["weak", "number", "float32"]
)
def test_weak_types_stay_weak(store: ebbtide.Store, scale: Any, jit: bool) -> None:
    def advance(state: Any, i: Any, c: Any) -> Any:  # with a weak type the product is a bfloat16
        product = jnp.full(4, 0.01, jnp.bfloat16) * state["scale"]
        return {"scale": state["scale"], "sum": state["sum"] + product.sum().astype(jnp.float32) * c}

    def misfit(run: Any) -> Any:
        gradient = jax.grad(lambda c: run({"scale": scale(), "sum": jnp.float32(1)}, c)["sum"] ** 2)
        return (jax.jit(gradient) if jit else gradient)(jnp.float32(0.3))

    found = misfit(adjoint(store, steps=5)(advance))
    expected = misfit(lambda x, c: jax.lax.scan(lambda x, i: (advance(x, i, c), None), x, jnp.arange(5))[0])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_step_whose_types_follow_from_a_weak_one(store: ebbtide.Store) -> None:
    run = adjoint(store, steps=5)(lambda x, i, c: (x[0], x[1] * x[0] + c))
    slope = jax.grad(lambda c: run((jnp.asarray(0.5), jnp.ones(4, jnp.bfloat16)), c)[1][0].astype(jnp.float32))
    assert slope(jnp.bfloat16(0.5)) == 1 + 0.5 + 0.25 + 0.125 + 0.0625


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("loop", ["scan", "map", "chain", "cond", "two levels"])
def test_in_loops_and_branches_that_have_a_gradient(store: ebbtide.Store, loop: str, jit: bool) -> None:
    def advance(x: Any, i: Any, c: Any) -> Any:
        return x + c * jnp.sin(x + 0.1 * i)

    def in_memory(inner: Any, count: int) -> Any:
        return lambda x, c: jax.lax.scan(lambda x, i: (inner(x, i, c), None), x, jnp.arange(count))[0]

    def misfit(steps_of: Any, c: Any) -> Any:
        run = steps_of(advance, 5)
        start, shots = jnp.linspace(0, 1, 1000), jnp.arange(1.0, 4.0)
        if loop == "scan":
            return jax.lax.scan(lambda total, k: (total + (run(k * start, c) ** 2).mean(), None), 0.0, shots)[0]
        if loop == "map":
            return (jax.lax.map(lambda k: run(k * start, c), shots) ** 2).mean()
        if loop == "chain":
            return (jax.lax.scan(lambda x, k: (run(x, k * c), None), start, shots)[0] ** 2).mean()
        if loop == "cond":
            return jax.lax.cond(c > 0, lambda: (run(start, c) ** 2).mean(), lambda: c)
        outer = steps_of(lambda x, i, c: run(x, c), 2)
        return jax.lax.map(lambda k: (outer(k * start, c) ** 2).mean(), shots).sum()

    expected = jax.grad(lambda c: misfit(in_memory, c))(0.3)
    gradient = jax.grad(lambda c: misfit(lambda inner, count: adjoint(store, steps=count)(inner), c))
    np.testing.assert_allclose((jax.jit(gradient) if jit else gradient)(0.3), expected, rtol=1e-4)
    jax.effects_barrier()
    assert store.histories() == []


def test_states_larger_than_the_caches(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="16MiB", host_cache="32MiB", disk="1GiB") as store:
        run = adjoint(store, steps=12)(lambda x, i, c: jnp.tanh(x * c) + 0.1)
        x = jnp.linspace(0, 1, 4 << 20)  # 16 MiB
        found = jax.jit(jax.grad(lambda c: run(x, c).sum()))(0.9)

        def plain(c: Any) -> Any:
            return jax.lax.fori_loop(0, 12, lambda i, x: jnp.tanh(x * c) + 0.1, x).sum()

        assert abs(found - jax.jacfwd(plain)(0.9)) < 1e-3 * abs(found)


DISPATCHED = """
import ebbtide, jax, jax.numpy as jnp, sys
from ebbtide.jax import adjoint
jax.config.update("jax_cpu_enable_async_dispatch", sys.argv[2] == "1")
with ebbtide.open(sys.argv[1], device_cache="16MiB", host_cache="32MiB", disk="1GiB", device="cpu") as store:
    run = adjoint(store, steps=12)(lambda x, i, c: x * c)
    slope = jax.grad(lambda x, c: run(x, c).sum(), 1)
    for turn in (slope, jax.jit(slope)) * 2:
        found = [turn(jnp.full(4 << 20, k), 2.0) for k in (1.0, 2.0, 4.0)]  # 16 MiB each; none is waited for
        assert [one.item() for one in found] == [k * (4 << 20) * 12 * 2.0**11 for k in (1, 2, 4)], found
print("right")
"""


@pytest.mark.parametrize("asynchronous", [0, 1])
def test_gradients_are_the_same_with_and_without_asynchronous_dispatch(disk: Path, asynchronous: int) -> None:
    """JAX calls back from another thread, and may still be at work on what it hands over, with it."""
    ran = subprocess.run(
        [sys.executable, "-c", DISPATCHED, disk, str(asynchronous)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.stdout == "right\n", ran.stderr


def test_states_larger_than_the_first_cache(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache="32MiB", disk="256MiB") as store:
        run = adjoint(store, steps=6)(lambda x, i, c: x * c)
        found = jax.jit(jax.grad(lambda c: run(jnp.ones(1 << 20), c)[0]))(2.0)  # 4 MiB
        assert found == 6 * 2.0**5


def test_vmap_is_refused_by_name(store: ebbtide.Store) -> None:
    run = adjoint(store, steps=3)(lambda x, i, c: x * c)
    gradient = jax.grad(lambda x, c: run(x, c).sum())
    with pytest.raises(ebbtide.Unsupported, match="jax.vmap"):
        jax.vmap(gradient, (0, None))(jnp.ones((2, 5)), 2.0)
    with pytest.raises(ebbtide.Unsupported, match="jax.vmap"):
        jax.grad(lambda x: jax.vmap(lambda one: run(one, 2.0).sum())(x).sum())(jnp.ones((2, 5)))
    mapped = jax.lax.map(lambda x: gradient(x, 2.0), jnp.ones((2, 5)))
    assert (mapped == 8).all()


def test_calls_without_a_backward_pass_are_forgotten(store: ebbtide.Store) -> None:
    run = adjoint(store, steps=3)(lambda x, i, c: x * c)
    jax.vjp(lambda c: run(jnp.ones(5), c).sum(), 2.0)
    jax.effects_barrier()
    assert len(store.histories()) == 1
    run.forget()
    assert store.histories() == []


# In a process of its own: on a GPU JAX repeats what a callback raised with every effect that comes later.
ONCE = """
import ebbtide, jax, sys
from ebbtide.jax import adjoint
with ebbtide.open(sys.argv[1], device_cache="1MiB", host_cache="2MiB", disk="256MiB", device="cpu") as store:
    run = adjoint(store, steps=3)(lambda x, i, c: x * c)
    _, pull = jax.vjp(lambda c: run(jax.numpy.ones(5), c).sum(), 2.0)
    assert pull(1.0)[0] == 60
    try:
        jax.block_until_ready(pull(1.0))
        jax.effects_barrier()
    except Exception as error:
        print(error)
"""


def test_a_pullback_runs_once(disk: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", ONCE, disk], capture_output=True, text=True, timeout=300)
    assert "its backward pass may run once" in ran.stdout, ran.stderr


def test_refusals(store: ebbtide.Store, disk: Path) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match="^steps=0"):
        adjoint(store, steps=0)
    with (
        ebbtide.open(disk / "kept", durability="process", disk="16MiB") as kept,
        pytest.raises(ebbtide.InvalidArgument, match="the store is persistent"),
    ):
        adjoint(kept, steps=3)
    run = adjoint(store, steps=3)(lambda x, i, c: x[:2])
    with pytest.raises(ebbtide.SizeMismatch, match="the step returns .*2.*as the state is.*3"):
        run(jnp.ones(3))
    with pytest.raises(ebbtide.Unsupported, match="tracing .*ebbtide.jax.adjoint"):
        jax.jit(lambda x: store.checkpoint(0, x))(jnp.ones(3))
