#!/usr/bin/env python3
"""What it is worth to lend what a device cache does not use: two ranks, each with a cache of 256 MiB, write bursts of 384 MiB in
checkpoints of 16 MiB, in turn or at the same moment, without lending and with `lend="spare", borrow="auto"`. With `--device cuda`
each has a GPU of its own, everything is 16 times as large, and the disk is the machine's.

Below the caches are 64 MiB of host memory and a disk that writes 240 MB/s (benches/slow_disk.py, as root; needs Debian's
libfuse3-dev). A burst begins when all earlier ones have been in files for 0.3 seconds. All that a rank wrote is read back and compared after
each burst; neither that nor the waiting is measured. Memory files take the place of a GPU's memory. It takes three minutes.

  benches/lend_spare.py --dir DIRECTORY --json benches/results/lend_spare.json
  benches/lend_spare.py --device cuda --dir DIRECTORY --json benches/results/lend_spare_gpu.json
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ebbtide
import harness
from ebbtide._machine.device import select
from slow_disk import slow_disk

CACHE, HOST, SIZE, DISK, COUNT, RANKS = 256 << 20, 64 << 20, 16 << 20, 1 << 30, 24, 2
BURSTS, REST, RATE = 2, 0.3, 240e6


@dataclass(frozen=True)
class Place:
    """Where the ranks run."""

    directory: str
    device: str

    def sizes(self) -> dict[str, int]:
        by = 1 if self.device == "cpu" else 16
        return {"cache": CACHE * by, "host": HOST * by, "checkpoint": SIZE * by, "disk": DISK * by}


def rank(pipe: Connection, place: Place, number: int, group: str, spare: bool) -> None:
    """Writes a burst whenever it is told to, and answers with the seconds that its calls took."""
    os.environ["EBBTIDE_JOB"] = group
    lending: dict[str, Any] = {"lend": "spare", "borrow": "auto"} if spare else {}
    device, sizes = select(place.device, number), place.sizes()
    with (
        device.use(),
        ebbtide.open(
            device=device.name, directory=place.directory, device_cache=sizes["cache"], host_cache=sizes["host"],
            disk=sizes["disk"], **lending,
        ) as store,
    ):  # fmt: skip
        array = device.bytes(sizes["checkpoint"])
        pipe.send(None)
        first = 0
        while (told := pipe.recv()) != "end":
            if told == "burst":
                blocked = 0.0
                for version in range(first, first + COUNT):
                    array[:] = version % 251
                    device.synchronize()
                    begin = time.monotonic()
                    store.checkpoint(version, array)
                    device.synchronize()
                    blocked += time.monotonic() - begin
                pipe.send(blocked)
                continue
            store.wait("local")
            wrong = sum(
                bool((store.restore(version, keep=True) != version % 251).any())
                for version in range(first, first + COUNT)
            )
            for version in range(first - COUNT, first):
                if version >= 0:
                    store.drop(version)
            first += COUNT
            pipe.send(wrong)


@contextlib.contextmanager
def ranks(place: Place, spare: bool) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    group = f"bench-{uuid.uuid4().hex}"
    pipes, processes = [], []
    for number in range(RANKS):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=rank, args=(theirs, place, number, group, spare), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    yield pipes
    for pipe in pipes:
        pipe.send("end")
    for process in processes:
        process.join()


def blocked(place: Place, spare: bool, in_turn: bool) -> float:
    """Seconds in all calls."""
    total = 0.0
    with ranks(place, spare) as pipes:
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


def measured(place: Place, repeats: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for name, in_turn in (("in_turn", True), ("same_moment", False)):
            of = {spare: blocked(place, spare, in_turn) for spare in (False, True)}
            found.setdefault(f"{name}_alone_s", []).append(of[False])
            found.setdefault(f"{name}_spare_s", []).append(of[True])
            found.setdefault(f"{name}_over_alone", []).append(of[True] / of[False])
    return found


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    found: dict[str, Any] = {"machine": harness.machine(given.dir)}
    with contextlib.ExitStack() as made:
        directory = made.enter_context(tempfile.TemporaryDirectory(dir=given.dir))
        if given.device == "cpu":
            directory = str(made.enter_context(slow_disk(Path(directory), RATE)))
            found["disk_bytes_per_s"] = RATE
        else:
            found["machine"]["gpu"] = select(given.device).model
        found |= measured(Place(directory, given.device), given.repeats)
    for name, bar in (("in_turn", 0.5), ("same_moment", 1.03)):
        row = harness.Row(name, f"<= {bar}", found[f"{name}_over_alone"], harness.at_most(bar))
        print(harness.table([row]))
    harness.leave(found, given.json)


if __name__ == "__main__":
    main()
