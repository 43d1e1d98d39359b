#!/usr/bin/env python3
"""How much a shot makes the process's resident memory grow since before `open`, beside the configured caches."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import harness

DEVICE, HOST = 64 << 20, 256 << 20
COUNT, SIZE = 128, 16 << 20


def resident() -> int:
    """Resident bytes of this process, every mapping summed by the kernel."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/smaps_rollup has no Rss line")


def shot(directory: str) -> dict:
    import ebbtide
    import numpy as np

    field, target = np.ones(SIZE, np.uint8), np.ones(SIZE, np.uint8)
    before = resident()
    peak = 0
    with ebbtide.open(
        directory=directory, device_cache=DEVICE, host_cache=HOST, disk=COUNT * SIZE + (64 << 20)
    ) as store:
        opened = resident()
        store.hint(list(range(COUNT - 1, -1, -1)))
        for version in range(COUNT):
            store.checkpoint(version, field)
            peak = max(peak, resident())
        for version in range(COUNT - 1, -1, -1):
            store.restore(version, out=target)
            peak = max(peak, resident())
    return {
        "growth_bytes": peak - before,
        "beyond_caches_bytes": peak - before - DEVICE - HOST,
        "after_open_bytes": opened - before,
        "after_close_bytes": resident() - before,
    }


def main() -> int:
    options = harness.options(__doc__)
    options.add_argument("--one", action="store_true", help="one shot in this process")
    given = options.parse_args()
    if given.one:
        print(json.dumps(shot(given.dir)))
        return 0
    command = [sys.executable, __file__, "--one", "--dir", given.dir]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(given.repeats)  # a process each: memory that was freed may stay with the allocator
    ]
    found = {name: [run[name] for run in runs] for name in runs[0]}
    found["caches_bytes"] = DEVICE + HOST
    harness.leave(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
