"""Ctrl-C while a call of a kept store reads or drains: the call ends, and nothing is lost by that."""

from __future__ import annotations

import _thread
import operator
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ebbtide


def interrupted(call: Callable[[], object]) -> None:
    """Calls it with a SIGINT that came just before, and that only it can see: no bytecode runs in between."""
    with pytest.raises(KeyboardInterrupt):
        list(map(operator.methodcaller("__call__"), (_thread.interrupt_main, call)))


def test_it_ends_the_look_for_the_newest(disk: Path) -> None:
    with ebbtide.open(disk / "kept", durability="storage") as store:
        for version in (1, 2):
            store.checkpoint(version, np.arange(100_000) + version)
    with ebbtide.open(disk / "kept", durability="storage") as store:
        interrupted(store.latest)
        assert store.latest() == 2, "it is not taken for damaged"
        assert store.restore(2)[1] == 3


def test_it_ends_the_draining_and_the_store_stays_open(disk: Path) -> None:
    store = ebbtide.open(disk / "kept", durability="storage")
    store.checkpoint(1, np.arange(100_000))
    interrupted(store.close)
    store.checkpoint(2, np.arange(100_000) + 1)
    store.close()
    with ebbtide.open(disk / "kept", readonly=True) as store:
        assert store.versions() == [1, 2] and store.latest() == 2
