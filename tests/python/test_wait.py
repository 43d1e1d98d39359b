"""What ``wait`` and ``done`` promise: whom they wait for, how they are ended, which levels there are."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import ebbtide

HALF = 1 << 19  # of the cache


def until_known(store: ebbtide.Store, version: int) -> None:
    """Until the store knows of a version that another thread is writing."""
    while True:
        try:
            store.wait("device", version, timeout=0)
        except ebbtide.UnknownVersion:
            time.sleep(0.001)
        except ebbtide.TimedOut:
            return


def until_inside(store: ebbtide.Store, calls: int) -> None:
    while store.calls_inside < calls:
        time.sleep(0.001)


def test_wait_waits_for_nothing_that_is_written_after_it_began(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0) as store:
        held = [store.reserve(version, HALF, "u1") for version in (1, 2)]

        def write(version: int) -> threading.Thread:
            """Stands until there is room."""
            arguments = (version, np.zeros(HALF, "u1"))
            thread = threading.Thread(target=store.checkpoint, args=arguments, kwargs={"timeout": None})
            thread.start()
            until_known(store, version)
            return thread

        first = write(3)
        ended = threading.Event()

        def wait() -> None:
            store.wait("device")
            ended.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        until_inside(store, 2)
        # It has asked the store when it has waited for a while: 50 ms is when it looks for signals.
        with pytest.raises(ebbtide.TimedOut):
            store.wait("device", 3, timeout=0.2)
        second = write(4)
        with pytest.raises(ebbtide.TimedOut):
            store.wait("device", 4, timeout=0.2)
        held[0].abandon()
        first.join()
        assert ended.wait(30), "it waits for a version that was written after it began"
        with pytest.raises(ebbtide.TimedOut):
            store.wait("device", 4, timeout=0)
        held[1].abandon()
        for thread in (waiter, second):
            thread.join()
        assert store.versions() == [3, 4]


def test_wait_knows_the_durability_of_the_store(store: ebbtide.Store) -> None:
    store.checkpoint(1, np.zeros(1000, "u1"))
    store.wait("ephemeral")
    store.wait("ephemeral", 1)
    for level, refusal in {"process": ebbtide.Unsupported, "tape": ebbtide.InvalidArgument}.items():
        with pytest.raises(refusal, match=level):
            store.wait(level)


def test_done_refuses_the_levels_that_wait_refuses(store: ebbtide.Store) -> None:
    future = store.checkpoint(1, np.zeros(1000, "u1"))
    assert future.done() and future.done("ephemeral")
    for level, refusal in {"process": ebbtide.Unsupported, "tape": ebbtide.InvalidArgument}.items():
        for ask in (future.wait, future.done):
            with pytest.raises(refusal, match=level):
                ask(level)
    with pytest.raises(ebbtide.InvalidArgument, match="level"):
        store.restore_async(1).done("device")


class Old(Exception):
    """As exceptions were before Python 3.11."""

    @property
    def add_note(self) -> None:
        raise AttributeError


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that refuses every byte")
def test_an_error_of_close_is_told_beside_the_one_that_ends_the_block(disk: Path) -> None:
    def left_by(error: Exception | None) -> None:
        with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0, event_log="/dev/full"):
            if error:
                try:
                    raise ZeroDivisionError
                except ZeroDivisionError:
                    raise error

    with pytest.raises(ebbtide.IOFailed, match="ENOSPC") as alone:
        left_by(None)
    with pytest.raises(ValueError) as noted:
        left_by(ValueError("mine"))
    if hasattr(noted.value, "__notes__"):
        assert str(alone.value) in noted.value.__notes__[0]
    with pytest.raises(Old) as chained:
        left_by(Old("mine"))
    context = chained.value.__context__
    assert isinstance(context, ebbtide.IOFailed) and str(context) == str(alone.value)
    assert isinstance(context.__context__, ZeroDivisionError)
