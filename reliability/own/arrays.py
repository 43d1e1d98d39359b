"""The objects that a program gives to a store: arrays of many kinds, some of which run its code when they are read."""

from __future__ import annotations

import array
import functools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from reliability.own.values import Leaf, leaf_of

PLAIN = ("<f4", "<f8", "|u1", "<i4", "<i8", "<c8", "|b1", "<f2", ">f4", "<M8[s]", "|S7", "<U3")
Hook = Callable[[], None]


@functools.cache
def module(name: str) -> Any:
    """A library that may not be installed; None then."""
    try:
        return __import__(name)
    except ImportError:
        return None


@dataclass
class Thing:
    """One object; `leaf` tells what it holds now, `overwrite` changes all of it (None: it cannot be changed)."""

    kind: str
    object: Any
    leaf: Callable[[], Leaf]
    overwrite: Callable[[int], None] | None = None
    hooked: Hooked | None = None


class Hooked:
    """An array by DLPack that runs the program's code whenever it is converted."""

    def __init__(self, inner: np.ndarray) -> None:
        self.inner, self.hook, self.at, self.calls = inner, None, "__dlpack__", 0

    def _run(self, at: str) -> None:
        if self.hook is not None and at == self.at:
            self.calls += 1
            self.hook()

    def __dlpack_device__(self) -> tuple[int, int]:
        self._run("__dlpack_device__")
        return (1, 0)

    def __dlpack__(self, **more: Any) -> Any:
        self._run("__dlpack__")
        return self.inner.__dlpack__(**more)


def bits(random: Random, shape: tuple[int, ...], dtype: str = "<f4") -> np.ndarray:
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if kind.kind == "b":
        return np.array(np.frombuffer(random.randbytes(count), np.uint8).reshape(shape) % 2 == 0)
    if kind.kind == "U":  # not every number is a character
        letters = (np.frombuffer(random.randbytes(count * 3), np.uint8) % 90 + 33).astype("<u4")
        return letters.view(kind)[:count].reshape(shape).copy()
    return np.frombuffer(random.randbytes(count * kind.itemsize), kind).reshape(shape).copy()


def scribble(target: np.ndarray, salt: int) -> None:
    """Other values everywhere, in place."""
    flat = np.frombuffer(Random(salt).randbytes(max(1, target.nbytes)), np.uint8)[: target.nbytes]
    if target.dtype.kind == "b":
        np.logical_not(target, out=target)
    elif target.dtype.kind == "U":
        target[...] = "zzz"
    elif target.nbytes:
        target[...] = flat.view(target.dtype).reshape(target.shape)


def of_numpy(kind: str, made: np.ndarray) -> Thing:
    return Thing(kind, made, lambda: leaf_of(made), functools.partial(scribble, made) if made.flags.writeable else None)


def shape_of(random: Random, most: int) -> tuple[int, ...]:
    if random.random() < 0.08:
        return random.choice([(), (0,), (3, 0), (1,) * 5, (1,)])
    size = max(1, min(most, int(most ** random.random()) * random.choice([1, 1, 2])))
    return random.choice([(size,), (2, max(1, size // 2)), (max(1, size // 12), 3, 4)])


def make(random: Random, most: int = 1 << 14, kind: str = "") -> Thing:
    """An object that is its bytes and no more; at most about `most` elements."""
    kinds = ["plain"] * 6 + ["gaps", "turned", "hooked", "hooked", "memoryview", "bytes", "bytearray", "array"]
    kinds += ["scalar", "read-only", "structured", "broadcast", "cast"]
    kinds += ["torch", "torch", "torch gaps", "bfloat16", "parameter"] if module("torch") else []
    kind = kind or random.choice(kinds)
    shape = shape_of(random, most)
    if kind in ("torch", "torch gaps", "bfloat16", "parameter"):
        return of_torch(random, kind, shape)
    if kind == "hooked":
        inner = bits(random, shape, random.choice(["<f4", "|u1", "<i8"]))
        if random.random() < 0.3 and inner.ndim == 1:
            inner = inner[::2]
        hooked = Hooked(inner)
        return Thing(kind, hooked, lambda: leaf_of(inner), functools.partial(scribble, inner), hooked)
    if kind in ("memoryview", "bytes", "bytearray", "array", "cast"):
        raw: Any = random.randbytes(8 * max(1, shape[0] if shape else 1))
        raw = raw if kind == "bytes" else array.array("d", raw) if kind == "array" else bytearray(raw)
        made = memoryview(raw) if kind == "memoryview" else memoryview(raw).cast("d") if kind == "cast" else raw

        def overwrite(salt: int) -> None:
            numbers = Random(salt).randbytes(memoryview(raw).nbytes)
            raw[:] = array.array("d", numbers) if kind == "array" else numbers

        return Thing(kind, made, lambda: leaf_of(made), None if kind == "bytes" else overwrite)
    made = bits(random, shape, random.choice(PLAIN))
    if kind == "gaps" and made.ndim:
        return of_numpy(kind, made[..., ::-2] if random.random() < 0.3 else made[..., ::2])
    if kind == "turned":
        return of_numpy(kind, made.T)
    if kind == "scalar" or not isinstance(made, np.ndarray):
        one = np.float64(random.random())
        return Thing(kind, one, lambda: leaf_of(one))
    if kind == "read-only":
        made.flags.writeable = False
    if kind == "structured":
        made = np.zeros(shape, [("a", "<f4"), ("b", "<i8", (2,)), ("c", "S3")])
        made["b"] = random.randrange(1 << 40)
    if kind == "broadcast":
        made = np.broadcast_to(made, (2, *made.shape))
    if kind == "structured":
        return Thing(kind, made, lambda: leaf_of(made), lambda salt: made["b"].fill(salt))
    return of_numpy(kind, made)


def of_torch(random: Random, kind: str, shape: tuple[int, ...]) -> Thing:
    torch = module("torch")
    tensor = torch.from_numpy(bits(random, shape, random.choice(["<f4", "<f8", "<i4"])))
    if kind == "bfloat16":
        tensor = torch.from_numpy(bits(random, shape, "<i2")).view(torch.bfloat16)
    if kind == "torch gaps" and tensor.ndim:
        tensor = tensor[..., ::2]
    if kind == "parameter":
        tensor = torch.nn.Parameter(tensor.float(), requires_grad=False)

    def overwrite(salt: int) -> None:
        with torch.no_grad():
            tensor.copy_(torch.full((), float(salt % 100)))

    return Thing(kind, tensor, lambda: leaf_of(tensor), overwrite)


@dataclass
class Bundle:
    """What a call is given: one thing, or one container of several."""

    structure: str
    keys: list[Any]
    things: list[Thing]
    object: Any

    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(thing.leaf() for thing in self.things)

    def overwrite(self, salt: int) -> None:
        for number, thing in enumerate(self.things):
            if thing.overwrite:
                thing.overwrite(salt + number)

    def hooked(self) -> list[Hooked]:
        return [thing.hooked for thing in self.things if thing.hooked]


def bundled(structure: str, keys: list[Any], things: list[Thing]) -> Bundle:
    objects = [thing.object for thing in things]
    given: Any = objects[0] if structure == "single" else objects
    if structure == "tuple":
        given = tuple(objects)
    if structure == "dict":
        given = dict(zip(keys, objects))
    return Bundle(structure, keys if structure == "dict" else [], things, given)


def bundle(random: Random, most: int = 1 << 14, hooked: bool = False) -> Bundle:
    """`hooked`: at least one of them runs code, and it is a list or a dict, which that code may change."""
    structure = random.choice(["list", "dict"] if hooked else ["single", "single", "list", "tuple", "dict", "dict"])
    count = 1 if structure == "single" else random.choice([1, 2, 3, 3, 5, 8, 40 if most < 4096 else 6])
    things = [make(random, most // count + 1) for _ in range(count)]
    if hooked:
        things[random.randrange(count)] = make(random, most // count + 1, "hooked")
    words = random.random() < 0.7
    keys = [f"k{number}" if words else number * 7 - 3 for number in range(count)]
    return bundled(structure, keys, things)
