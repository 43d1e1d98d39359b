#!/usr/bin/env python3
"""What many small checkpoints cost: memory, bytes in files, bookkeeping, processor time, and opening their store again.

Each figure is of versions of 512 bytes, written by a process of its own, so that its memory is counted from a fresh
start. `--versions` sets how many (the bars are for a million).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

SIZE = 512


def resident() -> int:
    """Bytes of memory that the process holds now."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def on_disk(directory: str) -> int:
    return sum(path.stat().st_blocks * 512 for path in Path(directory).iterdir())


def write(directory: str, versions: int, host_cache: int) -> dict[str, float]:
    """Writes the versions to a persistent store, waits until they are durable, and closes it."""
    import ebbtide
    import numpy as np

    field = np.arange(SIZE // 8, dtype=np.float64)
    store = ebbtide.open(
        directory=directory,
        durability="storage",
        device_cache=0,
        host_cache=host_cache,
        disk=16 << 30,
    )
    warm = 1000
    for version in range(warm):  # memory that the first calls take
        store.checkpoint(version, field)
    store.wait(level="storage")
    before, start, processor = resident(), time.perf_counter(), time.process_time()
    for version in range(warm, warm + versions):
        field[0] = version
        store.checkpoint(version, field)
    written, spent = time.perf_counter(), time.process_time()
    store.wait(level="storage")
    durable, after = time.perf_counter(), time.process_time()
    grown = resident() - before
    start_close = time.perf_counter()
    store.close()
    closed = time.perf_counter()
    return {
        "call_us": (written - start) / versions * 1e6,
        "call_processor_us": (spent - processor) / versions * 1e6,
        "processor_us": (after - processor) / versions * 1e6,
        "durable_s": durable - start,
        "close_s": closed - start_close,
        "memory_bytes": grown / versions,
        "disk_bytes": on_disk(directory) / (warm + versions),
    }


def cache(versions: int) -> dict[str, float]:
    """Writes the versions to memory alone: what each takes there, its bytes and what the store knows of it."""
    import ebbtide
    import numpy as np

    field = np.arange(SIZE // 8, dtype=np.float64)
    with ebbtide.open(device_cache=0, host_cache=max(64 << 20, versions * 4096 * 5 // 4), disk=0) as store:
        for version in range(1000):
            store.checkpoint(version, field)
        before = resident()
        for version in range(1000, 1000 + versions):
            store.checkpoint(version, field)
        used = next(tier["used"] for tier in store.stats()["tiers"] if tier["name"] == "host")
        return {"held_bytes": (resident() - before) / versions, "place_bytes": used / (versions + 1000)}


def anonymous(pid: int | str = "self") -> int:
    """Bytes of memory that the process has for itself: no shared memory, as a pool's."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("/proc has no RssAnon")


def agent(directory: str) -> int:
    """The process of the agent that writes there."""
    from ebbtide import _core

    return next(each["agent"]["pid"] for each in _core.pools() if each["store"] == directory)


def pool(directory: str, versions: int) -> dict[str, float]:
    """The same in a node's pool of its own: what its process knows of each version, and what its agent does."""
    import ebbtide
    import numpy as np

    field = np.arange(SIZE // 8, dtype=np.float64)
    with ebbtide.open(
        directory=directory,
        durability="node",
        device_cache=0,
        node_pool=64 << 20,
        disk=16 << 30,
    ) as store:
        for version in range(1000):
            store.checkpoint(version, field)
        store.wait(level="storage")
        process = agent(directory)
        before = anonymous(), anonymous(process)
        for version in range(1000, 1000 + versions):
            store.checkpoint(version, field)
        store.wait(level="storage")
        after = anonymous(), anonymous(process)
    return {
        "pool_memory_bytes": (after[0] - before[0]) / versions,
        "agent_memory_bytes": (after[1] - before[1]) / versions,
    }


def reopen(directory: str) -> dict[str, float]:
    """Opens the store, as a program that was started again does."""
    import ebbtide
    import numpy as np

    before, start, processor = resident(), time.perf_counter(), time.process_time()
    with ebbtide.open(
        directory=directory, durability="storage", device_cache=0, host_cache=64 << 20, disk=16 << 30
    ) as store:
        opened, spent = time.perf_counter(), time.process_time()
        peak = resident()
        found = store.versions()
        last = store.restore(found[-1])
        if not np.array_equal(last[1:], np.arange(SIZE // 8, dtype=np.float64)[1:]):
            raise SystemExit("a version came back with other bytes")
        return {
            "open_s": opened - start,
            "open_processor_s": spent - processor,
            "open_versions": len(found),
            "open_memory_bytes": (peak - before) / max(1, len(found)),
            "open_rss_mib": peak / harness.MIB,
        }


def in_process_of_its_own(*words: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--part", *words], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", type=int, default=1_000_000)
    parser.add_argument("--directory", help="where the store is made and removed again (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="also writes the figures there")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        name, *words = given.part
        part = {"write": write, "reopen": reopen, "cache": cache, "pool": pool}[name]
        print(json.dumps(part(*(int(word) if word.isdigit() else word for word in words))))
        return
    load = os.getloadavg()[0]  # with other work beside it, times say little
    above = tempfile.mkdtemp(prefix="small-versions-", dir=given.directory and Path(given.directory).resolve())
    try:
        directory = str(Path(above) / "store")
        figures = in_process_of_its_own("write", directory, str(given.versions), str(64 << 20))
        figures |= in_process_of_its_own("reopen", directory)
        shutil.rmtree(directory)
        figures |= in_process_of_its_own("cache", str(min(given.versions, 200_000)))
        figures |= in_process_of_its_own("pool", directory, str(min(given.versions, 100_000)))
    finally:
        shutil.rmtree(above)
    for name, value in figures.items():
        print(f"{name:20} {value:12.4g}")
    if given.json:
        record = {"versions": given.versions, "bytes": SIZE, "load": load, "figures": figures}
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
