"""A store and a history as Python's containers: `in`, `len`, `repr`, and the names of histories."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ebbtide


def test_versions_are_in_their_history(store: ebbtide.Store) -> None:
    history = store.history("a", order="lifo")
    assert len(history) == 0 and bool(history) and bool(store)
    for version in (3, -4, 2**40):
        history.checkpoint(version, np.zeros(1))
    assert len(history) == 3
    assert all(version in history for version in (3, -4, 2**40, np.int64(3)))
    assert all(thing not in history for thing in (4, 2**70, "3", 3.0, None, [3]))
    history.restore(3)
    assert 3 not in history and len(history) == 2  # consumed
    with pytest.raises(ebbtide.InvalidArgument, match='expected None, "reverse" or "lifo"'):
        store.history("a", order="fifo")


def test_histories_are_listed_in_an_earlier_process_too(disk: Path) -> None:
    def written(store: ebbtide.Store) -> None:
        store.history("b").checkpoint(0, np.zeros(1))
        store.history("a/ü").checkpoint(0, np.zeros(1))
        store.history("empty")
        with store.create_file("file", 1) as file:
            file.write(b"x")

    with ebbtide.open(disk / "kept", durability="process") as store:
        written(store)
        assert store.histories() == ["a/ü", "b"]
        store.checkpoint(0, np.zeros(1))
    with ebbtide.open(disk / "kept", durability="process", readonly=True) as store:
        assert store.histories() == ["", "a/ü", "b"]
        assert all(0 in store.history(name) for name in store.histories())
    with pytest.raises(ebbtide.Closed):
        store.histories()


def test_a_store_says_what_it_is(disk: Path) -> None:
    store = ebbtide.open(disk, device_cache="1MiB", host_cache="2MiB", disk="32MiB")
    history = store.history("forward")
    history.checkpoint(0, np.zeros(1))
    assert repr(history) == '<ebbtide.History "forward", 1 version>'
    text = repr(store)
    assert text.startswith("<ebbtide.Store (") and str(disk) in text and text.endswith("), 0 versions>")
    store.close()
    assert "closed" in repr(store) and repr(history) == '<ebbtide.History "forward", closed>'
