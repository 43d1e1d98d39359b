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


@pytest.mark.parametrize("level", ["", "tape", "device\0", "Storage"])
def test_a_word_that_is_no_level_is_refused_with_those_there_are(store: ebbtide.Store, level: str) -> None:
    future = store.checkpoint(1, np.zeros(1000, "u1"))
    asks = (future.wait, future.done, store.wait, lambda level: store.wait(level, 1))
    for ask in asks:
        with pytest.raises(ebbtide.InvalidArgument, match='"device", "host", "local"'):
            ask(level)
    assert future.done() is True and future.wait() is None


def test_a_closed_store_has_no_list_of_versions(disk: Path) -> None:
    with ebbtide.open(disk, device_cache="1MiB", host_cache=0, disk=0) as store:
        history = store.history("x")
        history.checkpoint(1, np.zeros(1000, "u1"))
        assert history.versions() == store.versions("x") == [1]
    for ask in (store.versions, history.versions, lambda: store.versions("x"), lambda: store.history("new").versions()):
        with pytest.raises(ebbtide.Closed):
            ask()


def test_a_nul_cuts_no_path_and_a_name_that_no_file_holds_is_refused_at_once(disk: Path) -> None:
    for options in ({"directory": f"{disk}/a\0b"}, {"directory": disk, "event_log": f"{disk}/events\0b"}):
        with pytest.raises(ebbtide.InvalidArgument, match=f"{list(options)[-1]}=.*NUL"):
            ebbtide.open(**options, device_cache="1MiB", host_cache=0, disk=0, durability=None)
    with pytest.raises(ebbtide.InvalidArgument, match="host_cache=.*NUL"):
        ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB\0", disk=0)
    assert list(disk.iterdir()) == []
    with ebbtide.open(disk / "kept", durability="process", device_cache="1MiB", host_cache=0, disk="4MiB") as store:
        store.history("n" * 65536).checkpoint(1, np.zeros(10, "u1"))
        with pytest.raises(ebbtide.InvalidArgument, match="65537 bytes"):
            store.history("n" * 65537).checkpoint(1, np.zeros(10, "u1"))


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
