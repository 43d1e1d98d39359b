#!/usr/bin/env python3
"""Shots on host memory through `ebbtide bench shot`: blocked time beside the bound and the simulator's prediction."""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

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
    slept = document["slept"]
    intervals = sum(slept["forward_s"]) + sum(slept["backward_s"])
    blocked, bound = document["total"]["blocked_s"], document["bound"]["blocked_s"]
    predicted = document["predicted"]["blocked_s"]
    return {
        "blocked_s": blocked,
        "checkpoint_blocked_s": sum(document["checkpoint"]["blocked_s"]),
        "restore_blocked_s": sum(document["restore"]["blocked_s"]),
        "bound_s": bound,
        "predicted_s": predicted,
        "intervals_s": intervals,
        "excess": (blocked - bound) / (intervals + bound),
        "predicted_over_measured": predicted / blocked,
        "wall_s": document["total"]["wall_s"],
        "bare": {name: (document["machine"]["before"][name] or {}).get("bytes_per_s") for name in ("write", "read")},
        "steady": document["machine"]["steady"],
        "repeated": document["machine"]["repeated"],
        "wrong": document["verified"]["wrong"],
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--dir", default="/tmp")
    options.add_argument("--repeats", type=int, default=5)
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
    text = json.dumps({"fixed": fixed, "runs": runs}, indent=1) + "\n"
    given.json.write_text(text) if given.json else print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
