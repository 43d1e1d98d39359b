#!/usr/bin/env python3
"""What a shared directory costs, and how fast it is: a run with one beside a run without, the rate at which versions go
there beside a bare O_DIRECT stream to the same directory, a restore from it alone beside bare reading, and the most bytes
that go there in any second under a cap. `--local` and `--dir` (the shared one) should be on different disks; with `--slow
RATE`, as root, the shared one is on a disk of its own, of a FUSE file system that writes so many bytes a second."""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import harness
from harness import MIB, Row, at_least, at_most, over
from slow_disk import slow_disk

SIZE, COUNT = 16 * MIB, 32
SMALL = {"device_cache": 4 * SIZE, "host_cache": 8 * SIZE, "disk": 2 * COUNT * SIZE}


def bare_write(directory: Path, count: int) -> float:
    """Seconds for a synced O_DIRECT stream."""
    memory = mmap.mmap(-1, SIZE)
    memory.write(os.urandom(1 << 20) * (SIZE >> 20))
    path = directory / "bare"
    begun = time.perf_counter()
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
    for _ in range(count):
        os.write(fd, memory)
    os.fsync(fd)
    os.close(fd)
    seconds = time.perf_counter() - begun
    return seconds


def bare_read(directory: Path) -> float:
    memory = mmap.mmap(-1, SIZE)
    begun = time.perf_counter()
    fd = os.open(directory / "bare", os.O_RDONLY | os.O_DIRECT)
    while os.readv(fd, [memory]) > 0:
        pass
    os.close(fd)
    seconds = time.perf_counter() - begun
    (directory / "bare").unlink()
    return seconds


def blocked(local: Path, shared: Path | None, interval: float) -> float:
    """Seconds that the calls of a program which computes between its checkpoints took."""
    import ebbtide
    import numpy as np

    field = np.random.default_rng(1).integers(0, 255, SIZE, dtype=np.uint8)
    options = {"shared": shared} if shared else {"durability": "storage"}
    options["durability"] = "process" if str(local).startswith("/dev/shm") else "storage"
    with ebbtide.open(local, **options, **SMALL, warm=True) as store:
        total = 0.0
        for version in range(COUNT):
            begun = time.perf_counter()
            store.checkpoint(version, field)
            total += time.perf_counter() - begun
            time.sleep(interval)
        store.wait(options["durability"])
    return total


def send(local: Path, shared: Path, limit: int = 0) -> tuple[float, float]:
    """Seconds until all is in the shared directory, and the most bytes that went there in any second."""
    import ebbtide
    import numpy as np

    field = np.random.default_rng(1).integers(0, 255, SIZE, dtype=np.uint8)
    durability = "process" if str(local).startswith("/dev/shm") else "storage"
    samples: list[tuple[float, int]] = []
    ended = threading.Event()
    with ebbtide.open(local, shared=shared, durability=durability, limit_shared=limit, **SMALL, warm=True) as store:

        def sample() -> None:
            while not ended.is_set():
                sent = next(link["bytes"] for link in store.stats()["links"] if link["name"] == "host>shared")
                samples.append((time.perf_counter(), sent))
                time.sleep(0.02)

        watcher = threading.Thread(target=sample)
        watcher.start()
        begun = time.perf_counter()
        for version in range(COUNT):
            store.checkpoint(version, field)
        store.wait("shared")
        seconds = time.perf_counter() - begun
        ended.set()
        watcher.join()
    most, first = 0, 0
    for now, sent in samples:
        while samples[first][0] < now - 1:
            first += 1
        most = max(most, sent - samples[first][1])
    return seconds, most


def send_on(local: Path, shared: Path) -> float:
    """Seconds until all that an earlier process left in the local directory is in the shared one."""
    import ebbtide
    import numpy as np

    field = np.random.default_rng(1).integers(0, 255, SIZE, dtype=np.uint8)
    durability = "process" if str(local).startswith("/dev/shm") else "storage"
    options = {"shared": shared, "durability": durability, **SMALL, "warm": True}
    with ebbtide.open(local, shared_every=1 << 40, **options) as store:
        for version in range(1, COUNT + 1):
            store.checkpoint(version, field)
        store.wait(durability)
    begun = time.perf_counter()
    with ebbtide.open(local, **options) as store:
        store.wait("shared")
        return time.perf_counter() - begun


def restore(local: Path, shared: Path) -> float:
    import ebbtide
    import numpy as np

    target = np.empty(SIZE, np.uint8)
    durability = "process" if str(local).startswith("/dev/shm") else "storage"
    with ebbtide.open(local, shared=shared, durability=durability, **SMALL, warm=True) as store:
        order = store.versions()
        store.hint(order)
        begun = time.perf_counter()
        for version in order:
            store.restore(version, out=target)
        return time.perf_counter() - begun


def rows(found: dict) -> list[Row]:
    return [
        Row(
            "blocked with shared / without",
            "<= 1.05",
            over(found["blocked_with_s"], found["blocked_without_s"]),
            at_most(1.05),
        ),
        Row("rate to shared / bare", ">= 0.9", over(found["bare_write_s"], found["send_s"]), at_least(0.9)),
        Row("the same of what is local already", "", over(found["bare_write_s"], found["send_on_s"]), None),
        Row("restore from shared / bare", ">= 0.9", over(found["bare_read_s"], found["restore_s"]), at_least(0.9)),
        Row(
            "most in a second / cap",
            "<= 1.05",
            [most / found["cap_bytes_per_s"] for most in found["most_in_a_second"]],
            at_most(1.05),
        ),
    ]


def main() -> int:
    options = harness.options(__doc__)
    options.add_argument("--local", default="/dev/shm")
    options.add_argument("--interval", type=float, default=0.05)
    options.add_argument("--cap", type=int, default=100_000_000)
    options.add_argument("--slow", type=float)
    given = options.parse_args()
    with contextlib.ExitStack() as disks:
        if given.slow:
            directory = disks.enter_context(tempfile.TemporaryDirectory(dir=given.dir))
            given.dir = disks.enter_context(slow_disk(Path(directory), given.slow))
        return measure(given)


def measure(given: argparse.Namespace) -> int:
    local, shared = Path(given.local) / "shared-tier-local", Path(given.dir) / "shared-tier"
    names = (
        "blocked_without_s",
        "blocked_with_s",
        "bare_write_s",
        "bare_read_s",
        "send_s",
        "send_on_s",
        "restore_s",
        "most_in_a_second",
    )
    found: dict = {name: [] for name in names}
    found |= {"cap_bytes_per_s": given.cap, "bytes": SIZE * COUNT, "machine": harness.machine(given.dir)}

    def clear() -> None:
        for directory in (local, shared):
            shutil.rmtree(directory, ignore_errors=True)

    for _ in range(given.repeats):
        clear()
        found["blocked_without_s"].append(blocked(local, None, given.interval))
        clear()
        found["blocked_with_s"].append(blocked(local, shared, given.interval))
        clear()
        found["bare_write_s"].append(bare_write(Path(given.dir), COUNT))
        found["bare_read_s"].append(bare_read(Path(given.dir)))
        found["send_s"].append(send(local, shared)[0])
        shutil.rmtree(local)
        found["restore_s"].append(restore(local, shared))
        clear()
        found["send_on_s"].append(send_on(local, shared))
        clear()
        found["most_in_a_second"].append(send(local, shared, given.cap)[1])
    clear()
    print(harness.table(rows(found)), file=sys.stderr)
    found["rows"] = [row.as_json() for row in rows(found)]
    harness.leave(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
