"""Trees of arrays and values: what a checkpoint was given comes back, with type and value."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter, OrderedDict, namedtuple
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ebbtide
from ebbtide import _trees

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.complex_numbers(allow_nan=True)
    | st.text()
)
KEYS = VALUES | st.binary(max_size=4) | st.tuples(st.integers(), st.text(max_size=3))
ARRAYS = st.builds(
    lambda n, kind: np.arange(n).astype(kind), st.integers(0, 9), st.sampled_from(["<i4", "<f8", ">u2", "|b1"])
)


def trees(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        VALUES | ARRAYS,
        lambda inner: st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(keys, st.integers(), max_size=3).map(Counter),
        max_leaves=12,
    )


TREES = trees(KEYS)
TREES_OF_ONE_NAN = trees(KEYS.map(lambda key: key if key == key else math.nan))  # several in a dictionary are refused


def same(a: Any, b: Any) -> bool:
    """Equal with type, order and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(k, j) and same(v, w) for (k, v), (j, w) in zip(a.items(), b.items()))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    return bool(a == b)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_every_tree_comes_back(store: ebbtide.Store, tree: Any) -> None:
    store.checkpoint(0, [tree])
    with store.borrow(0, keep=True) as lent:
        assert same(lent, [tree])
        del lent
    assert same(store.restore(0), [tree])
    store.drop()


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES_OF_ONE_NAN)
def test_out_takes_the_arrays_and_leaves_the_rest(store: ebbtide.Store, tree: Any) -> None:
    store.checkpoint(0, {"tree": tree, "n": 1})
    blank: list[np.ndarray] = []

    def emptied(node: Any) -> Any:
        if isinstance(node, np.ndarray):
            blank.append(np.zeros_like(node))
            return blank[-1]
        if isinstance(node, dict):
            return {key: emptied(node[key]) for key in reversed(node)}  # the order of keys has no meaning
        if isinstance(node, (list, tuple)):
            return [emptied(item) for item in node]  # a list may stand for a tuple
        return None

    out = {"tree": emptied(tree), "n": "anything"}
    back = store.restore(0, out=out)
    assert same(back["tree"], tree) and back["n"] == 1 and out["n"] == "anything"

    def arrays(node: Any) -> set[int]:
        if isinstance(node, np.ndarray):
            return {id(node)}
        parts = node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ()
        return set().union(*map(arrays, parts))

    assert arrays(back) == {id(array) for array in blank}


def test_keys_that_cannot_be_told_apart_are_refused_where_out_has_to_match(store: ebbtide.Store) -> None:
    zeros = np.zeros(4)
    two = {float("nan"): zeros, float("nan"): zeros.copy()}
    store.checkpoint(0, two)
    for out in (two, {math.nan: zeros}):
        with pytest.raises(ebbtide.SizeMismatch, match="several keys that are NaN"):
            store.restore(0, out=out)
    assert len(store.restore(0)) == 2


def test_a_flat_list_or_dict_is_written_as_0_1_0_wrote_it(disk: Path) -> None:
    a = np.arange(3)
    with ebbtide.open(disk / "kept", durability="process") as store:
        for version, arrays in enumerate((a, [a, a], (a,), {"p": a, 7: a}, [], {})):
            store.checkpoint(version, arrays)
        store.checkpoint(99, {"p": a, "n": None})
    seen = ebbtide._core.Inspection.of(disk / "kept")
    layouts = [ebbtide._core.RecordReader(seen, i).describe()["metadata"][:2] for i, _ in enumerate(seen.records())]
    assert layouts == [b"\xeb\x01"] * 6 + [b"\xeb\x02"]
    with ebbtide.open(disk / "kept", durability="process") as store:
        assert same(store.restore(99), {"p": a, "n": None})


class Colour(IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


def cycle() -> Any:
    tree: dict[str, Any] = {"a": [1, {}]}
    tree["a"][1]["b"] = tree["a"]
    return tree


def deep(levels: int) -> Any:
    tree: Any = 1
    for _ in range(levels):
        tree = [tree]
    return tree


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"a": [1, {"b": object()}]}, r"^arrays\['a'\]\[1\]\['b'\] is of type 'object'"),
        ({"a": [Colour.RED]}, r"^arrays\['a'\]\[0\] is of type 'test_trees.Colour'"),
        ({"a": [{1}]}, r"^arrays\['a'\]\[0\] is of type 'set'"),
        ([[Point(1, 2)]], r"^arrays\[0\]\[0\] is a .*Point, which would come back as another type"),
        ({"a": {frozenset(): 1}}, r"^arrays\['a'\]\[frozenset\(\)\]: its key is a frozenset"),
        ([[np.array([object()])]], r"^arrays\[0\]\[0\] holds Python objects"),
        (cycle(), r"^arrays\['a'\]\[1\]\['b'\] is arrays\['a'\] itself"),
        (deep(101), r"nested too deep: at most 100"),
        (None, "^arrays is of type 'NoneType'"),
        (3, "^arrays is of type 'int'"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_path(store: ebbtide.Store, tree: Any, words: str) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=words):
        store.checkpoint(0, tree)
    assert store.versions() == []


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"a": [1, {"b": "x" * 6000}], "c": "y" * 900}, "arrays['a'][1]['b']"),
        ([np.zeros(3), "\u0451" * 900], "arrays[1]"),
        ({"a": [list(range(2000)), list(range(2000))]}, "arrays['a']"),
        ({"k" * 6000: 1}, "arrays"),
        ([1 << 40_000], "arrays[0]"),
    ],
)
def test_more_text_than_a_checkpoint_has_room_for_is_refused_by_its_path(
    store: ebbtide.Store, monkeypatch: pytest.MonkeyPatch, tree: Any, path: str
) -> None:
    monkeypatch.setattr(_trees, "MOST_TEXT", 5000)
    with pytest.raises(ebbtide.InvalidArgument, match=rf"^{re.escape(path)} has \d+ bytes of text .* at most 5000"):
        store.checkpoint(0, tree)
    assert store.versions() == []
    store.checkpoint(1, {"a": "x" * 4900})


def test_the_deepest_tree_and_one_part_in_two_places(store: ebbtide.Store) -> None:
    part = [1]
    store.checkpoint(0, [part, part])  # not a cycle
    store.checkpoint(1, deep(100))
    assert store.restore(0) == [[1], [1]] and store.restore(1) == deep(100)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ({"a": [np.zeros(3), 1]}, r"^out has no key 'b', which version 0 has there"),
        ({"a": [np.zeros(3), 1], "b": {}, "c": 1}, r"^out has the key 'c', which version 0 does not have"),
        ({"a": [np.zeros(3)], "b": {"x": np.zeros(2)}}, r"^out\['a'\] is of 1 items; version 0 has 2 there"),
        ({"a": [1, 1], "b": {"x": np.zeros(2)}}, r"^out\['a'\]\[0\] is a value \(int\); version 0 has an array there"),
        ({"a": {}, "b": {"x": np.zeros(2)}}, r"^out\['a'\] is a dict; version 0 has a list there"),
        (
            {"a": [np.zeros(4), 1], "b": {"x": np.zeros(2)}},
            r"^out\['a'\]\[0\] is \(4,\) of float64; version 0 has \(3,\)",
        ),
        (
            {"a": [np.zeros(3), 1], "b": {"x": np.zeros(2, "f4")}},
            r"^out\['b'\]\['x'\] is \(2,\) of float32; version 0 has",
        ),
        (np.zeros(3), r"^out is an array; version 0 has a dict there"),
    ],
)
def test_out_of_another_structure_names_the_place(store: ebbtide.Store, out: Any, words: str) -> None:
    store.checkpoint(0, {"a": [np.zeros(3), 1], "b": {"x": np.zeros(2)}})
    with pytest.raises(ebbtide.SizeMismatch, match=words):
        store.restore(0, out=out)
    store.restore(0)


def test_a_tree_is_no_out_for_what_is_flat(store: ebbtide.Store) -> None:
    store.checkpoint(0, [np.zeros(3), np.zeros(3)])
    with pytest.raises(ebbtide.InvalidArgument, match=r"^out\[1\] is a list: .*not nested"):
        store.restore(0, out=[np.zeros(3), [np.zeros(3)]])


def test_what_is_protected_is_flat(store: ebbtide.Store) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=r"^arrays\['a'\] is a list: .*not nested"):
        store.protect({"a": [np.zeros(3)]})


def test_a_text_of_another_release_is_refused() -> None:
    for text in ('["z"]', '["a"]', "[", '["d",1]', "[" * 5000):
        with pytest.raises(ebbtide.Unsupported, match="written by another release"):
            _trees.built(text, [])
    assert math.isnan(_trees.built('["f","7ff8000000000000"]', []))
