#!/usr/bin/env python3
"""What an idle GPU's link adds: a store on one GPU writes to host memory and reads back, alone, and then with memory that
another GPU lends.

Rates are of what left host memory or came there, over all links, while 48 GiB were written and waited for, and while they
were restored in the order in which they were written. Every byte that came back is compared.

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


def lend(pipe: Connection) -> None:
    with in_group(GROUP):
        store = ebbtide.open(device="cuda:1", device_cache=0, host_cache="4KiB", disk=0, lend=LENT)
    pipe.send(None)
    pipe.recv()
    store.close()


def over(store: Any, links: tuple[str, ...]) -> list[int]:
    by_name = {link["name"]: link["bytes"] for link in store.stats()["links"]}
    return [by_name[name] for name in links]


def rate(store: Any, links: tuple[str, ...], work: Any) -> dict[str, Any]:
    before, relayed, begin = over(store, links), store.stats()["relayed"], time.monotonic()
    work()
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    moved = [after - was for after, was in zip(over(store, links), before)]
    return {
        "bytes_per_s": sum(moved) / took,
        "bytes": dict(zip(links, moved)),
        "seconds": took,
        "relayed": store.stats()["relayed"] - relayed,
    }


def one_pass(store: Any, name: str) -> dict[str, Any]:
    history = store.history(name)
    array = torch.empty(SIZE // 4, device="cuda:0")
    wrong = torch.zeros((), dtype=torch.int64, device="cuda:0")

    def write() -> None:
        for version in range(COUNT):
            array.fill_(version)
            history.checkpoint(version, array)
        history.wait("host")

    def read() -> None:
        history.hint(range(COUNT))
        for version in range(COUNT):
            history.restore(version, out=array)
            wrong.add_((array != version).sum())

    found = {"down": rate(store, DOWN, write), "up": rate(store, UP, read)}
    if int(wrong):
        raise SystemExit(f"{int(wrong)} words came back wrong")
    return found


def measured(repeats: int) -> dict[str, Any]:
    torch.cuda.set_device(0)
    with in_group(GROUP):
        store = ebbtide.open(
            device="cuda:0", device_cache="4GiB", host_cache="52GiB", host_arena="direct", disk=0, borrow="auto"
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
    for way in ("down", "up"):
        usual = statistics.median(one[way]["bytes_per_s"] for one in alone)
        out[f"{way}_over_alone"] = [one[way]["bytes_per_s"] / usual for one in lent]
    return out


def main() -> None:
    given = harness.options(__doc__ or "", repeats=5).parse_args()
    found = {"machine": harness.machine(given.dir) | {"gpu": torch.cuda.get_device_name(0)}}
    harness.leave(found | measured(given.repeats), given.json)


if __name__ == "__main__":
    main()
