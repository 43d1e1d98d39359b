"""A state that is described once, and compared at each save after that.

What a save looks at again is all that may change: of each tensor its type, memory, place, shape, strides and flags; of each
container its type and its keys, in order; and each value. Whatever differs in anything but a value is described anew. No
tensor is held from one save to the next.
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from ebbtide import _trees
from ebbtide.torch import _state

_PATIENCE = 2
"""A part that differs so many times, and is never found the same in between, is described at each save from then on."""

_SEQUENCES = {list: "l", tuple: "t"}
_MAPPINGS = {dict: "d", OrderedDict: "o", Counter: "n"}


class _Differs(Exception):
    """The description does not serve any more."""


class Described:
    """Makes the checkpoints of states that are like the one before: as :func:`ebbtide.torch._state.dump`. For one thread."""

    def __init__(self) -> None:
        self._plans: dict[str, _Plan] = {}  # by part
        self._misses: Counter[str] = Counter()
        self._storages: list[_Memory] = []  # of these parts
        self._identities: frozenset[int] = frozenset()
        self._where: list[str] = []  # their paths, and
        self._listed = ""  # their numbers, if each is one tensor and an array
        self._on_gpu = False

    def dump(
        self,
        parts: dict[str, Any],
        *,
        may_pickle: bool = False,
        bytes_of: Callable[[_state.Storage], Any] = _state.Storage.array,
    ) -> tuple[dict[str, Any], list[str]]:
        try:
            return self._again(parts, may_pickle, bytes_of)
        except (_Differs, _state.Shared):
            return self._anew(parts, may_pickle, bytes_of)

    def _again(
        self, parts: dict[str, Any], may_pickle: bool, bytes_of: Callable[[_state.Storage], Any]
    ) -> tuple[dict[str, Any], list[str]]:
        if not self._plans or not self._plans.keys() <= parts.keys() or torch.autograd.forward_ad._current_level >= 0:
            raise _Differs
        tensors: list[Any] = [None] * len(self._storages)  # the one of each storage that has one
        differ = False
        for name, plan in self._plans.items():
            try:
                plan.again(parts[name], tensors)
                self._misses[name] = 0
            except (
                _Differs,
                RuntimeError,
                NotImplementedError,
                AttributeError,
            ):  # of what is no tensor, or has no memory
                self._misses[name] += 1
                differ = True
        if differ:
            raise _Differs
        taken = _state.Taken(may_pickle, len(self._storages), self._identities)
        nodes = {name: taken.node(part, name) for name, part in parts.items() if name not in self._plans}
        if taken.on_gpu() and not self._on_gpu:
            raise _Differs
        if self._listed and bytes_of is _state.Storage.array:
            listed, arrays, leaves = self._listed, tensors, self._where.copy()
        else:
            listed, arrays, leaves = self._list(tensors, bytes_of)
        rest = taken.finish(bytes_of, _state.inline(self._on_gpu), arrays, leaves)
        listed = ",".join(filter(None, (listed, _trees.to_text(rest)[1:-1])))
        return self._checkpoint(parts, nodes, listed, arrays), leaves

    def _list(self, tensors: list[Any], bytes_of: Callable[[_state.Storage], Any]) -> tuple[str, list[Any], list[str]]:
        listed: list[int | str] = []
        arrays: list[Any] = []
        leaves: list[str] = []
        for memory, tensor in zip(self._storages, tensors):
            storage = memory.storage(tensor)
            if memory.as_text:
                listed.append(storage.text())
            else:
                listed.append(len(arrays))
                arrays.append(bytes_of(storage))
                leaves.append(memory.where)
        return _trees.to_text(listed)[1:-1], arrays, leaves

    def _anew(
        self, parts: dict[str, Any], may_pickle: bool, bytes_of: Callable[[_state.Storage], Any]
    ) -> tuple[dict[str, Any], list[str]]:
        known = [name for name, part in parts.items() if self._misses[name] < _PATIENCE and _can_be_known(part)]
        self._plans, self._storages, self._listed = {}, [], ""
        taken = _state.Taken(may_pickle)
        nodes = {name: taken.node(parts[name], name) for name in known}
        count = len(taken.storages)
        nodes |= {name: taken.node(part, name) for name, part in parts.items() if name not in nodes}
        arrays: list[Any] = []
        leaves: list[str] = []
        self._on_gpu = taken.on_gpu()
        listed = taken.finish(bytes_of, _state.inline(self._on_gpu), arrays, leaves)
        storages = taken.storages[:count]
        self._storages = [_Memory(storage, where) for storage, where in zip(storages, listed)]
        self._identities = frozenset(memory.identity for memory in self._storages)
        if all(storage.tensor is not None for storage in storages) and all(type(one) is int for one in listed[:count]):
            self._listed, self._where = _trees.to_text(listed[:count])[1:-1], leaves[:count]
        self._plans = {name: _plan(parts[name], nodes[name], storages) for name in known}
        rest = {name: node for name, node in nodes.items() if name not in self._plans}
        return self._checkpoint(parts, rest, _trees.to_text(listed)[1:-1], arrays), leaves

    def _checkpoint(
        self, parts: dict[str, Any], rest: dict[str, Any], listed: str, arrays: list[Any]
    ) -> dict[str, Any]:
        texts = [
            f"{_trees.to_text(name)}:{self._plans[name].text if name in self._plans else _trees.to_text(rest[name])}"
            for name in parts
        ]
        text = f'{{"parts":{{{",".join(texts)}}},"storages":[{listed}]}}'
        if len(text) > _trees.MOST_TEXT:
            _trees.check_text(text, _trees.of_text(text)["parts"])
        return {"state": text, "arrays": arrays}


class _Memory:
    """A storage of the last description."""

    __slots__ = ("memory", "identity", "where", "start", "end", "as_text")

    def __init__(self, storage: _state.Storage, listed: int | str) -> None:
        self.memory = weakref.ref(storage.of)
        self.identity, self.where, self.start, self.end = storage.of._cdata, storage.where, storage.start, storage.end
        self.as_text = isinstance(listed, str)

    def storage(self, tensor: Any) -> _state.Storage:
        return _state.Storage(self.memory(), self.where, self.start, self.end, tensor)


class _Tensor:
    __slots__ = (
        "kind",
        "memory",
        "bytes",
        "dtype",
        "shape",
        "strides",
        "offset",
        "wants_grad",
        "named",
        "alone",
        "text",
    )

    def __init__(self, tensor: torch.Tensor, node: list[Any], storage: _state.Storage) -> None:
        memory: Any = tensor.untyped_storage()  # PyTorch keeps this object as long as the memory
        self.kind, self.memory, self.bytes = type(tensor), weakref.ref(memory), memory.nbytes()
        self.dtype, self.shape, self.strides = tensor.dtype, tensor.shape, tensor.stride()
        self.offset, self.wants_grad = tensor.storage_offset(), tensor.requires_grad
        self.alone = node[1] if storage.tensor is not None else -1
        self.text = _trees.to_text(node)

    def again(self, tensor: Any, tensors: list[Any]) -> bool:
        memory: Any = tensor.untyped_storage()
        if (
            type(tensor) is not self.kind
            or memory.nbytes() != self.bytes
            or memory is not self.memory()
            or tensor.dtype is not self.dtype
            or tensor.shape != self.shape
            or tensor.stride() != self.strides
            or tensor.storage_offset() != self.offset
            or tensor.requires_grad is not self.wants_grad
            or tensor.is_neg()
            or tensor.is_conj()
            or (_state.HAS_NAMES and tensor.has_names())
        ):
            raise _Differs
        if self.alone >= 0:
            tensors[self.alone] = tensor
        return False


class _Value:
    """A number, text or None, which may become another; or bytes, a type or a device, which may not."""

    __slots__ = ("value", "text")

    def __init__(self, value: Any, node: Any) -> None:
        self.value, self.text = value, _trees.to_text(node)

    def again(self, value: Any, _tensors: list[Any]) -> bool:
        if value is self.value:
            return False
        if not _trees.is_value(value) or (type(value) is str and len(value) > _state.SMALL):
            if type(value) is type(self.value) and type(value) in _CONSTANTS and value == self.value:
                return False
            raise _Differs
        self.value, text = value, _trees.to_text(_trees.value_node(value))
        changed, self.text = text != self.text, text
        return changed


class _Container:
    __slots__ = ("kind", "keys", "kinds", "plans", "metadata", "begins", "text")
    text: str

    def __init__(self, thing: Any, node: list[Any], storages: list[_state.Storage]) -> None:
        self.kind = type(thing)
        self.metadata: _Plan | None = None
        if node[0] == "m":
            self.metadata = _plan(thing._metadata, node[2], storages)
            node = node[1]
        tag = _trees.to_text(node[0])
        self.begins: list[str]  # of each item's text
        if self.kind in _MAPPINGS:
            self.keys: list[Any] | None = list(thing)
            self.kinds = None if all(type(key) is str for key in thing) else [type(key) for key in thing]
            self.plans = [_plan(item, one, storages) for item, one in zip(thing.values(), node[2::2])]
            self.begins = [f",{_trees.to_text(key)}," for key in node[1::2]]
        else:
            self.keys = self.kinds = None
            self.plans = [_plan(item, one, storages) for item, one in zip(thing, node[1:])]
            self.begins = [","] * len(thing)
        self.begins.insert(0, f"[{tag}")
        self._write()

    def _write(self) -> None:
        items = [part for begin, plan in zip(self.begins[1:], self.plans) for part in (begin, plan.text)]
        self.text = "".join((self.begins[0], *items, "]"))
        if self.metadata is not None:
            self.text = f'["m",{self.text},{self.metadata.text}]'

    def again(self, thing: Any, tensors: list[Any]) -> bool:
        if type(thing) is not self.kind:
            raise _Differs
        changed = False
        if self.keys is not None:
            if list(thing) != self.keys or (self.kinds is not None and [type(key) for key in thing] != self.kinds):
                raise _Differs
            for plan, item in zip(self.plans, thing.values()):
                if plan.again(item, tensors):
                    changed = True
        else:
            if len(thing) != len(self.plans):
                raise _Differs
            for plan, item in zip(self.plans, thing):
                if plan.again(item, tensors):
                    changed = True
        if self.kind is OrderedDict:
            metadata = getattr(thing, "_metadata", None)
            if (metadata is None) is not (self.metadata is None):
                raise _Differs
            if self.metadata is not None and self.metadata.again(metadata, tensors):
                changed = True
        if changed:
            self._write()
        return changed


_Plan: TypeAlias = _Tensor | _Value | _Container
_CONSTANTS = (bytes, torch.dtype, torch.device)


def _plan(thing: Any, node: Any, storages: list[_state.Storage]) -> _Plan:
    if isinstance(thing, torch.Tensor):
        return _Tensor(thing, node, storages[node[1]])
    if type(thing) in _SEQUENCES or type(thing) in _MAPPINGS:
        return _Container(thing, node, storages)
    return _Value(thing, node)


def _can_be_known(thing: Any, depth: int = 0) -> bool:
    """Whether a plan can see each change of it."""
    kind = type(thing)
    if kind in _SEQUENCES:
        return depth < _trees.DEEPEST and all(_can_be_known(item, depth + 1) for item in thing)
    if kind in _MAPPINGS:
        return (
            depth < _trees.DEEPEST
            and all(type(key) in (str, int, bool) for key in thing)
            and all(_can_be_known(item, depth + 1) for item in thing.values())
            and _can_be_known(getattr(thing, "_metadata", None), depth + 1)
        )
    if isinstance(thing, torch.Tensor):
        return thing.layout is torch.strided and not thing.is_neg() and not thing.is_conj()
    if kind in (str, bytes):
        return len(thing) <= _state.SMALL
    return _trees.is_value(thing) or kind in _CONSTANTS
