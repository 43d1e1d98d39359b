#!/usr/bin/env python3
"""Eviction rules compared in the simulator: the same traces, orders and machines, only the rule changed.

A value is the blocked time of one seed's shots, with and without waiting for flushes, over that of the same shots under
another rule. A seed draws sizes, irregular orders and the computing times (10% about the interval).
"""

from __future__ import annotations

import argparse
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import harness
from ebbtide import sim
from ebbtide._traces import column, make_trace

MIB = harness.MIB
ORDERS = ("reverse", "sequential", "irregular")
OTHERS = ("score_paper", "lru", "fifo")


def node(eviction: str) -> tuple[sim.Machine, int, int, float]:
    """A GPU's share of a node as in hpdc23 sec. 5.3.4: machine, checkpoints, mean size, interval."""
    links = {name: sim.Link(1.8e12) for name in ("app>device", "device>app")}
    links |= {name: sim.Link(55e9) for name in ("device>host", "host>device")}
    links |= {name: sim.Link(25e9) for name in ("app>host", "host>app")}
    links |= {"host>local": sim.Link(2.5e9, group="disk"), "local>host": sim.Link(1.7e9, group="disk")}
    tiers = [sim.Tier("device", "4GiB"), sim.Tier("host", "32GiB"), sim.Tier("local", "1TiB")]
    return sim.Machine(tiers, links, {"disk": 0.0}, eviction=eviction, prefetch="manual"), 384, 128 * MIB, 0.010


def laptop(eviction: str) -> tuple[sim.Machine, int, int, float]:
    """Host memory and a disk: caches of 64 MiB and 256 MiB for 128 checkpoints of 16 MiB."""
    machine = sim.Machine.usual(
        "64MiB", "256MiB", "1TiB", copy=8e9, device_host=8e9, memory=12e9, file_write=2e9, file_read=3e9,
        eviction=eviction, prefetch="manual",
    )  # fmt: skip
    return machine, 128, 16 * MIB, 0.005


def sizes_of(kind: str, count: int, mean: int, seed: int) -> list[int]:
    if kind == "equal":
        return [mean] * count
    made = column(make_trace(count, 1, seed), 0)
    scale = mean * count / sum(made)
    return [max(1, round(size * scale)) for size in made]


def blocked(make, kind: str, order: str, hints: str, eviction: str, seed: int) -> float:
    """Seconds that the program stood, summed over a shot that waits for flushes and one that does not."""
    machine, count, mean, interval = make(eviction)
    rng = random.Random(seed)
    slept = [[interval * (0.9 + 0.2 * rng.random()) for _ in range(count)] for _ in range(2)]
    total = 0.0
    for wait in (False, True):
        shot = sim.Shot(
            sizes_of(kind, count, mean, seed), order=order, hints=hints, forward=slept[0], backward=slept[1],
            compute_after_restore=True, wait=wait, seed=seed + 1,
        )  # fmt: skip
        ran = sim.run(machine, shot)
        if ran.refused:
            raise RuntimeError(f"{eviction}, {order}, {kind}: {ran.refused[0].reason}: {ran.refused[0].detail}")
        total += ran.blocked_s
    return total


def compare(cases: list[tuple], seeds: int, pool: ThreadPoolExecutor) -> dict[tuple, list[float]]:
    """The blocked times of every case, a value a seed."""
    asked = {case: [pool.submit(blocked, *case, seed) for seed in range(seeds)] for case in cases}
    return {case: [future.result() for future in futures] for case, futures in asked.items()}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", type=Path)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--machines", default="laptop,node")
    given = options.parse_args()
    makes = {"laptop": laptop, "node": node}
    found: dict[str, dict] = {"no_hints_over_lru": {}, "score_over": {}, "blocked_s": {}}
    with ThreadPoolExecutor(2) as pool:
        for name in given.machines.split(","):
            for kind in ("equal", "varying"):
                for order in ORDERS:
                    ways = [("none", "score"), ("none", "lru"), *(("all", rule) for rule in ("score", *OTHERS))]
                    cases = [(makes[name], kind, order, hints, rule) for hints, rule in ways]
                    times = {case[3:]: values for case, values in compare(cases, given.seeds, pool).items()}
                    label = f"{name}, {kind} sizes, {order}"
                    found["blocked_s"][label] = {f"{hints} {rule}": values for (hints, rule), values in times.items()}
                    found["no_hints_over_lru"][label] = harness.over(times["none", "score"], times["none", "lru"])
                    for rule in OTHERS:
                        found["score_over"][f"{rule}: {label}"] = harness.over(
                            times["all", "score"], times["all", rule]
                        )
                    print(label, file=sys.stderr, flush=True)
    harness.leave(found, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
