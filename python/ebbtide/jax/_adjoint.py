"""The adjoint of many steps, with the states in a store instead of in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback

import ebbtide
from ebbtide import errors
from ebbtide.jax._manager import is_key, is_weak, weak

Step = Callable[[Any, Any, Any], Any]
_sequence = itertools.count()
_NEW = -1  # the number of a call before its first state is written


def adjoint(store: ebbtide.Store, *, steps: int) -> Callable[[Step], "Adjoint"]:
    """Makes ``step(state, i, parameters) -> state`` a function of ``steps`` steps whose gradient reads states from ``store``.

    state, parameters: pytrees of arrays; a step returns a state of the same shapes and types. Leaves that are no floats (ints,
    random keys) are carried along without a gradient. i: the number of the step, a scalar of JAX.

    The result is called as ``run(state, parameters)`` and returns the last state. It may be used under ``jax.jit``,
    ``jax.grad``, ``jax.value_and_grad`` and ``jax.vjp`` in any order, and in ``jax.lax.scan``, ``map`` and ``cond``. Without a
    gradient it stores nothing. With one, the forward pass writes the state before each step as a version of a history of its
    own, last in first out, and the backward pass reads it, computes the step anew and drops the history at its end: a function
    that ``jax.vjp`` returned may be called once. (Nor may a loop call it with the same state and parameters each time: JAX then
    makes one forward pass for all of them.)

    Inside ``jax.jit`` the states go through host memory, on a GPU too.

    store: an ephemeral one. Raises :class:`ebbtide.InvalidArgument` (a persistent store), and :class:`ebbtide.Unsupported` under
    ``jax.vmap``: batch the arrays of the state instead. JAX refuses it inside ``jax.checkpoint``.

    >>> @ebbtide.jax.adjoint(store, steps=1000)
    ... def run(field, i, speed):
    ...     return advance(field, speed)
    >>> gradient = jax.jit(jax.grad(lambda speed: misfit(run(field, speed))))(speed)
    """
    if type(steps) is not int or steps < 1:
        raise errors.InvalidArgument(f"steps={steps!r} is not valid: expected an int of at least 1")
    if store.durability != "ephemeral":
        raise errors.InvalidArgument("the store is persistent: states need one that forgets them (an ephemeral one)")
    return lambda step: Adjoint(store, steps, step)


class Adjoint:
    """What :func:`adjoint` makes.

    >>> run = ebbtide.jax.adjoint(store, steps=1000)(advance)
    >>> last, pull = jax.vjp(lambda speed: run(field, speed), speed)  # stores the states
    >>> run.forget()  # pull is not called
    """

    def __init__(self, store: ebbtide.Store, steps: int, step: Step) -> None:
        self._steps, self._step = steps, step
        self._states = _States(store)
        self._run = jax.custom_vjp(self._primal)
        self._run.defvjp(self._forward, self._backward)

    def __call__(self, state: Any, parameters: Any = ()) -> Any:
        return self._run(state, parameters)

    def forget(self) -> None:
        """Drop the states of forward passes whose backward passes will not run. Those that still may must have ended."""
        self._states.forget()

    def _advance(self, i: Any, state: Any, parameters: Any) -> Any:
        after = self._step(state, i, parameters)
        before_shapes, after_shapes = jax.tree.map(_shape, state), jax.tree.map(_shape, after)
        if before_shapes != after_shapes:
            raise errors.SizeMismatch(f"the step returns {after_shapes}: expected, as the state is, {before_shapes}")
        return after

    def _primal(self, state: Any, parameters: Any) -> Any:
        return jax.lax.fori_loop(0, self._steps, lambda i, now: self._advance(i, now, parameters), state)

    def _forward(self, state: Any, parameters: Any) -> tuple[Any, Any]:
        kinds: Any = None

        # JAX leaves out a callback of a loop that it differentiates if nothing comes of it: the call's number does.
        def body(i: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            nonlocal kinds
            call, now = carried
            leaves, tree = jax.tree.flatten(now)
            kinds = _Kinds(tree, tuple(map(_kind_of, leaves)))
            call = _callback(self._states.write, jax.ShapeDtypeStruct((), np.int32), call, i, *map(_plain, leaves))
            return call, self._advance(i, now, parameters)

        with _refusing_vmap():
            call, last = jax.lax.fori_loop(0, self._steps, body, (np.int32(_NEW), state))
        return last, (call, parameters, kinds)

    def _backward(self, kept: Any, cotangent: Any) -> tuple[Any, Any]:
        call, parameters, kinds = kept
        values, shape_of = jax.tree.flatten(parameters)
        moves = [jnp.issubdtype(kind.dtype, jnp.inexact) and kind.key is None for kind in kinds.leaves]
        weighs = [jnp.issubdtype(_dtype(value), jnp.inexact) for value in values]
        shapes = [jax.ShapeDtypeStruct(kind.shape, kind.dtype) for kind in kinds.leaves]

        def body(k: Any, sums: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
            of_state, of_parameters = sums
            i = self._steps - 1 - k
            now = list(map(_made_of, kinds.leaves, _callback(self._states.read, shapes, call, i)))

            def floats(moving: list[Any], weighing: list[Any]) -> list[Any]:
                state = jax.tree.unflatten(kinds.tree, _merge(moves, moving, now))
                after = self._advance(i, state, jax.tree.unflatten(shape_of, _merge(weighs, weighing, values)))
                return _pick(moves, jax.tree.leaves(after))

            _, pull = jax.vjp(floats, _pick(moves, now), _pick(weighs, values))
            of_state, more = pull(of_state)
            return of_state, jax.tree.map(jnp.add, of_parameters, more)

        begin = _pick(moves, jax.tree.leaves(cotangent)), [jnp.zeros_like(value) for value in _pick(weighs, values)]
        with _refusing_vmap():
            of_state, of_parameters = jax.lax.fori_loop(0, self._steps, body, begin)
            _callback(self._states.end, None, call)
        none_of_state = [_no_gradient(kind.shape[:-1] if kind.key else kind.shape) for kind in kinds.leaves]
        none_of_values = [_no_gradient(jnp.shape(value)) for value in values]
        return (
            jax.tree.unflatten(kinds.tree, _merge(moves, of_state, none_of_state)),
            jax.tree.unflatten(shape_of, _merge(weighs, of_parameters, none_of_values)),
        )


class _States:
    """The histories of the calls. Its methods are what JAX calls back, in order, on a thread of its own."""

    def __init__(self, store: ebbtide.Store) -> None:
        self._store = store
        self._histories: dict[int, ebbtide.History] = {}

    def write(self, call: Any, i: Any, *leaves: Any) -> Any:
        """The number of the call, which the first state of a call begins."""
        if call == _NEW:
            call = next(_sequence)
            self._histories[call] = self._store.history(f"adjoint-{call}", order="lifo")
        self._histories[int(call)].checkpoint(int(i), [np.asarray(leaf) for leaf in leaves])
        return np.int32(call)

    def read(self, call: Any, i: Any) -> list[Any]:
        history = self._histories.get(int(call))
        if history is None:
            raise errors.Consumed("the states of this forward pass were read already: its backward pass may run once")
        try:
            loan = history.borrow(int(i))
        except errors.TooLarge:  # for the first cache
            return list(history.restore(int(i)))
        states = list(loan.arrays)
        in_host_memory = all(isinstance(state, np.ndarray) for state in states)
        loan.release(keep=not in_host_memory)  # when the last of them is gone: JAX has copied them then
        if not in_host_memory:
            states = list(history.restore(int(i)))
        return states

    def end(self, call: Any) -> None:
        self._histories.pop(int(call)).drop()

    def forget(self) -> None:
        jax.effects_barrier()
        for call in list(self._histories):
            self.end(call)


class _Kind(NamedTuple):
    """What a leaf is: the shape and type that it is stored with, and whether that is weak; of random keys, the generator."""

    shape: tuple[int, ...]
    dtype: Any
    weak: bool
    key: str | None


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Kinds:
    """Of a state's leaves. Known while JAX traces."""

    tree: Any
    leaves: tuple[_Kind, ...]


def _kind_of(leaf: Any) -> _Kind:
    stored = _plain(leaf)
    generator = str(jax.random.key_impl(leaf)) if is_key(leaf) else None
    return _Kind(jnp.shape(stored), _dtype(stored), is_weak(stored), generator)


def _made_of(kind: _Kind, stored: Any) -> Any:
    if kind.weak:
        return weak(stored)
    return stored if kind.key is None else jax.random.wrap_key_data(stored, impl=kind.key)


def _plain(leaf: Any) -> Any:
    """Of random keys, the numbers that they are made of."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf)


def _callback(function: Callable[..., Any], result: Any, *arguments: Any) -> Any:
    return io_callback(function, result, *arguments, ordered=True)


@contextlib.contextmanager
def _refusing_vmap() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "vmap" not in str(error):
            raise
        raise errors.Unsupported(
            "ebbtide.jax.adjoint cannot be mapped by jax.vmap, which would need the states of several runs in one: give the arrays "
            "of the state another axis, or run one after the other (jax.lax.map)"
        ) from error


def _shape(leaf: Any) -> str:
    return f"{_dtype(leaf)}{list(jnp.shape(leaf))}"


def _no_gradient(shape: tuple[int, ...]) -> Any:
    return np.zeros(shape, jax.dtypes.float0)


def _pick(which: list[bool], leaves: list[Any]) -> list[Any]:
    return [leaf for yes, leaf in zip(which, leaves) if yes]


def _merge(which: list[bool], picked: list[Any], others: list[Any]) -> list[Any]:
    taken = iter(picked)
    return [next(taken) if yes else other for yes, other in zip(which, others)]
