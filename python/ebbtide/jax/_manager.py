"""Checkpoints of a run whose state is a pytree, and how it goes on after a crash."""

from __future__ import annotations

import operator
import os
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ebbtide
from ebbtide import errors
from ebbtide._training.keeper import Keeper, OneRank

_SMALLER_THAN_A_BYTE = re.compile(r"u?int[124]$|float[46]_")


class Manager(Keeper):
    """Saves a pytree every so many steps, and resumes from the newest intact checkpoint.

    A save costs a copy of the arrays into memory (on a GPU, in a store on that GPU, a copy there); the rest happens in the
    background.

    directory: a directory for the store, or an open persistent :class:`ebbtide.Store` (opened with ``readonly=True``, for
    :meth:`resume` alone).
    every, keep_last, keep_every, best, name, warm, options: as in :class:`ebbtide.torch.Manager`.

    Raises :class:`ebbtide.InvalidArgument` (an ephemeral store), :class:`ebbtide.Unsupported` (a job of several processes), and
    what :func:`ebbtide.open` raises. For one thread.

    >>> with ebbtide.jax.Manager("run-7", every=10, keep_last=3) as manager:
    ...     first, state = manager.resume(initial())
    ...     for step in range(first, 1000):
    ...         state = train(state)
    ...         manager.step(step, state)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | ebbtide.Store,
        *,
        every: int = 1,
        keep_last: int = 3,
        keep_every: int = 0,
        best: tuple[str, int] | tuple[str, int, str] | None = None,
        name: str = "training",
        warm: bool = False,
        **options: Any,
    ) -> None:
        if jax.process_count() > 1:
            raise errors.Unsupported(
                f"this job has {jax.process_count()} processes: a manager saves the arrays of one; give each process its own "
                "directory, and save only its addressable shards"
            )
        super().__init__(
            directory,
            OneRank(),
            every=every,
            keep_last=keep_last,
            keep_every=keep_every,
            best=best,
            name=name,
            warm=warm,
            **options,
        )

    def resume(self, state: Any, *, at_most: int | None = None) -> tuple[int, Any]:
        """The step to run next, and the newest intact checkpoint; 0 and ``state`` itself if there is none.

        state: a pytree like the one that was saved: its paths, and the shapes and types of its arrays, must be those that were
        saved, and its arrays say on which devices the new ones are. Its leaves may be ``jax.ShapeDtypeStruct``.
        at_most: the newest one not above this step. Newer ones are dropped once the next is durable.

        A damaged checkpoint is skipped with a :class:`ebbtide.DamagedWarning`. Raises :class:`ebbtide.SizeMismatch` naming the
        leaf that differs.
        """
        found = self._newest(at_most, _checked)
        if found is None:
            return 0, state
        step, saved = found
        here = _leaves(state)
        there = dict(zip(saved["paths"], saved["leaves"]))
        for path in there:
            if path not in here:
                raise errors.SizeMismatch(f"state has no leaf {path}, which the checkpoint of step {step} has")
        for path in here:
            if path not in there:
                raise errors.SizeMismatch(f"state{path} is not in the checkpoint of step {step}")
        for path in saved.get("weak", ()):
            there[path] = weak(there[path])
        restored = [
            _like(f"state{path}", leaf, there[path], saved["keys"].get(path), step) for path, leaf in here.items()
        ]
        self._metrics = saved["metrics"]
        return step + 1, jax.tree.unflatten(jax.tree.structure(state), restored)

    def step(self, step: int, state: Any, **metrics: Any) -> ebbtide.Future | None:
        """Save after ``step`` if it is a multiple of ``every``; else do nothing.

        state: a pytree whose leaves are arrays of JAX (random keys too) or NumPy, numbers, text and None. Arrays of several
        devices are gathered in host memory first.
        metrics: that of ``best`` must be among them.
        Returns the future of the checkpoint. Raises as :meth:`ebbtide.History.checkpoint`; a checkpoint that could not be written
        in the background is dropped by the next save with a RuntimeWarning, and an error of :meth:`wait` before that.
        """
        return self.save(step, state, **metrics) if self._is_due(step) else None

    def save(self, step: int, state: Any, **metrics: Any) -> ebbtide.Future:
        """Save after ``step``, whatever ``every`` is: as :meth:`step` otherwise."""
        step = operator.index(step)
        leaves = _leaves(state)
        of_all = self._metrics_with(step, metrics)
        keys = {path: str(jax.random.key_impl(leaf)) for path, leaf in leaves.items() if is_key(leaf)}
        plain = [_plain(f"state{path}", leaf) for path, leaf in leaves.items()]
        saved: dict[str, Any] = {"paths": list(leaves), "leaves": plain, "keys": keys, "metrics": of_all}
        if weakly := [path for path, leaf in leaves.items() if is_weak(leaf)]:
            saved["weak"] = weakly
        return self._write(step, saved, of_all, [f"state{path}" for path in leaves])


def is_key(leaf: Any) -> bool:
    """Whether it is an array of JAX's random keys."""
    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def is_weak(leaf: Any) -> bool:
    """Whether it is an array of JAX whose type gives way to others, as that of ``jnp.asarray(1.0)``."""
    return bool(getattr(leaf, "weak_type", False))


def weak(array: Any) -> Any:
    """The array with a weak type. JAX makes such arrays of Python's numbers alone."""
    made = jnp.full(array.shape, array.dtype.type(0).item())
    return made.at[...].set(array) if made.dtype == array.dtype else array


def _leaves(state: Any) -> dict[str, Any]:
    """By their paths."""
    leaves: dict[str, Any] = {}
    for keys, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        path = jax.tree_util.keystr(keys)
        if path in leaves:
            raise errors.InvalidArgument(f"state{path} is there twice: expected leaves with paths of their own")
        leaves[path] = leaf
    return leaves


def _plain(where: str, leaf: Any) -> Any:
    """The leaf as a store can take it: arrays on several devices, or of elements smaller than a byte, are copied to the host."""
    if is_key(leaf):
        leaf = jax.random.key_data(leaf)
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, str, bool, int, float, complex)):
        raise errors.InvalidArgument(
            f"{where} is of type {type(leaf).__name__!r}: expected an array of JAX or NumPy, a number or text"
        )
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer):
        if leaf.is_deleted():
            raise errors.InvalidArgument(f"{where} was deleted: it was donated to a call; save what that call returned")
        if len(leaf.sharding.device_set) > 1 or _SMALLER_THAN_A_BYTE.match(leaf.dtype.name):
            return np.asarray(leaf)
    return leaf


def _checked(checkpoint: Any) -> dict[str, Any]:
    if not isinstance(checkpoint, dict) or set(checkpoint) - {"weak"} != {"paths", "leaves", "keys", "metrics"}:
        raise errors.InvalidArgument("it was not written by ebbtide.jax: restore() of its history reads it")
    return checkpoint


def _like(where: str, leaf: Any, stored: Any, key: str | None, step: int) -> Any:
    """What was stored, as an array of the kind that ``leaf`` is."""
    if key is not None:
        stored = jax.random.wrap_key_data(jnp.asarray(stored), impl=key)
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct)):
        kind = (leaf.shape, leaf.dtype)
        found = (stored.shape, stored.dtype) if hasattr(stored, "dtype") else ((), type(stored).__name__)
        if kind != found:
            raise errors.SizeMismatch(
                f"{where} is {kind[1]}{list(kind[0])}; in the checkpoint of step {step} it is {found[1]}{list(found[0])}"
            )
        if isinstance(leaf, np.ndarray):
            return np.asarray(stored)
        if isinstance(leaf, np.generic):
            return np.asarray(stored)[()]
        return jax.device_put(stored, leaf.sharding if getattr(leaf, "committed", True) else None)
    if hasattr(stored, "dtype"):
        raise errors.SizeMismatch(
            f"{where} is a {type(leaf).__name__}; the checkpoint of step {step} has an array there"
        )
    return stored
