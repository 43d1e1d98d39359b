#!/usr/bin/env python3
"""The simulator beside the real runtime: blocked time of shots, predicted from the rates that the links had in each run.

Shots on host memory are run here; those of a GPU are read from a recorded file (results/gpu.json), which needs no GPU.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import gpu_shots
import harness
import predicted_figures
import shots
from ebbtide import sim
from ebbtide.bench import model
from ebbtide.bench.config import Config
from ebbtide.bench.rank import Outcome


def of_gpu(recorded: dict[str, Any]) -> dict[str, list[dict[str, float]]]:
    """The shots of gpu_shots. They keep the sum of what was slept: each interval counts as their mean."""
    scale = gpu_shots.Scale(1, 384)
    found: dict[str, list[dict[str, float]]] = {}
    for group, recording in recorded.items():
        plans = {case.name: case.plan for case in gpu_shots.GROUPS[group](scale).cases}
        for name, several in recording["runs"].items():
            found[name] = [_gpu_shot(plans[name], recording["store"], run) for run in several]
    return found


def _gpu_shot(plan: dict[str, Any], store: dict[str, Any], run: dict[str, Any]) -> dict[str, float]:
    sizes = tuple(plan["sizes"])
    config = Config(
        sizes=(sizes,), order=plan["order"], hints=plan["hints"], interval=plan["interval"],
        device_cache=store["device_cache"], host_cache=store["host_cache"], disk=store["disk"], directory=Path(),
        wait=plan.get("wait", False), policy="score", prefetch="manual", coupling="free", verify=False, seed=run["seed"],
        device="cuda",
    )  # fmt: skip
    mean = run["intervals_s"] / (2 * len(sizes))
    slept = Outcome(0, slept_forward_s=[mean] * len(sizes), slept_backward_s=[mean] * len(sizes))
    size = config.median_size()
    copies = {"app>device": size / run["checkpoint_bare_s"], "device>app": size / run["restore_bare_s"]}
    bare = model.machine(config, run["bare_bytes_per_s"])
    observed = model.as_it_ran(bare, model.rates_of_run(run["moved"], copies))
    shot = model.traces(config, [slept])
    return {
        "blocked_s": run["blocked_s"],
        "predicted_s": sim.run_ranks(observed, shot).blocked_s,
        "from_bare_rates_s": sim.run_ranks(bare, shot).blocked_s,
    }


def on_cpu(directory: str, repeats: int) -> dict[str, list[dict[str, float]]]:
    """The shots of shots.py, run now."""
    fixed = ["--checkpoints", "128", "--size", "16MiB", "--device-cache", "64MiB", "--host-cache", "256MiB"]
    fixed += ["--hints", "all", "--dir", directory]
    cases = list(itertools.product(shots.INTERVALS, shots.ORDERS, shots.WAITS))
    runs: dict[str, list[dict[str, float]]] = {f"{a} {b} {c.strip('-').replace('-', ' ')}": [] for a, b, c in cases}
    for repeat in range(repeats):
        for name, (interval, order, wait) in zip(runs, cases, strict=True):
            document = shots.shot([*fixed, "--interval", interval, "--order", order, wait, "--seed", str(repeat)])
            runs[name].append(
                {
                    "blocked_s": document["total"]["blocked_s"],
                    "predicted_s": document["predicted"]["blocked_s"],
                    "from_bare_rates_s": document["predicted"]["from_bare_rates_s"],
                }
            )
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return runs


def main() -> int:
    options = harness.options(__doc__)
    options.add_argument("--gpu", type=Path, default=harness.RESULTS / "gpu.json", help="recorded shots of a GPU")
    options.add_argument("--only", choices=("cpu", "gpu"), help="the others are left out")
    given = options.parse_args()
    found: dict[str, Any] = {}
    if given.only != "gpu":
        machine = harness.machine(given.dir)
        runs = on_cpu(given.dir, given.repeats)
        found["cpu"] = {"machine": machine, "rows": predicted_figures.summary(runs), "runs": runs}
    if given.only != "cpu":
        recorded = json.loads(given.gpu.read_text())
        runs = of_gpu(recorded["measured"]["shots"])
        found["gpu"] = {"machine": recorded["machine"], "rows": predicted_figures.summary(runs), "runs": runs}
    harness.leave(found, given.json)
    for part in found.values():
        for row in predicted_figures.table(part["rows"])[1]:
            print("  ".join(row), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
