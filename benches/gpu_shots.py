#!/usr/bin/env python3
"""Shots on a GPU: one open store for each group of cases, every case --repeats times, the repeats outermost, so that a
time budget that ends leaves fewer repeats of all rather than some without any."""

from __future__ import annotations

import argparse
import itertools
import mmap
import re
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import harness
import numpy as np
from ebbtide import _traces as trace
from ebbtide._units import format_size, parse_size
from ebbtide.bench import shots

ORDERS = ("reverse", "sequential", "irregular")
CHUNKS = {"within": 4 << 20, "up": 16 << 20, "read": 4 << 20}  # longest transfer of a link
TRACE_BYTES = 40e9
PAGE = 4096
MOVES = 1.2  # a shot takes that much longer than its intervals and the disk's part, as a first guess


@dataclass
class Case:
    """A shot to be made several times."""

    name: str
    plan: dict[str, Any]  # of ebbtide.bench.shots, but for the seed
    disk: int  # bytes that it needs on the disk


@dataclass
class Group:
    """Cases over one open store."""

    name: str
    cases: list[Case]
    store: dict[str, Any]


def even(count: int, size: int) -> list[int]:
    return [size] * count


def uneven(total: float) -> list[int]:
    """Sizes like a real shot's, together `total` bytes."""
    once = sum(trace.column(trace.make_trace(gpus=1), 0))
    return trace.column(trace.make_trace(gpus=1, scale=total / once), 0)


def beyond(sizes: list[int], store: dict[str, Any]) -> int:
    """Bytes of a history that the caches of `store` cannot hold."""
    return max(0, sum(sizes) - store["device_cache"] - store["host_cache"])


def memory_group(scale: Scale) -> Group:
    cases = [
        Case(f"memory {interval * 1e3:g}ms {order}", scale.plan(interval, order), 0)
        for interval in (0.010, 0.003)
        for order in ORDERS
    ]
    return Group("memory", cases, {"device_cache": scale.device, "host_cache": 2 * scale.host, "disk": 0})


def disk_group(scale: Scale) -> Group:
    store = {"device_cache": scale.device, "host_cache": scale.host}
    cases = [
        Case(
            f"disk 10ms {order} {'wait' if wait else 'no wait'}",
            scale.plan(0.010, order, wait=wait),
            sum(scale.sizes) if wait else beyond(scale.sizes, store),
        )
        for order in ORDERS
        for wait in (False, True)
    ]
    sizes = [size // scale.divide or 1 for size in uneven(TRACE_BYTES)]
    plan = scale.plan(0.010, "irregular") | {"sizes": sizes, "verify": True}
    cases.append(Case("variable 10ms irregular", plan, beyond(sizes, store)))
    return Group("disk", cases, store)


def verified_group(scale: Scale) -> Group:
    sizes = even(64, scale.sizes[0] // 8)
    cases = [
        Case(
            f"verified {order}, hints {hints}, {'wait' if wait else 'no wait'}",
            {"sizes": sizes, "order": order, "hints": hints, "wait": wait, "interval": 0.001, "verify": True},
            sum(sizes),
        )
        for order, hints, wait in itertools.product(ORDERS, ("all", "one", "none"), (False, True))
    ]
    return Group("verified", cases, {"device_cache": 4 * sizes[0], "host_cache": 16 * sizes[0]})


@dataclass
class Scale:
    """How large everything is; `divide` makes it smaller than the figures ask for, to try the program out."""

    divide: int
    count: int

    @property
    def device(self) -> int:
        return 4 * harness.GIB // self.divide

    @property
    def host(self) -> int:
        return 32 * harness.GIB // self.divide

    @property
    def sizes(self) -> list[int]:
        return even(self.count, 128 * harness.MIB // self.divide)

    def plan(self, interval: float, order: str, **more: Any) -> dict[str, Any]:
        return {"sizes": self.sizes, "interval": interval, "order": order, "hints": "all"} | more


GROUPS = {"verified": verified_group, "memory": memory_group, "disk": disk_group}


def longest(document: dict, bare: dict[str, float]) -> dict[str, Any]:
    """The longest restore in seconds, its share of what it was allowed (1.5 times what its bytes need on the slowest link
    that they still have to cross, and a chunk a link), and the largest such share of any restore, however short."""
    config = document["config"]
    sizes = config["sizes"][0] if config["sizes"] else [config["size"]] * config["checkpoints"]
    rates = {"within": bare.get("device_copy", bare.get("copy_out"))}
    rates["up"] = bare.get("h2d", rates["within"])
    rates["read"] = bare.get("read", rates["up"])
    crossed = {"device": ["within"], "host": ["up"], "local": ["up", "read"]}
    shares = []
    restores = zip(
        config["restore_order"], document["restore"]["blocked_s"], document["restore"]["found_on"], strict=True
    )
    for version, blocked, tier in restores:
        links = crossed[tier or "local"]
        need = sizes[version] / min(rates[link] for link in links)
        shares.append((blocked, blocked / (1.5 * need + sum(CHUNKS[link] / rates[link] for link in links)), tier))
    longest_s, of_allowed, _ = max(shares, key=lambda each: each[0])
    worst_s, worst, tier = max(shares, key=lambda each: each[1])
    return {
        "longest_restore_s": longest_s,
        "longest_of_allowed": of_allowed,
        "largest_share": worst,
        "largest_share_s": worst_s,
        "largest_share_found_on": tier,
    }


def mean_rates(document: dict) -> dict[str, float]:
    """Bare bytes/s by name: the mean of before and after the shot."""
    found: dict[str, float] = {}
    before, after = document["machine"]["before"], document["machine"]["after"]
    for name in document["machine"]["drift"]:
        values = []
        for taken in (before, after):
            if name == "device_copy":
                values.append(taken["size"] / taken["device_copy_s"])
            elif name in ("write", "read"):
                values.append(taken[name]["bytes_per_s"])
            else:
                values.append(taken.get(f"{name}_bytes_s", taken.get(name)))
        found[name] = statistics.mean(values)
    return found


def figures(document: dict) -> dict[str, Any]:
    """What is kept of one shot."""
    reference = mean_rates(document)
    disk = document["machine"]["disk"]
    bare = reference | (disk["mean"] if disk else {})
    found_on = document["restore"]["found_on"]
    kept = harness.shot_figures(document) | {
        "found_on": {str(tier): found_on.count(tier) for tier in dict.fromkeys(found_on)},
        "found_on_device": found_on.count("device") / len(found_on),
        **longest(document, bare),
        "cores": document["host_cpu"]["cores"],
        "flush_wait_s": document["flush_wait_s"],
        "open_s": document["open_s"],
        "fill_s": document["fill_s"],
        "bare_bytes_per_s": bare,
        "reference_bytes_per_s": reference,
        "disk": disk,
        "moved": moved(document),
        "seed": document["config"]["seed"],
        "verified": document["verified"]["restores"],
    }
    for call in ("checkpoint", "restore"):
        copy = document[call].get("bare_copy_s")
        mean = statistics.mean(document[call]["blocked_s"])
        kept |= {f"{call}_mean_s": mean, f"{call}_bare_s": copy, f"{call}_over_bare": mean / copy if copy else None}
    return kept


def moved(document: dict) -> dict[str, dict[str, float]]:
    """What crossed each link behind the program, how long it was at work, and what the planner made of that."""
    told = ("bytes", "busy_s", "estimate_bytes_per_s")
    return {
        link["name"]: {key: link[key] for key in told}
        for link in document["stats"][0]["links"]
        if "app" not in link["name"].split(">")
    }


def guess(case: Case, disk_bytes_per_s: float, around: int = 0) -> float:
    """Seconds that one shot may take, with measuring the bare disk by `around` bytes after it, and between its passes if
    it waits there."""
    plan, wait = case.plan, case.plan.get("wait", False)
    intervals = 2 * len(plan["sizes"]) * plan["interval"]
    there, back = case.disk / disk_bytes_per_s, case.disk / disk_bytes_per_s
    shot = MOVES * max(intervals, intervals / 2 + there + back * (not wait))
    return shot + (1 + wait) * 2 * around / disk_bytes_per_s


def touch_once(size: int, threads: int = 16) -> float:
    """Seconds to touch `size` bytes of new memory, which is given back: a guest whose memory was never used gets it from
    its host page by page, once, however often its programs then ask for it."""
    began = time.perf_counter()
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        pages = np.frombuffer(memory, np.uint8)[::PAGE]
        workers = [threading.Thread(target=part.fill, args=(1,)) for part in np.array_split(pages, threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        del pages, workers
    return time.perf_counter() - began


def run(group: Group, given: argparse.Namespace, deadline: float) -> dict[str, Any]:
    """Every case of a group: what was kept of each shot, and what was left out."""
    disk_around = group.name == "disk"
    around = max(beyond(case.plan["sizes"], group.store) for case in group.cases) if disk_around else 0
    free = shutil.disk_usage(given.dir).free - harness.GIB - around
    left_out = {case.name: f"needs {format_size(case.disk)} of disk, {format_size(free)} are free"
                for case in group.cases if case.disk > free}  # fmt: skip
    cases = [case for case in group.cases if case.name not in left_out]
    repeats = 1 if group.name == "verified" else given.repeats
    store = {"directory": given.dir, "device": given.device} | group.store
    if given.event_log:
        store["event_log"] = f"{given.event_log}.{group.name}"
    if "disk" not in store:
        whole = max(sum(-(-size // PAGE) * PAGE for size in case.plan["sizes"]) for case in cases) + (64 << 20)
        store["disk"] = min(whole, free)
    touched_s = touch_once(group.store["host_cache"])
    expected = sum(guess(case, given.disk_rate, around) for case in cases)
    print(f"{group.name}: {len(cases)} cases, about {expected:.0f} s a repeat, {repeats} repeats;"
          f" {deadline - time.monotonic():.0f} s are left", file=sys.stderr, flush=True)  # fmt: skip

    todo = [(case, case.plan | {"seed": repeat}) for repeat in range(repeats) for case in cases]
    following = iter(todo)
    last: tuple[Case, float] | None = None
    took: dict[str, float] = {}

    def enough() -> bool:
        """Whether the next shot would end too late: as long as it took before, or as guessed."""
        nonlocal last
        now = time.monotonic()
        if last:
            took[last[0].name] = now - last[1]
        last = next(following)[0], now
        return now + took.get(last[0].name, guess(last[0], given.disk_rate, around)) > deadline

    def say(text: str) -> None:
        print(f"  [{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)

    runs: dict[str, list[dict]] = {case.name: [] for case in cases}
    if cases:
        documents = shots([plan for _, plan in todo], store, remeasure=False, say=say, enough=enough,
                          disk_around=disk_around)  # fmt: skip
        for (case, _), document in zip(todo, documents):
            runs[case.name].append(figures(document))
    for case in cases:
        if len(runs[case.name]) < repeats:
            left_out[case.name] = f"the time ended after {len(runs[case.name])} of {repeats}"
    return {
        "store": store,
        "touched_s": touched_s,
        "runs": {name: found for name, found in runs.items() if found},
        "left_out": left_out,
    }


def chosen(given: argparse.Namespace) -> Iterator[Group]:
    scale = Scale(given.divide, given.checkpoints)
    for name in given.groups.split(","):
        group = GROUPS[name](scale)
        group.cases = [case for case in group.cases if re.search(given.cases, case.name)]
        if group.cases:
            yield group


def main() -> int:
    options = harness.options(__doc__)
    options.add_argument("--device", default="cuda")
    options.add_argument("--groups", default=",".join(GROUPS), help="some of " + ", ".join(GROUPS))
    options.add_argument("--cases", default="", metavar="REGEX", help="only cases whose names match")
    options.add_argument(
        "--budget", type=float, default=3600, metavar="SECONDS", help="no shot is begun that ends later"
    )
    options.add_argument(
        "--disk-rate", type=parse_size, default=1_400_000_000, metavar="SIZE", help="a second, for the guesses"
    )
    options.add_argument("--divide", type=int, default=1, help="every size by this, to try the program out")
    options.add_argument("--checkpoints", type=int, default=384)
    options.add_argument("--event-log", metavar="FILE", help="each group's planner events go to FILE.GROUP")
    given = options.parse_args()
    deadline = time.monotonic() + given.budget
    found: dict[str, Any] = {}
    wrong = 0
    for group in chosen(given):
        found[group.name] = run(group, given, deadline)
        wrong += sum(shot["wrong"] for runs in found[group.name]["runs"].values() for shot in runs)
        # After each group: what was measured is kept whatever happens to the next.
        harness.leave(found, given.json)
    if wrong:
        print(f"gpu_shots: {wrong} restores had wrong bytes", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
