"""What the processes of lending.py do: lend memory, or write and restore in a store that borrows it."""

from __future__ import annotations

import os
import random
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import ebbtide

MIB = 1 << 20
RECALL_S = 30.0
MOST = 80 * MIB  # that a borrower has written and not dropped: much more than its own caches hold
WORDS = (1, 500, 40_000, 131_072, 300_000)  # of 8 bytes


def value(rank: int, version: int) -> Any:
    """The array that a version is: nothing else may ever be found there."""
    words = WORDS[(version * 7 + rank) % len(WORDS)]
    return np.arange(words, dtype=np.int64) + (rank * 10**6 + version) * 10**7


def answer(pipe: Connection, calls: dict[str, Any]) -> None:
    """Each call's value as "ok", an error of the store as "error", what is not as it must be as "wrong"."""
    parent = os.getppid()
    while True:
        while not pipe.poll(1.0):
            if os.getppid() != parent:
                os._exit(0)
        name, *arguments = pipe.recv()
        try:
            pipe.send(("ok", calls[name](*arguments)))
        except ebbtide.Error as error:
            pipe.send(("error", f"{name}: {type(error).__name__}: {error}"))
        except AssertionError as error:
            pipe.send(("wrong", f"{name}: {error}"))
        if name == "close":
            return


def lend(pipe: Connection, group: str, lent: int) -> None:
    os.environ["EBBTIDE_JOB"] = group
    store = ebbtide.open(device="cpu", device_cache=0, host_cache="4KiB", disk=0, lend=lent)
    pipe.send(("ok", None))

    def state() -> list[tuple[int, int]]:
        return [(lease["borrower"], lease["bytes"]) for lease in store.stats()["leases"]["leases"]]

    def offer(amount: int) -> None:
        store.lend(amount, timeout=RECALL_S)

    answer(pipe, {"state": state, "offer": offer, "close": store.close})


def borrow(pipe: Connection, group: str, directory: str, rank: int, start: int, durable: bool) -> None:
    os.environ["EBBTIDE_JOB"] = group
    os.makedirs(directory, mode=0o700, exist_ok=True)
    sizes: dict[str, Any] = {"device_cache": "4MiB", "host_cache": "8MiB", "disk": "512MiB", "borrow": "auto"}
    store = ebbtide.open(directory, device="cpu", durability="process" if durable else "ephemeral", **sizes)
    history = store.history("h")
    there: dict[int, int] = {}  # versions and their bytes

    def same(version: int, found: Any) -> None:
        expected = value(rank, version)
        assert found.shape == expected.shape and (found == expected).all(), f"version {version} has other bytes"

    def check() -> int:
        """Every version that there is; how many bytes are in borrowed memory before that."""
        used = next(tier["used"] for tier in store.stats()["tiers"] if tier["name"] == "peer")
        for version in there:
            same(version, history.restore(version, keep=True))
        return used

    def write(version: int) -> None:
        array = value(rank, version)
        history.checkpoint(version, array, timeout=20)
        there[version] = array.nbytes
        if durable and version % 3 == 0:
            history.wait("process", version, timeout=20)
            pipe.send(("reported", version))

    def drop(version: int) -> None:
        pipe.send(("dropped", version))
        history.drop(version)
        del there[version]

    def work(seed: int, count: int) -> None:
        nonlocal following
        drawn = random.Random(seed)
        for _ in range(count):
            while sum(there.values()) > MOST:
                drop(next(iter(there)))
            kind = drawn.random()
            if kind < 0.6 or not there:
                write(following)
                following += 1
            elif kind < 0.9:
                version = drawn.choice(list(there))
                same(version, history.restore(version, keep=True))
            else:
                drop(drawn.choice(list(there)))

    following = start * 10_000
    try:
        for version in history.versions():
            found = history.restore(version, keep=True)
            same(version, found)
            there[version] = found.nbytes
        pipe.send(("ok", list(there)))
    except AssertionError as error:
        pipe.send(("wrong", f"after it was killed: {error}"))
    answer(pipe, {"work": work, "check": check, "close": store.close})
