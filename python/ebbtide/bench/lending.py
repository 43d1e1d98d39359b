"""What `--lend` adds to a shot: a process for each rank, which lends memory to that rank and does nothing else."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
import uuid
from collections.abc import Iterator
from typing import Any

import ebbtide

from .._machine.device import NoDevice, gpus
from .._units import format_size

LEAST = 64 << 20  # bytes of the smallest lease (docs/peers.md)
_PATIENCE = 30.0  # seconds until all of it is lent, or a lender has ended


class NotLent(RuntimeError):
    """A lender could not lend, or a rank did not get its leases; the message says which."""


def lease_of(lent: int) -> int:
    """Bytes of each lease of `lent` bytes: an eighth, in whole smallest leases. A checkpoint must fit in one.

    >>> lease_of(128 << 20) >> 20, lease_of(4 << 30) >> 20
    (64, 512)
    """
    return -(-lent // (8 * LEAST)) * LEAST


def borrowed_of(lent: int) -> int:
    """Bytes of the whole leases that there are in `lent` bytes."""
    return lent // lease_of(lent) * lease_of(lent)


def lender_devices(device: str, ranks: int) -> list[str]:
    """Whose memory each rank borrows: on GPUs those that no rank computes on, in turn. Raises NoDevice where all are taken."""
    if device == "cpu":
        return ["cpu"] * ranks
    first, count = int(device.partition(":")[2] or 0), gpus()
    idle = [(first + number) % count for number in range(ranks, count)]
    if not idle:
        raise NoDevice(f"{ranks} ranks compute on all {count} GPUs: leave one idle, whose memory can be lent")
    return [f"cuda:{idle[rank % len(idle)]}" for rank in range(ranks)]


@contextlib.contextmanager
def lenders(device: str, ranks: int, lent: int) -> Iterator[list[str]]:
    """Lends `lent` bytes to each rank until the end. Gives each rank's `in_group`, in which it finds no other lender."""
    with contextlib.ExitStack() as running:
        groups = [f"bench-{uuid.uuid4().hex}" for _ in range(ranks)] if lent else [""] * ranks
        for where, group in zip(lender_devices(device, ranks) if lent else (), groups):
            running.enter_context(_lender(where, lent, group))
        yield groups


@contextlib.contextmanager
def in_group(name: str) -> Iterator[None]:
    """A store that is opened meanwhile lends to, and borrows of, this group alone. "": whatever the environment says."""
    before = os.environ.get("EBBTIDE_JOB")
    if name:
        os.environ["EBBTIDE_JOB"] = name
    try:
        yield
    finally:
        if name and before is None:
            del os.environ["EBBTIDE_JOB"]
        elif name and before is not None:
            os.environ["EBBTIDE_JOB"] = before


def wait_until_lent(store: Any, lent: int) -> None:
    """Until `store` has all leases of `lent` bytes: the shot is to begin with what it goes on with.

    In one of them up to a sixteenth is a staging ring, and holds no checkpoints (docs/peers.md).
    """
    expected, end = borrowed_of(lent) - lease_of(lent) // 16, time.monotonic() + _PATIENCE
    while (has := next(tier["capacity"] for tier in store.stats()["tiers"] if tier["name"] == "peer")) < expected:
        if time.monotonic() > end:
            raise NotLent(
                f"{format_size(has)} of {format_size(borrowed_of(lent))} were lent in {_PATIENCE:.0f} s; EBBTIDE_LOG=info says why"
            )
        time.sleep(0.005)


@contextlib.contextmanager
def _lender(device: str, lent: int, group: str) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_lend, args=(theirs, device, lent, group), name=f"lender on {device}")
    process.start()
    theirs.close()
    try:
        try:
            failure = ours.recv()
        except EOFError:
            failure = "the process ended without a message"
        if failure:
            raise NotLent(f"the lender on {device}: {failure}")
        yield
    finally:
        ours.close()  # it hears that
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


def _lend(pipe: Any, device: str, lent: int, group: str) -> None:
    """Until the other end of the pipe is closed: by the benchmark, or by its death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the benchmark, and that this
    try:
        with in_group(group), ebbtide.open(device=device, device_cache=0, host_cache="4KiB", disk=0, lend=lent):
            pipe.send(None)
            with contextlib.suppress(EOFError):
                pipe.recv()
    except Exception:
        with contextlib.suppress(OSError):
            pipe.send(traceback.format_exc())
