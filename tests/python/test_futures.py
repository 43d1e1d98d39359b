"""Futures behave as Python's: they are awaited, watched by callbacks, and waited for together with others."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ebbtide
from ebbtide import _arrays, _futures

COUNT, SIZE = 40, 1 << 15  # 256 KiB each: most are in the file when they are restored


@pytest.fixture
def written(disk: Path) -> Iterator[ebbtide.Store]:
    """Version i is full of i."""
    with ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="32MiB") as store:
        for version in range(COUNT):
            store.checkpoint(version, np.full(SIZE, float(version)), timeout=30)
        yield store


def is_version(array: Any, version: int) -> bool:
    return bool((array == version).all())


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ebbtide-futures"]


def strided() -> np.ndarray[Any, Any]:
    """For a version, and filled by way of packed memory."""
    return np.zeros((SIZE, 2))[:, 0]


@pytest.fixture
def fill(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Strided arrays are filled once it is set."""
    may, copy = threading.Event(), _arrays.copy
    monkeypatch.setattr(_arrays, "copy", lambda *args: (may.wait(60), copy(*args)))
    return may


def until(passed: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not passed():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_concurrent_futures_waits_for_them_beside_others(written: ebbtide.Store) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ours = {written.restore_async(version): version for version in range(COUNT // 2)}
        mixed: list[concurrent.futures.Future[Any]] = [*ours, pool.submit(int, "7")]
        assert all(isinstance(one, concurrent.futures.Future) for one in mixed)
        done, left = concurrent.futures.wait(mixed, timeout=60)
        assert done == set(mixed) and not left
    for future, version in ours.items():
        assert is_version(future.result(), version) and future.exception() is None
        assert future.done() and not future.running() and not future.cancelled() and not future.cancel()
    later = {written.restore_async(version): version for version in range(COUNT // 2, COUNT)}
    for future in concurrent.futures.as_completed(later, timeout=60):
        assert is_version(future.result(0), later.pop(future))
    assert not later


def test_they_are_awaited(written: ebbtide.Store) -> None:
    async def program() -> None:
        assert is_version(await written.restore_async(0), 0)
        assert is_version(await asyncio.wrap_future(written.restore_async(1)), 1)
        found = await asyncio.gather(*(written.restore_async(version) for version in range(2, 20)))
        assert all(is_version(array, version) for version, array in enumerate(found, 2))
        assert is_version(await asyncio.wait_for(written.restore_async(20), 60), 20)
        assert await written.checkpoint(100, np.zeros(3)) is None
        assert is_version(await asyncio.to_thread(written.restore, 21), 21)
        written.checkpoint(101, np.ones(3))
        assert is_version(written.restore(101), 1)

    asyncio.run(program())


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_cancelled_await_loses_nothing(written: ebbtide.Store, turns: int) -> None:
    async def program() -> None:
        futures = [written.restore_async(version) for version in range(COUNT)]

        async def get(future: ebbtide.Future) -> Any:
            return await future

        tasks = [asyncio.create_task(get(future)) for future in futures]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        for version, (future, end) in enumerate(zip(futures, ends)):
            assert is_version(await future, version)
            assert (
                isinstance(end, asyncio.CancelledError) if not isinstance(end, np.ndarray) else is_version(end, version)
            )

    asyncio.run(program())


def test_a_call_in_a_thread_goes_on_when_its_task_is_cancelled(written: ebbtide.Store) -> None:
    out = np.zeros(SIZE)

    async def program() -> None:
        calls = [
            asyncio.create_task(asyncio.to_thread(written.restore, 3, out)),
            asyncio.create_task(asyncio.to_thread(written.checkpoint, 100, np.full(SIZE, 100.0), timeout=30)),
            asyncio.create_task(asyncio.to_thread(written.wait)),
        ]
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        assert all(
            isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*calls, return_exceptions=True)
        )

    asyncio.run(program())  # which waits for its threads
    assert is_version(out, 3) and is_version(written.restore(100), 100)


def test_callbacks_run_on_pythons_thread_and_one_that_fails_harms_no_other(
    written: ebbtide.Store, caplog: pytest.LogCaptureFixture
) -> None:
    threads: dict[int, threading.Thread] = {}
    passed = threading.Semaphore(0)

    def fail(future: Any) -> None:
        raise ZeroDivisionError("this one is the program's")

    def note(future: Any, version: int) -> None:
        assert is_version(future.result(0), version)
        threads[version] = threading.current_thread()
        passed.release()

    for version in range(COUNT):
        future = written.restore_async(version)
        future.add_done_callback(fail)
        future.add_done_callback(lambda future, version=version: note(future, version))
    for _ in range(COUNT):
        assert passed.acquire(timeout=60)
    assert {thread for thread in threads.values() if thread is not threading.main_thread()} <= set(watchers())
    assert "this one is the program's" in caplog.text
    at_once: list[threading.Thread] = []
    future.add_done_callback(lambda _: at_once.append(threading.current_thread()))
    assert at_once == [threading.main_thread()]  # it had ended


def test_failures_are_exceptions(written: ebbtide.Store) -> None:
    future = written.restore_async(0)
    assert future.exception(timeout=60) is None
    with pytest.raises(ebbtide.InvalidArgument, match="timeout=-1"):
        written.restore_async(1).exception(timeout=-1.0)

    async def program() -> None:
        with pytest.raises(ebbtide.Consumed):
            await written.restore_async(0)

    asyncio.run(program())
    assert not hasattr(future, "no_such_thing")


def test_closing_ends_what_is_watched_before_it_returns(disk: Path) -> None:
    for repeat in range(5):
        ended: list[int] = []
        with ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="32MiB") as store:
            for version in range(COUNT):
                store.checkpoint(version, np.full(SIZE, float(version)), timeout=30)
            futures = [store.restore_async(version) for version in range(COUNT)]
            for version, future in enumerate(futures):
                future.add_done_callback(lambda _, version=version: ended.append(version))
            if repeat % 2:
                futures[repeat].wait()
        assert sorted(ended) == list(range(COUNT)) and not watchers()
        for version, future in enumerate(futures):
            error = future.exception(0)
            assert isinstance(error, ebbtide.Closed) if error else is_version(future.result(0), version)
            future.add_done_callback(lambda _, version=version: ended.append(version))
        assert sorted(ended) == sorted(2 * list(range(COUNT)))


def test_a_callback_may_close_the_store(disk: Path) -> None:
    store = ebbtide.open(disk, device_cache="1MiB", host_cache="1MiB", disk="32MiB")
    for version in range(COUNT):
        store.checkpoint(version, np.full(SIZE, float(version)), timeout=30)
    closed = threading.Event()

    def close(future: Any) -> None:
        store.close()
        closed.set()

    store.restore_async(0).add_done_callback(close)
    assert closed.wait(60)
    with pytest.raises(ebbtide.Closed):
        store.restore(1)
    for thread in watchers():
        thread.join(60)
    assert not watchers()


def test_one_that_is_only_waited_for_makes_no_lock_and_no_thread(written: ebbtide.Store) -> None:
    future = written.restore_async(0)
    assert is_version(future.result(), 0) and future.done() and future.exception() is None
    assert "in progress" in repr(future) or "done" in repr(future)
    assert not vars(future) and not watchers()
    written.checkpoint(100, np.zeros(3)).add_done_callback(lambda _: None)  # it has ended
    assert not watchers()


def test_a_future_that_has_ended_is_not_kept(written: ebbtide.Store) -> None:
    future = written.restore_async(0)
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    assert ended.wait(60)
    gone = weakref.ref(future)
    del future
    concurrent.futures.wait([written.restore_async(1)], timeout=60)  # the thread is past the first
    gc.collect()
    assert gone() is None


def test_a_strided_out_is_filled_though_nobody_asks(written: ebbtide.Store) -> None:
    out = strided()
    gone = weakref.ref(written.restore_async(3, out))
    until(lambda: gone() is None)
    assert is_version(out, 3)


def test_one_is_done_once_a_strided_out_is_filled(written: ebbtide.Store, fill: threading.Event) -> None:
    dense, out = written.restore_async(1), strided()
    future = written.restore_async(0, out)
    dense.wait()
    assert not future.done() and future.running() and "in progress" in repr(future)
    assert not out.any()
    fill.set()
    until(future.done)
    assert is_version(out, 0) and future.result(0) is out


def test_one_whose_out_cannot_be_filled_fails(written: ebbtide.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ZeroDivisionError("the array refuses")

    async def program() -> None:
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(written.restore_async(0, strided()), 60)

    monkeypatch.setattr(_arrays, "copy", refuse)
    asyncio.run(program())
    future = written.restore_async(1, strided())
    assert concurrent.futures.wait([future], timeout=60).done
    assert future.done() and isinstance(future.exception(0), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        future.result(0)
    monkeypatch.undo()
    assert is_version(future.result(0), 1) and future.exception(0) is None


def test_a_callback_that_exits_harms_no_other_future(
    written: ebbtide.Store, fill: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_type))
    future = written.restore_async(0, strided())
    future.add_done_callback(lambda _: sys.exit())
    later = written.restore_async(1, strided())
    fill.set()
    assert concurrent.futures.wait([later], timeout=60).done and reported == [SystemExit]


def test_a_thread_that_fills_an_out_may_ask_for_it(written: ebbtide.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler does that interrupts it."""
    copy, out = _arrays.copy, strided()
    made, called, refused = threading.Event(), threading.Event(), threading.Event()
    future: ebbtide.Future

    def interrupted(*args: Any) -> None:
        assert made.wait(60) and not future.done()
        future.add_done_callback(lambda _: called.set())
        with pytest.raises(ebbtide.Unsupported, match=r"ask done\(\)"):
            future.result(0)
        refused.set()
        copy(*args)

    monkeypatch.setattr(_arrays, "copy", interrupted)
    future = written.restore_async(0, out)
    made.set()
    assert future.result(60) is out and is_version(out, 0) and refused.is_set() and called.wait(60)


def test_a_future_may_be_watched_while_it_comes_to_be_watched(
    written: ebbtide.Store, fill: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a signal handler, or by another thread."""
    called = threading.Semaphore(0)
    tell, futures = ebbtide.Future._tell_of_end, []

    def interrupted(future: ebbtide.Future) -> bool:
        if not futures:
            futures.append(future)
            future.add_done_callback(lambda _: called.release())
        return tell(future)

    monkeypatch.setattr(ebbtide.Future, "_tell_of_end", interrupted)
    written.restore_async(0, strided()).add_done_callback(lambda _: called.release())
    fill.set()
    assert called.acquire(timeout=60) and called.acquire(timeout=60)


def test_a_store_has_one_thread_for_them(written: ebbtide.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, inner = _futures.Watcher.__init__, []

    def interrupted(watcher: Any, endings: Any) -> None:
        if not inner:
            inner.append(None)
            inner[0] = written.restore_async(0, strided())
        begin(watcher, endings)

    monkeypatch.setattr(_futures.Watcher, "__init__", interrupted)
    outer = written.restore_async(1, strided())
    assert concurrent.futures.wait([outer, inner[0]], timeout=60).done == {outer, inner[0]}
    assert len(watchers()) == 1


def test_a_forked_child_may_print_one(written: ebbtide.Store) -> None:
    future = written.restore_async(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        os._exit(0 if "another process" in repr(future) else 1)
    assert os.waitpid(child, 0)[1] == 0
