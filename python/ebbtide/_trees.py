"""Trees of arrays and values: taken apart for a checkpoint, and built again.

The arrays become the checkpoint's regions, in the order in which they are met; everything else becomes JSON, the *text*, which
the metadata keeps. None, bool, str, ints of 64 bits and finite floats are JSON's own; all else is a list that begins with its tag:

``["a"]`` the next array; ``["l", ...]`` list, ``["t", ...]`` tuple; ``["d", key, value, ...]`` dict, ``["o", ...]``
collections.OrderedDict, ``["n", ...]`` collections.Counter; ``["i", hex]`` a longer int; ``["f", hex]`` the 64 bits of a float
that is not finite; ``["c", real, imaginary]`` complex; ``["b", base64]`` bytes.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from ebbtide.errors import InvalidArgument, SizeMismatch, Unsupported

DEEPEST = 100
"""The most lists, tuples and dicts within one another."""

MOST_TEXT = (1 << 30) - (1 << 26)
"""Bytes of all that is no array; the header of a record has no room for more."""

_SEQUENCES: dict[type, str] = {list: "l", tuple: "t"}
_MAPPINGS: dict[type, str] = {dict: "d", OrderedDict: "o", Counter: "n"}
_NAMES = {"l": "a list", "t": "a tuple", "d": "a dict", "o": "an OrderedDict", "n": "a Counter", "a": "an array"}
_INFINITE = float("inf")


class Taken:
    """What a tree is made of. A subclass says in :meth:`other` what becomes of objects that are no containers or values."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.where: list[str] = []
        """The path of each array, for messages."""
        self._around: dict[int, str] = {}  # the containers that are being taken, and where they are

    def node(self, thing: Any, where: str) -> Any:
        """``thing`` as JSON. Raises :class:`ebbtide.InvalidArgument` with the path of what cannot be stored."""
        kind = type(thing)
        if kind in _SEQUENCES or kind in _MAPPINGS:
            return self._container(thing, kind, where)
        value = _value(thing, kind)
        return self.other(thing, where) if value is None and thing is not None else value

    def other(self, thing: Any, where: str) -> Any:
        if isinstance(thing, (dict, list, tuple)):
            raise InvalidArgument(
                f"{where} is a {_name(thing)}, which would come back as another type: expected dict, list, tuple, "
                "collections.OrderedDict or collections.Counter themselves"
            )
        self.arrays.append(thing)
        self.where.append(where)
        return ["a"]

    def _container(self, thing: Any, kind: type, where: str) -> list[Any]:
        if id(thing) in self._around:
            raise InvalidArgument(f"{where} is {self._around[id(thing)]} itself: a tree cannot contain itself")
        if len(self._around) == DEEPEST:
            raise InvalidArgument(
                f"{where} is nested too deep: at most {DEEPEST} lists, tuples and dicts may be in one another"
            )
        self._around[id(thing)] = where
        made: list[Any]
        if kind in _SEQUENCES:
            made = [_SEQUENCES[kind]]
            for i, item in enumerate(thing):
                made.append(self.node(item, f"{where}[{i}]"))
        else:
            made = [_MAPPINGS[kind]]
            for key, item in thing.items():
                place = f"{where}[{_shown(key)}]"
                made.append(_key(key, place))
                made.append(self.node(item, place))
        del self._around[id(thing)]
        return made


class Built:
    """Builds what :class:`Taken` took apart; ``arrays`` are the arrays, in order."""

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays: Iterator[Any] = iter(arrays)

    def thing(self, node: Any) -> Any:
        if not isinstance(node, list):
            return node
        tag, parts = node[0], node[1:]
        if tag == "l":
            return [self.thing(part) for part in parts]
        if tag == "t":
            return tuple(self.thing(part) for part in parts)
        if tag in ("d", "o", "n"):
            pairs = ((self.thing(parts[i]), self.thing(parts[i + 1])) for i in range(0, len(parts), 2))
            if tag == "n":
                return Counter(dict(pairs))
            return dict(pairs) if tag == "d" else OrderedDict(pairs)
        if tag == "i":
            return int(parts[0], 16)
        if tag == "f":
            return struct.unpack(">d", bytes.fromhex(parts[0]))[0]
        if tag == "c":
            return complex(self.thing(parts[0]), self.thing(parts[1]))
        if tag == "b":
            return base64.b64decode(parts[0])
        return self.other(tag, parts)

    def other(self, tag: str, parts: list[Any]) -> Any:
        if tag != "a":
            raise ValueError(f"unknown tag {tag!r}")
        return next(self.arrays)


def to_text(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"))


def of_text(text: str) -> Any:
    return json.loads(text)


def taken_apart(tree: Any, name: str) -> tuple[str, list[Any], list[str]]:
    """The text of a tree, its arrays, and where they are, in a call whose argument is called ``name``."""
    taken = Taken()
    node = taken.node(tree, name)
    text = to_text(node)
    check_text(text, {name: node})
    return text, taken.arrays, taken.where


def check_text(text: str, parts: dict[str, Any]) -> None:
    """Raises :class:`ebbtide.InvalidArgument` if ``text`` is too long, with the path of what most of it is in ``parts``."""
    if len(text) <= MOST_TEXT:
        return
    where, size = "the checkpoint", len(text)
    while parts:
        sizes = {place: len(to_text(node)) for place, node in parts.items()}
        most = max(sizes, key=sizes.__getitem__)
        if 2 * sizes[most] < len(text):
            break
        where, size, parts = most, sizes[most], _parts(parts[most], most)
    raise InvalidArgument(
        f"{where} has {size} bytes of text beside its arrays, and {len(text)} bytes are too many for a checkpoint: expected at most "
        f"{MOST_TEXT}; give long text and large lists of numbers as arrays (numpy.frombuffer(text.encode(), numpy.uint8))"
    )


def _parts(node: Any, where: str) -> dict[str, Any]:
    """What a container's node has, by path."""
    tag = node[0] if isinstance(node, list) else ""
    if tag in ("l", "t"):
        return {f"{where}[{i}]": part for i, part in enumerate(node[1:])}
    if tag not in ("d", "o", "n"):
        return {}
    keys = Built([])
    return {f"{where}[{_shown(keys.thing(node[i]))}]": node[i + 1] for i in range(1, len(node), 2)}


def built(text: str, arrays: list[Any]) -> Any:
    """The tree of ``text`` with these arrays."""
    try:
        return Built(arrays).thing(of_text(text))
    except (ValueError, TypeError, LookupError, StopIteration, RecursionError, RuntimeError, struct.error) as error:
        raise Unsupported(f"this tree was written by another release of ebbtide ({error}): install that") from error


def places(text: str, out: Any, version: int) -> tuple[list[Any], list[str]]:
    """The arrays of ``out`` in the order of the tree of ``text``, and where they are; refuses another structure by path.

    Values count for nothing: where the tree has one, ``out`` may have another.
    """
    arrays: list[Any] = []
    where: list[str] = []

    def refuse(place: str, given: str, stored: str) -> None:
        raise SizeMismatch(f"{place} is {given}; version {version} has {stored} there")

    def match(node: Any, thing: Any, place: str) -> None:
        tag = node[0] if isinstance(node, list) else ""
        kind = type(thing)
        given = _SEQUENCES.get(kind) or _MAPPINGS.get(kind) or ("" if is_value(thing) else "a")
        stored = tag if tag in _NAMES else ""
        if given != stored and not {given, stored} <= {"l", "t"} and not {given, stored} <= {"d", "o", "n"}:
            refuse(place, _NAMES.get(given, f"a value ({_name(thing)})"), _NAMES.get(stored, "a value"))
        if stored == "a":
            arrays.append(thing)
            where.append(place)
        elif stored in ("l", "t"):
            if len(thing) != len(node) - 1:
                refuse(place, f"of {len(thing)} items", f"{len(node) - 1}")
            for i, item in enumerate(thing):
                match(node[i + 1], item, f"{place}[{i}]")
        elif stored:
            keys = Built([])
            names = [keys.thing(node[i]) for i in range(1, len(node), 2)]
            there = {_findable(name): name for name in thing}
            stored_keys = {_findable(name) for name in names}
            for name in names:
                if _findable(name) not in there:
                    raise SizeMismatch(f"{place} has no key {_shown(name)}, which version {version} has there")
            for name in thing:
                if _findable(name) not in stored_keys:
                    raise SizeMismatch(f"{place} has the key {_shown(name)}, which version {version} does not have")
            if not len(thing) == len(there) == len(names):
                raise SizeMismatch(f"{place} has several keys that are NaN, which cannot be told apart: expected one")
            for i, name in enumerate(names):
                match(node[2 * i + 2], thing[there[_findable(name)]], f"{place}[{_shown(name)}]")

    match(of_text(text), out, "out")
    return arrays, where


def value_node(thing: Any) -> Any:
    """A value as JSON."""
    return _value(thing, type(thing))


def _value(thing: Any, kind: type) -> Any:
    """A value as JSON, None for None, and for what is no value."""
    if kind is str or kind is bool:
        return thing
    if kind is int:
        return thing if -(1 << 63) <= thing < 1 << 63 else ["i", format(thing, "x")]
    if kind is float:
        return thing if -_INFINITE < thing < _INFINITE else ["f", struct.pack(">d", thing).hex()]
    if kind is complex:
        return ["c", _value(thing.real, float), _value(thing.imag, float)]
    return None


def is_value(thing: Any) -> bool:
    return thing is None or type(thing) in (str, bool, int, float, complex)


def _findable(key: Any) -> Any:
    """Equal for equal keys, and for NaN, which does not equal itself."""
    return key if key == key else (type(key), "NaN")


def _key(key: Any, where: str) -> Any:
    """A dict's key as JSON."""
    kind = type(key)
    if kind is bytes:
        return bytes_node(key)
    if kind is tuple:
        return ["t", *(_key(part, where) for part in key)]
    value = _value(key, kind)
    if value is None and key is not None:
        raise InvalidArgument(
            f"{where}: its key is a {_name(key)}; expected str, int, float, bool, complex, bytes, None, or a tuple of those"
        )
    return value


def bytes_node(data: bytes) -> list[str]:
    return ["b", base64.b64encode(data).decode("ascii")]


def _name(thing: Any) -> str:
    kind = type(thing)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _shown(key: Any) -> str:
    if type(key) is int and key.bit_length() > 512:  # Python refuses to convert very long ones
        return f"an int of {key.bit_length()} bits"
    text = repr(key)
    return text if len(text) <= 200 else text[:200] + "..."
