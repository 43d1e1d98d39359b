#!/usr/bin/env python3
"""What an idle GPU's link adds: a store on one GPU writes to host memory and reads back, alone, and then with memory that
another GPU lends.

Rates are of what left host memory or came there, over all links: sustained, in the middle of 48 GiB, while all caches above
the host are full or empty and the links set the pace; and of the whole, to the last byte on the host, or back. Versions are
restored in the order in which they were written. Every byte that came back is compared.

  benches/relays.py --json benches/results/relays.json
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import ebbtide
import harness
import torch
from ebbtide.bench.lending import in_group, wait_until_lent

GROUP, LENT, SIZE, COUNT = "bench-relays", 8 << 30, 128 << 20, 384
DOWN, UP = ("device>host", "peer>host"), ("host>device", "host>peer")
# Versions: of those written, the caches above the host hold 96; of those read, they had the last 96 at first.
MIDDLE = {"down": range(128, 320), "up": range(32, 224)}


def lend(pipe: Connection) -> None:
    with in_group(GROUP):
        store = ebbtide.open(device="cuda:1", device_cache=0, host_cache="4KiB", disk=0, lend=LENT)
    pipe.send(None)
    pipe.recv()
    store.close()


def over(store: Any, links: tuple[str, ...]) -> list[int]:
    by_name = {link["name"]: link["bytes"] for link in store.stats()["links"]}
    return [by_name[name] for name in links]


class Meter:
    """Bytes over some links, and how fast they went."""

    def __init__(self, store: Any, links: tuple[str, ...]) -> None:
        self.store, self.links = store, links
        self.bytes, self.relayed, self.begin = over(store, links), store.stats()["relayed"], time.monotonic()

    def read(self) -> dict[str, Any]:
        took = time.monotonic() - self.begin
        moved = [after - was for after, was in zip(over(self.store, self.links), self.bytes)]
        return {
            "bytes_per_s": sum(moved) / took,
            "bytes": dict(zip(self.links, moved)),
            "seconds": took,
            "relayed": self.store.stats()["relayed"] - self.relayed,
        }


def one_pass(store: Any, name: str) -> dict[str, Any]:
    history = store.history(name)
    array = torch.empty(SIZE // 4, device="cuda:0")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda:0")
    found: dict[str, Any] = {}

    def write(version: int) -> None:
        array.fill_(version)
        history.checkpoint(version, array)

    def read(version: int) -> None:
        history.restore(version, out=array)
        wrong.add_((array != version).sum())

    for way, links, work in (("down", DOWN, write), ("up", UP, read)):
        middle = MIDDLE[way]
        if way == "up":
            history.hint(range(COUNT))
        whole = sustained = Meter(store, links)
        for version in range(COUNT):
            if version == middle.start:
                torch.cuda.synchronize()
                sustained = Meter(store, links)
            work(version)
            if version == middle.stop:
                torch.cuda.synchronize()
                found[f"{way}_sustained"] = sustained.read()
        if way == "down":
            history.wait("host")
        torch.cuda.synchronize()
        found[f"{way}_whole"] = whole.read()
    if int(wrong):
        raise SystemExit(f"{int(wrong)} words came back wrong")
    return found


def measured(repeats: int) -> dict[str, Any]:
    torch.cuda.set_device(0)
    with in_group(GROUP):
        store = ebbtide.open(
            device="cuda:0",
            device_cache="4GiB",
            host_cache="52GiB",
            tuning={"host_arena": "direct"},
            disk=0,
            borrow="auto",
        )
    one_pass(store, "first")
    alone = [one_pass(store, f"alone {n}") for n in range(repeats)]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    lender = context.Process(target=lend, args=(theirs,), daemon=True)
    lender.start()
    ours.recv()
    wait_until_lent(store, LENT)
    one_pass(store, "first with lent memory")
    lent = [one_pass(store, f"lent {n}") for n in range(repeats)]
    store.close()
    ours.send(None)
    lender.join()
    out: dict[str, Any] = {"alone": alone, "lent": lent}
    for figure in alone[0]:
        usual = statistics.median(one[figure]["bytes_per_s"] for one in alone)
        out[f"{figure}_over_alone"] = [one[figure]["bytes_per_s"] / usual for one in lent]
    return out


def main() -> None:
    given = harness.options(__doc__ or "", repeats=5).parse_args()
    found = {"machine": harness.machine(given.dir) | {"gpu": torch.cuda.get_device_name(0)}}
    harness.leave(found | measured(given.repeats), given.json)


if __name__ == "__main__":
    main()
