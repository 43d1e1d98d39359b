#!/usr/bin/env python3
"""Background copies of two processes on one GPU into a node's pool, beside caches of their own.

Each writes 2 GiB in checkpoints of 128 MiB from its GPU and waits until all are in host memory, in rounds; before them,
once, as much as its host cache holds, so that all of that memory is touched and registered: that rate is a row of its
own. The rates are of both processes together. Adds "gpu" to benches/results/pool.json.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BYTES, COUNT, ROUNDS = 128 << 20, 16, 4
FIRST, PAUSE = 36, 5.0  # checkpoints that fill the host cache; seconds between the begins of rounds
CHILD = (
    """
import json, sys, time
import torch
import ebbtide

directory, pooled, start = sys.argv[1], sys.argv[2] == "pooled", float(sys.argv[3])
memory = {"node_pool": "10GiB", "durability": "node"} if pooled else {
    "host_cache": "5GiB", "durability": "process"}
store = ebbtide.open(directory, device="cuda", device_cache="2GiB", disk="24GiB", **memory)
x = torch.ones(BYTES // 4, device="cuda")
spans = []
for round in range(1 + ROUNDS):
    time.sleep(max(0.0, start + (8 if round else 0) + round * PAUSE - time.time()))
    begin = time.time()
    for version in range(COUNT if round else FIRST):
        store.checkpoint(version, x, timeout=None)
    store.wait("host")
    spans.append((begin, time.time()))
    store.wait("storage" if sys.argv[2] == "pooled" else "process")
    store.drop()
pinned = [t["arena"]["pinned"] for t in store.stats()["tiers"] if t["name"] == "host"]
print(json.dumps({"spans": spans, "pinned": pinned}))
""".replace("BYTES", str(BYTES))
    .replace("ROUNDS", str(ROUNDS))
    .replace("COUNT", str(COUNT))
    .replace("FIRST", str(FIRST))
    .replace("PAUSE", str(PAUSE))
)


def rates(directory: str, kind: str) -> list[float]:
    """GB/s of both processes, by round; the first is the one that touches and registers memory."""
    start = time.time() + 8
    running = []
    for rank in range(2):
        environment = os.environ | {"EBBTIDE_JOB": f"bench-{kind}", "EBBTIDE_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        place = f"{directory}/pooled" if kind == "pooled" else f"{directory}/own-{rank}"
        words = [sys.executable, "-c", CHILD, place, kind, str(start)]
        running.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    told = []
    for process in running:
        out, _ = process.communicate(timeout=200)
        if process.returncode:
            sys.exit(f"a process ended with {process.returncode}")
        told.append(json.loads(out))
    found = []
    for round, spans in enumerate(zip(*(one["spans"] for one in told))):
        took = max(end for _, end in spans) - min(begin for begin, _ in spans)
        found.append(2 * BYTES * (COUNT if round else FIRST) / took / 1e9)
    return found


def main() -> None:
    """Measures both, and adds them to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=str(HERE.parent / "build"), help="where the stores are")
    parser.add_argument("--out", default=str(HERE / "results" / "pool.json"))
    given = parser.parse_args()
    found: dict[str, list[float]] = {"own": [], "pooled": []}
    cold: dict[str, list[float]] = {"own": [], "pooled": []}
    for _ in range(2):
        for kind, values in found.items():
            with tempfile.TemporaryDirectory(
                prefix="pool-gpu-", dir=given.dir, ignore_cleanup_errors=True
            ) as directory:
                first, *later = rates(directory, kind)
                cold[kind].append(round(first, 2))
                values += later
    medians = {kind: statistics.median(values) for kind, values in found.items()}
    path = pathlib.Path(given.out)
    document = json.loads(path.read_text()) if path.exists() else {}
    document["gpu"] = {
        "processes": 2,
        "gb_per_s": {kind: [round(value, 2) for value in values] for kind, values in found.items()},
        "first_gb_per_s": cold,
        "pooled over own": round(medians["pooled"] / medians["own"], 3),
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["gpu"], indent=1))


if __name__ == "__main__":
    main()
