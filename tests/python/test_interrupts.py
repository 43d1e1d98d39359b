"""Ctrl-C while a call of a persistent store reads or drains: the call ends, and nothing is lost by that."""

from __future__ import annotations

import _thread
import operator
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from child import run_python
import numpy as np
import pytest
from kept_support import levels

import ebbtide
from ebbtide import _open


@pytest.fixture(autouse=True)
def taken() -> Iterator[None]:
    """As in a terminal: a shell's background processes ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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


@pytest.mark.parametrize("end", ["lend", "close"])
def test_it_ends_the_wait_for_what_was_lent(end: str, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBTIDE_JOB", f"test-{uuid.uuid4().hex}")
    lender = ebbtide.open(device="cpu", device_cache="4KiB", host_cache=0, disk=0, lend="64MiB")
    with ebbtide.open(device="cpu", device_cache="4MiB", host_cache=0, disk=0, borrow="auto") as borrower:
        while not any(tier["name"] == "peer" and tier["capacity"] for tier in borrower.stats()["tiers"]):
            time.sleep(0.002)
        for version in range(15):  # which have nowhere else to go
            borrower.checkpoint(version, np.full(4 << 20, version, np.uint8))
        timer = threading.Timer(0.2, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            lender.lend(0, timeout=None) if end == "lend" else lender.close()
        timer.join()
        for version in range(15):
            assert (borrower.restore(version) == version).all()
    lender.close()


def test_a_commit_that_an_interrupted_draining_refuses_ends_nothing(disk: Path) -> None:
    store = ebbtide.open(disk / "kept", durability="storage")
    reservation = store.reserve(1, 1000, "i8")
    array = reservation.array

    def commit_and_raise(*_: object) -> None:
        with pytest.raises(ebbtide.Closed):
            reservation.commit()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, commit_and_raise)
    interrupted(store.close)
    array[:] = reservation.array[0] = 7
    reservation.commit()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    store.close()
    with ebbtide.open(disk / "kept", readonly=True) as store:
        assert (store.restore(1) == 7).all()


class Closing:
    """A store whose close() raises these, one at a time, before it closes."""

    calls_inside = 0

    def __init__(self, *raised: BaseException) -> None:
        self.raised = list(raised)
        self.handlers: list[object] = []  # of SIGINT, at each call

    def close(self) -> None:
        self.handlers.append(signal.getsignal(signal.SIGINT))
        if self.raised:
            raise self.raised.pop(0)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), SystemExit(143)], ids=["interrupt", "exit"])
def test_at_the_end_of_the_interpreter_it_leaves_no_store_open(
    end: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [Closing(end), Closing(ebbtide.TimedOut("slow")), Closing()]
    monkeypatch.setattr(_open, "_open_stores", stores)
    with pytest.raises(type(end)):
        _open._close_all()
    ours = signal.default_int_handler
    assert [store.handlers for store in stores] == [[ours, signal.SIG_DFL], [ours], [ours]]
    assert signal.getsignal(signal.SIGINT) == ours


def test_at_the_end_of_the_interpreter_each_store_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = [Closing(KeyboardInterrupt(), SystemExit(143)), Closing(KeyboardInterrupt())]
    monkeypatch.setattr(_open, "_open_stores", stores)
    with pytest.raises(KeyboardInterrupt):
        _open._close_all()
    assert [len(store.handlers) for store in stores] == [2, 2]


PROGRAM = """
import _thread, ctypes, operator, os, signal
import numpy as np
import ebbtide
from ebbtide import _open
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupted:
    "A SIGINT comes just before it drains, and perhaps another one when it does so again."
    calls_inside, calls = 0, 0
    def __init__(self, store): self.store = store
    def close(self):
        self.calls += 1
        if self.calls == 1:
            list(map(operator.methodcaller("__call__"), (_thread.interrupt_main, self.store.close)))
        if {again}:
            os.kill(os.getpid(), signal.SIGINT)
        self.store.close()
stores = [ebbtide.open({disk!r} + name, durability={level!r}) for name in ("/one", "/other")]
for store in stores:
    store.checkpoint(1, np.arange(100_000))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(store))  # nothing else closes it
_open._open_stores = [Interrupted(store) for store in stores]
"""


@levels
@pytest.mark.parametrize("again", [False, True], ids=["once", "again"])
def test_at_the_end_of_the_interpreter_the_stores_are_drained_unless_it_comes_again(
    disk: Path, again: bool, level: str
) -> None:
    program = PROGRAM.format(disk=str(disk), again=again, level=level)
    done = run_python(program)
    if again:
        assert done.returncode == -signal.SIGINT, done.stderr
        return
    assert done.returncode == 0 and "KeyboardInterrupt" in done.stderr, done.stderr
    for name in ("one", "other"):
        assert (disk / name / "index").exists() and not (disk / name / "index.old").exists(), "it was not closed"
        with ebbtide.open(disk / name, readonly=True) as store:
            assert store.versions() == [1] and store.latest() == 1
