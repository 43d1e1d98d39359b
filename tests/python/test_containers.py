"""Lists and dicts that change while a call takes their arrays."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dlpack_support import Exporter

import ebbtide

COUNT = 6
LISTS: dict[str, Callable[[list[Any], random.Random], Any]] = {
    "clear": lambda box, _: box.clear(),
    "shrink": lambda box, rng: box.pop(rng.randrange(len(box))),
    "grow": lambda box, rng: box.insert(rng.randrange(len(box) + 1), np.zeros(3)),
    "replace": lambda box, rng: box.__setitem__(rng.randrange(len(box)), np.zeros(3)),
    "replace by an equal one": lambda box, _: box.__setitem__(0, np.zeros(3)),
    "turn": lambda box, _: box.reverse(),
    "empty and fill": lambda box, _: (box.clear(), box.extend(np.zeros((100, 3)))),
}
DICTS: dict[str, Callable[[dict[Any, Any], random.Random], Any]] = {
    "clear": lambda box, _: box.clear(),
    "shrink": lambda box, rng: box.pop(rng.choice(list(box))),
    "grow": lambda box, _: box.update(more=np.zeros(3)),
    "replace": lambda box, rng: box.__setitem__(rng.choice(list(box)), np.zeros(3)),
    "rename": lambda box, _: box.__setitem__("other", box.pop(next(iter(box)))),
    "move to the end": lambda box, _: box.__setitem__(next(iter(box)), box.pop(next(iter(box)))),
    "grow much": lambda box, _: box.update(zip(range(1000), np.zeros((1000, 3)))),
}
CHANGES = [(list, name) for name in LISTS] + [(dict, name) for name in DICTS]


class Once:
    """Runs an action at its `turn`-th call, and not again."""

    def __init__(self, action: Callable[[], Any], turn: int) -> None:
        self.action, self.left, self.done = action, turn, False

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0 and not self.done:
            self.done = True
            self.action()


def boxed(
    kind: type, arrays: list[np.ndarray], change: Callable[[Any, random.Random], Any], seed: int
) -> tuple[Any, Once]:
    """Arrays in a container that `change` changes when one of them, at a random place, is taken."""
    rng = random.Random(seed)
    box: Any = kind()
    hooked = {rng.randrange(len(arrays)) for _ in range(3)}
    once = Once(lambda: change(box, rng), rng.randrange(len(hooked)))
    items = [Exporter(array, hook=once) if i in hooked else array for i, array in enumerate(arrays)]
    if kind is list:
        box.extend(items)
    else:
        box.update((f"k{i}", item) for i, item in enumerate(items))
    return box, once


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("kind", "name"), CHANGES, ids=str)
def test_nothing_is_written_of_what_changed_meanwhile(store: ebbtide.Store, kind: type, name: str, seed: int) -> None:
    change = (LISTS if kind is list else DICTS)[name]
    box, once = boxed(kind, [np.full(3, float(i)) for i in range(COUNT)], change, seed)
    with pytest.raises(RuntimeError, match="^arrays was changed while its arrays were taken"):
        store.checkpoint(0, box)
    assert once.done
    assert store.versions() == []
    store.checkpoint(0, box)  # as it is now, it is right
    assert len(store.restore(0)) == len(box)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("call", ["restore", "restore_async"])
@pytest.mark.parametrize(("kind", "name"), CHANGES, ids=str)
def test_nothing_is_read_into_what_changed_meanwhile(
    store: ebbtide.Store, kind: type, name: str, call: str, seed: int
) -> None:
    written = [np.full(3, 7.0) for _ in range(COUNT)]
    store.checkpoint(0, written if kind is list else {f"k{i}": one for i, one in enumerate(written)})
    arrays = [np.full(3, float(i)) for i in range(COUNT)]
    box, _ = boxed(kind, arrays, (LISTS if kind is list else DICTS)[name], seed)
    with pytest.raises(RuntimeError, match="^out was changed while its arrays were taken"):
        getattr(store, call)(0, out=box)
    assert all((one == i).all() for i, one in enumerate(arrays))
    back = store.restore(0)  # not consumed
    assert all((one == 7).all() for one in (back if kind is list else back.values()))


def test_what_is_as_it_was_again_is_taken(store: ebbtide.Store) -> None:
    box: list[Any] = [np.arange(3.0), np.arange(4.0)]
    box.append(Exporter(np.arange(5.0), hook=lambda: (box.reverse(), box.reverse(), box.append(0), box.pop())))
    store.checkpoint(0, box)
    assert [len(one) for one in store.restore(0)] == [3, 4, 5]


def test_a_key_that_changes_its_dict_when_it_is_shown(store: ebbtide.Store) -> None:
    class Key(str):
        def __repr__(self) -> str:
            box.clear()
            return "key"

    box: dict[Any, Any] = {Key("a"): np.arange(3), "b": np.arange(4)}
    with pytest.raises(RuntimeError, match="^arrays was changed"):
        store.checkpoint(0, box)
    assert store.versions() == []


def test_memory_that_a_later_array_moves_is_read_where_it_is_now(store: ebbtide.Store) -> None:
    small = np.arange(4.0)

    def move() -> None:
        small.resize(100_000, refcheck=False)
        small[:] = 5

    store.checkpoint(0, [small, Exporter(np.arange(3.0), hook=move)])
    first, _ = store.restore(0)
    assert first.shape == (100_000,) and (first == 5).all()
