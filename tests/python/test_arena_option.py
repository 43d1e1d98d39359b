"""How cache memory is allocated: options, counters and the log line of `open`; and calls that release the GIL."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_support import needs_gpu, open_gpu

import ebbtide

ARENA = {
    "strategy": str,
    "ready": int,
    "limit": int,
    "touched": int,
    "pinned": int,
    "mapped": int,
    "piece": int,
    "pieces": int,
    "huge_pages": bool,
    "trouble": str,
}


def small(disk: Path, **options: Any) -> ebbtide.Store:
    return ebbtide.open(disk, **({"device_cache": "1MiB", "host_cache": "2MiB", "disk": "8MiB"} | options))


def arenas(store: ebbtide.Store) -> dict[str, dict[str, Any]]:
    return {tier["name"]: tier["arena"] for tier in store.stats()["tiers"]}


@pytest.mark.parametrize("device", ["mapped", "direct"])
@pytest.mark.parametrize("host", ["incremental", "direct"])
def test_each_is_chosen_by_name_and_told(disk: Path, device: str, host: str) -> None:
    with small(disk, tuning={"device_arena": device, "host_arena": host}) as store:
        found = arenas(store)
        assert {tier: arena["strategy"] for tier, arena in found.items()} == {
            "device": device,
            "host": host,
            "local": "",
        }
        assert f"device_arena {device}, host_arena {host}" in store.stats()["settings"]
        for arena in found.values():
            assert {name: type(value) for name, value in arena.items()} == ARENA
        assert not any(value for value in found["local"].values())
        for version in range(40):  # more than memory holds
            store.checkpoint(version, np.full(1 << 17, version, "u1"))
        for version in reversed(range(40)):
            assert (store.restore(version) == version).all()
        found = arenas(store)
        assert found["device"]["limit"] == 1 << 20
        assert found["host"]["limit"] == 2 << 20
        assert all(0 < found[tier]["ready"] <= found[tier]["limit"] for tier in ("device", "host"))
        assert {arena["trouble"] for arena in found.values()} == {""}


def test_what_is_direct_is_ready_when_open_returns(disk: Path) -> None:
    with small(disk, tuning={"device_arena": "direct", "host_arena": "direct"}) as store:
        found = arenas(store)
        assert found["device"]["ready"] == 1 << 20
        assert found["host"]["ready"] == 2 << 20


def test_the_environment_fills_what_is_left_out(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EBBTIDE_TUNING", "device_arena=direct, host_arena=direct")
    with small(disk, tuning={"device_arena": "mapped"}) as store:
        assert [arena["strategy"] for arena in arenas(store).values()] == ["mapped", "direct", ""]
    monkeypatch.setenv("EBBTIDE_TUNING", "host_arena=lazy")
    with pytest.raises(ebbtide.InvalidArgument, match='EBBTIDE_TUNING.host_arena="lazy".*"incremental", "direct"'):
        small(disk)


def test_each_is_ready_at_once_where_nothing_is_said(disk: Path) -> None:
    with small(disk) as store:
        assert [arena["strategy"] for arena in arenas(store).values()] == ["mapped", "incremental", ""]


# --- calls that let go of the interpreter -----------------------------------------------------------------------------


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """Another Python thread runs only when the one that runs lets it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(10_000.0)
    yield
    sys.setswitchinterval(before)


class Other:
    """A thread that is woken and wants to run, and says whether it did so inside the call."""

    def __init__(self) -> None:
        self.inside = self.stop = self.ran_inside = False
        self.wake, self.ran = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while True:
            self.wake.acquire()
            if self.stop:
                return
            self.ran_inside |= self.inside
            self.ran.release()

    def ran_during(self, prepare: Callable[[], Callable[[], None]], limit: float = 60.0) -> bool:
        """Calls what `prepare` gives until the other thread ran meanwhile; without a release of the GIL it never does."""
        end = time.monotonic() + limit
        while not self.ran_inside and time.monotonic() < end:
            call = prepare()
            self.wake.release()
            for _ in range(2000):  # time to wake up and ask for the GIL, which is not let go here
                pass
            self.inside = True
            call()
            self.inside = False
            self.ran.acquire()
        return self.ran_inside

    def end(self) -> None:
        self.stop = True
        self.wake.release()
        self.thread.join()


@pytest.fixture
def other(no_forced_switches: None) -> Iterator[Other]:
    made = Other()
    yield made
    made.end()


def commits(store: ebbtide.Store, **how: Any) -> Callable[[], Callable[[], None]]:
    def prepare() -> Callable[[], None]:
        store.drop()
        reservation = store.reserve(0, 1024, "u1")
        return lambda: reservation.commit(**how)

    return prepare


def releases(store: ebbtide.Store, **how: Any) -> Callable[[], Callable[[], None]]:
    def prepare() -> Callable[[], None]:
        if not store.versions():
            store.checkpoint(0, np.zeros(1024, "u1"))
        loan = store.borrow(0)
        return lambda: loan.release(True, **how)

    return prepare


def test_a_call_that_keeps_the_gil_is_found_out(other: Other) -> None:
    """What the tests below rest on."""
    assert not other.ran_during(lambda: lambda: sum(range(1000)), limit=0.5)


@pytest.mark.parametrize("calls", [commits, releases])
def test_other_threads_run_while_memory_is_given_back(disk: Path, other: Other, calls: Any) -> None:
    with small(disk) as store:
        assert other.ran_during(calls(store))


@pytest.mark.parametrize("calls", [pytest.param(commits, marks=needs_gpu), pytest.param(releases, marks=needs_gpu)])
def test_other_threads_run_while_a_gpus_memory_is_given_back(disk: Path, other: Other, calls: Any) -> None:
    with open_gpu(disk) as store:
        assert other.ran_during(calls(store, stream=2))
