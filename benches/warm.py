#!/usr/bin/env python3
"""What the first save of a new manager costs over the second, with `warm=True` and without, in turns.

Each repeat opens a new store, whose caches have room for three states, and saves a state on processors three times, each
when the one before is durable.

  benches/warm.py --dir /mnt/disk                    # writes benches/results/warm.json
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import ebbtide.torch
import harness
import torch


def saves(directory: str, warm: bool, state: torch.Tensor) -> tuple[float, list[float]]:
    """Seconds of the constructor, and of each save."""
    start = time.perf_counter()
    room = {"device": "cpu", "device_cache": 3 * state.nbytes, "host_cache": 0, "disk": 8 * state.nbytes}
    with ebbtide.torch.Manager(directory, warm=warm, **room) as manager:
        opened = time.perf_counter() - start
        found = []
        for step in range(3):
            start = time.perf_counter()
            manager.save(step, state=state)
            found.append(time.perf_counter() - start)
            manager.wait()
    return opened, found


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=9)
    parser.add_argument("--bytes", type=int, default=256 * harness.MIB)
    parser.set_defaults(json=harness.RESULTS / "warm.json")
    given = parser.parse_args()
    machine = harness.machine(given.dir)
    state = torch.ones(given.bytes // 4)
    ran: dict[bool, list[tuple[float, list[float]]]] = {False: [], True: []}
    for repeat in range(given.repeats + 1):
        for warm, found in ran.items():
            with tempfile.TemporaryDirectory(prefix="warm-", dir=given.dir) as directory:
                one = saves(directory, warm, state)
            if repeat:  # the first also imports and compiles
                found.append(one)
    machine["load_after"] = os.getloadavg()[0]
    rows = []
    for warm, found in ran.items():
        name = "warm" if warm else "not warm"
        rows += [
            harness.told(f"{name}: constructor", [opened for opened, _ in found], " s"),
            harness.told(f"{name}: first save", [times[0] for _, times in found], " s"),
            harness.told(f"{name}: second save", [times[1] for _, times in found], " s"),
        ]
        over = harness.Row(
            f"{name}: first over second",
            "at most 2",
            [times[0] / times[1] for _, times in found],
            harness.at_most(2),
            " times",
        )
        rows.append(harness.judged_if(warm, over))
    print(harness.table(rows))
    document = {
        "figure": "warm",
        "command": [Path(__file__).name, "--bytes", str(given.bytes), "--repeats", str(given.repeats)],
        "machine": machine,
        "rows": [row.as_json() for row in rows],
    }
    given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
