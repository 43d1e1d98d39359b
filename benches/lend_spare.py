#!/usr/bin/env python3
"""What it is worth to lend what a device cache does not use: two ranks, each with a cache of 256 MiB, write bursts of 384 MiB in
checkpoints of 16 MiB, in turn or at the same moment, without lending and with `lend="spare", borrow="auto"`.

Below the caches are 64 MiB of host memory and a disk that writes 240 MB/s (benches/slow_disk.py, as root; needs Debian's
libfuse3-dev). A burst begins when all earlier ones have been in files for 0.3 seconds. All that a rank wrote is read back and compared after
each burst; neither that nor the waiting is measured. Memory files take the place of a GPU's memory. It takes three minutes.

  benches/lend_spare.py --dir DIRECTORY --json benches/results/lend_spare.json
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ebbtide
import harness
import numpy as np
from slow_disk import slow_disk

CACHE, HOST, SIZE, COUNT, RANKS = 256 << 20, 64 << 20, 16 << 20, 24, 2
BURSTS, REST, RATE = 2, 0.3, 240e6


def rank(pipe: Connection, directory: str, group: str, spare: bool) -> None:
    """Writes a burst whenever it is told to, and answers with the seconds that its calls took."""
    os.environ["EBBTIDE_JOB"] = group
    lending: dict[str, Any] = {"lend": "spare", "borrow": "auto"} if spare else {}
    array = np.empty(SIZE // 8, np.int64)
    with ebbtide.open(
        device="cpu", directory=directory, device_cache=CACHE, host_cache=HOST, disk="1GiB", **lending
    ) as store:
        pipe.send(None)
        first = 0
        while (told := pipe.recv()) != "end":
            if told == "burst":
                blocked = 0.0
                for version in range(first, first + COUNT):
                    array.fill(version)
                    begin = time.monotonic()
                    store.checkpoint(version, array)
                    blocked += time.monotonic() - begin
                pipe.send(blocked)
                continue
            store.wait("local")
            wrong = sum(
                bool((store.restore(version, keep=True) != version).any()) for version in range(first, first + COUNT)
            )
            for version in range(first - COUNT, first):
                if version >= 0:
                    store.drop(version)
            first += COUNT
            pipe.send(wrong)


@contextlib.contextmanager
def ranks(directory: str, spare: bool) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    group = f"bench-{uuid.uuid4().hex}"
    pipes, processes = [], []
    for _ in range(RANKS):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=rank, args=(theirs, directory, group, spare), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    yield pipes
    for pipe in pipes:
        pipe.send("end")
    for process in processes:
        process.join()


def blocked(directory: str, spare: bool, in_turn: bool) -> float:
    """Seconds in all calls."""
    total = 0.0
    with ranks(directory, spare) as pipes:
        for _ in range(BURSTS):
            for together in [[pipe] for pipe in pipes] if in_turn else [pipes]:
                time.sleep(REST)
                for pipe in together:
                    pipe.send("burst")
                total += sum(pipe.recv() for pipe in together)
                for pipe in together:
                    pipe.send("check")
                for pipe in together:
                    if wrong := pipe.recv():
                        raise SystemExit(f"{wrong} checkpoints came back wrong")
    return total


def measured(directory: str, repeats: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, in_turn in (("in_turn", True), ("same_moment", False)):
            of = {spare: blocked(directory, spare, in_turn) for spare in (False, True)}
            found.setdefault(f"{name}_alone_s", []).append(of[False])
            found.setdefault(f"{name}_spare_s", []).append(of[True])
            found.setdefault(f"{name}_over_alone", []).append(of[True] / of[False])
    return found


def main() -> None:
    given = harness.options(__doc__ or "", repeats=5).parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as directory, slow_disk(Path(directory), RATE) as mounted:
        found = {"machine": harness.machine(given.dir), "disk_bytes_per_s": RATE} | measured(
            str(mounted), given.repeats
        )
    for name, bar in (("in_turn", 0.5), ("same_moment", 1.03)):
        row = harness.Row(name, f"<= {bar}", found[f"{name}_over_alone"], harness.at_most(bar))
        print(harness.table([row]))
    harness.leave(found, given.json)


if __name__ == "__main__":
    main()
