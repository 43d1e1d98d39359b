#!/usr/bin/env python3
"""Shots on host memory through `ebbtide bench shot`: blocked time beside the bound and the simulator's prediction."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

INTERVALS = ("2ms", "20ms")
ORDERS = ("reverse", "sequential", "irregular")
WAITS = ("--no-wait", "--wait")


def shot(arguments: list[str]) -> dict:
    """One run's document."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "shot.json"
        program = "import sys; from ebbtide.bench.command import app; app(sys.argv[1:])"
        command = [sys.executable, "-c", program, "shot", *arguments, "--json", str(out)]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"bench shot {' '.join(arguments)} ended with {ran.returncode}: {ran.stderr}")
        return json.loads(out.read_text())


def figures(document: dict) -> dict:
    """What is kept of one run."""
    kept = harness.shot_figures(document)
    before = document["machine"]["before"]
    return kept | {
        "predicted_over_measured": kept["predicted_s"] / kept["blocked_s"],
        "bare": {name: (before[name] or {}).get("bytes_per_s") for name in ("write", "read")},
        "repeated": document["machine"]["repeated"],
    }


def main() -> int:
    options = harness.options(__doc__)
    options.add_argument("--checkpoints", type=int, default=128)
    options.add_argument("--size", default="16MiB")
    options.add_argument("--device-cache", default="64MiB")
    options.add_argument("--host-cache", default="256MiB")
    options.add_argument("--intervals", default=",".join(INTERVALS))
    options.add_argument("--orders", default=",".join(ORDERS))
    given = options.parse_args()
    fixed = ["--checkpoints", str(given.checkpoints), "--size", given.size, "--dir", given.dir]
    fixed += ["--device-cache", given.device_cache, "--host-cache", given.host_cache, "--hints", "all"]
    cases = list(itertools.product(given.intervals.split(","), given.orders.split(","), WAITS))
    runs: dict[str, list[dict]] = {" ".join(case): [] for case in cases}
    for repeat in range(given.repeats):  # the repeats outermost: a slow minute of the machine does not fall on one case
        for interval, order, wait in cases:
            arguments = [*fixed, "--interval", interval, "--order", order, wait, "--seed", str(repeat)]
            runs[f"{interval} {order} {wait}"].append(figures(shot(arguments)))
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    harness.leave({"fixed": fixed, "runs": runs}, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
