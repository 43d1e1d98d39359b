"""What a checkpoint must give back, as plain values that any process can compare."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Leaf = tuple[str, tuple[int, ...], bytes]  # element type, shape, bytes in C order


@dataclass(frozen=True)
class Value:
    """One array, or one list, tuple or dict of them."""

    structure: str  # "single", "list", "tuple", "dict"
    keys: tuple[Any, ...]
    leaves: tuple[Leaf, ...]


@dataclass
class Entry:
    """One version of a history. `allowed`: it holds one of these."""

    allowed: list[Value]
    mixed: bool = False  # each byte may be from any of `allowed`: they changed while they were copied
    maybe: bool = False  # it may be there or not
    reported: bool = False  # at the store's own level
    hurt: bool = False  # it was reported before the trial hurt the store's files


@dataclass
class Model:
    """All that the store must hold, by (history, version)."""

    entries: dict[tuple[str, int], Entry] = field(default_factory=dict)
    past: dict[tuple[str, int], list[Value]] = field(default_factory=dict)  # what they held before
    keep_last: int = 0
    keep_every: int = 0

    def of(self, history: str) -> dict[int, Entry]:
        return {version: entry for (name, version), entry in sorted(self.entries.items()) if name == history}

    def retained(self, history: str) -> set[int]:
        """Those that must stay, whatever retention does."""
        known = list(self.of(history))
        if not self.keep_last:
            return set(known)
        stays = {version for version in known if self.keep_every and version % self.keep_every == 0}
        stays |= set(known[-self.keep_last :])
        newest = -1  # write of a version that is newer
        order = {version: number for number, (name, version) in enumerate(self.entries) if name == history}
        for version in reversed(known):
            if order[version] > newest:  # nothing that is newer was written after it
                stays.add(version)
            newest = max(newest, order[version])
        return stays


def leaf_of(array: Any) -> Leaf:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        plain = array.detach().clone(memory_format=torch.contiguous_format)
        raw = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        text = str(plain.dtype)
        try:
            text = torch.empty(0, dtype=plain.dtype).numpy().dtype.str
        except TypeError:
            pass  # bfloat16 and its like keep torch's name
        return text, tuple(plain.shape), raw
    if not isinstance(array, np.ndarray):
        array = np.asarray(array if hasattr(array, "__array__") else memoryview(array))
    return text_of(array.dtype), tuple(array.shape), array.tobytes()


def text_of(dtype: np.dtype) -> str:
    name = dtype.name if dtype.names is None else str(np.lib.format.dtype_to_descr(dtype))
    return "torch.bfloat16" if name == "bfloat16" else dtype.str if dtype.kind in "biufcmMSU" else name


def value_of(found: Any) -> Value:
    if isinstance(found, dict):
        return Value("dict", tuple(found), tuple(leaf_of(one) for one in found.values()))
    if isinstance(found, (list, tuple)):
        return Value("list" if isinstance(found, list) else "tuple", (), tuple(map(leaf_of, found)))
    return Value("single", (), (leaf_of(found),))


def wrong(entry: Entry, found: Value) -> str:
    """What is wrong with what a restore gave; empty if nothing is."""
    shapes = [(one.structure, one.keys, [leaf[:2] for leaf in one.leaves]) for one in entry.allowed]
    if (found.structure, found.keys, [leaf[:2] for leaf in found.leaves]) not in shapes:
        return f"{shown(found)} in place of {shown(entry.allowed[0])}"
    if found in entry.allowed:
        return ""
    for number, leaf in enumerate(found.leaves):
        raws = [one.leaves[number][2] for one in entry.allowed if len(one.leaves) > number]
        if leaf[2] in raws:
            continue
        got = np.frombuffer(leaf[2], np.uint8)
        fits = np.zeros(got.size, bool)
        for raw in raws if entry.mixed else raws[:1]:
            if len(raw) == got.size:
                fits |= got == np.frombuffer(raw, np.uint8)
        if not fits.all():
            return f"array {number}: {int(np.sum(~fits))} wrong bytes of {got.size}"
    return "" if entry.mixed else "its arrays are from different moments"


def shown(value: Value) -> str:
    arrays = ", ".join(f"{leaf[0]}{leaf[1]}" for leaf in value.leaves[:4])
    keys = f" of {list(value.keys)[:4]}" if value.keys else ""
    return f"a {value.structure}{keys} ({arrays})"
