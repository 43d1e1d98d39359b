#!/usr/bin/env python3
"""What the first checkpoint in each place of a cache costs, where the kernel has yet to make the pages, and what `warm=True` costs.

Each repeat opens a store on processors with a device cache alone, with and without `warm=True` in turns, and writes as many
checkpoints as have room in it, each when the one before is in the file.

  benches/first_write.py --dir /mnt/disk             # writes benches/results/first_write.json
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import ebbtide
import harness
import numpy as np

PLACES = 4
SIZES = (64 * harness.MIB, 256 * harness.MIB)


def writes(directory: str, warm: bool, field: np.ndarray) -> tuple[float, list[float]]:
    """Seconds of `open`, and of each checkpoint."""
    start = time.perf_counter()
    room = {"device": "cpu", "device_cache": PLACES * field.nbytes, "host_cache": 0, "disk": 2 * PLACES * field.nbytes}
    with ebbtide.open(directory, warm=warm, **room) as store:
        opened = time.perf_counter() - start
        found = []
        for version in range(PLACES):
            start = time.perf_counter()
            store.checkpoint(version, field)
            found.append(time.perf_counter() - start)
            store.wait("local")
    return opened, found


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=9)
    parser.set_defaults(json=harness.RESULTS / "first_write.json")
    given = parser.parse_args()
    machine = harness.machine(given.dir)
    rows = []
    for size in SIZES:
        field = np.ones(size, np.uint8)
        ran: dict[bool, list[tuple[float, list[float]]]] = {False: [], True: []}
        for repeat in range(given.repeats + 1):
            for warm, found in ran.items():
                with tempfile.TemporaryDirectory(prefix="first-", dir=given.dir) as directory:
                    one = writes(directory, warm, field)
                if repeat:  # the first also imports
                    found.append(one)
        for warm, found in ran.items():
            name = f"{size >> 20} MiB, {'warm' if warm else 'not warm'}"
            rows.append(harness.told(f"{name}: open", [opened for opened, _ in found], " s"))
            rows.append(harness.told(f"{name}: checkpoint", [one for _, times in found for one in times], " s"))
    machine["load_after"] = os.getloadavg()[0]
    print(harness.table(rows))
    document = {
        "figure": "first_write",
        "command": [Path(__file__).name, "--repeats", str(given.repeats)],
        "machine": machine,
        "places": PLACES,
        "rows": [row.as_json() for row in rows],
    }
    given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
