#!/usr/bin/env python3
"""How long a burst takes on one GPU where another one has room for none, half or all of it (sc22, slides 15-21).

A store's device cache holds two checkpoints; 8 GiB are written without a pause, and the time is that until the last call
returns. The other GPU lends 64 MiB, through which chunks are relayed, and whole leases with the room. The least time (`flow`,
docs/design/peers.md) is that of the bytes beyond the device cache by the bare rates of this run: over both links to the
host, and NVLink as long as there is room. Every version is read back and compared.

  benches/bursts.py --json benches/results/bursts.json     # two GPUs
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
from ebbtide.bench.lending import LEAST, in_group, lease_of

SIZE, COUNT, CACHED = 128 << 20, 64, 2
ROOMS = {"none": 0, "half": SIZE * COUNT // 2, "all": SIZE * COUNT}


def lend(pipe: Connection, group: str, lent: int) -> None:
    with in_group(group), ebbtide.open(device="cuda:1", device_cache=0, host_cache="4KiB", disk=0, lend=lent):
        pipe.send(None)
        pipe.recv()


def rate(copies: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Bytes a second of copies that run at once, in all: the best of five."""
    streams = [torch.cuda.Stream(of.device) for _, of in copies]
    best = float("inf")
    for _ in range(5):
        for gpu in range(2):
            torch.cuda.synchronize(gpu)
        start = time.perf_counter()
        for stream, (to, of) in zip(streams, copies):
            with torch.cuda.stream(stream):
                to.copy_(of, non_blocking=True)
        for stream in streams:
            stream.synchronize()
        best = min(best, time.perf_counter() - start)
    return sum(of.nbytes for _, of in copies) / best


def bare_rates() -> dict[str, float]:
    near, far = (torch.empty(1 << 30, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in range(2))
    hosts = [torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    both = rate([(hosts[0], near), (hosts[1], far)])
    return {"host": rate([(hosts[0], near)]), "both": both, "peer": rate([(far, near)])}


def least(rates: dict[str, float], room: int) -> float:
    """Seconds. What has no room goes over both links to the host, and all but what its own link carries over NVLink."""
    bytes_beyond = SIZE * (COUNT - CACHED)
    return max((bytes_beyond - room) / rates["both"], bytes_beyond / (rates["peer"] + rates["host"]))


def judged(rates: dict[str, float], lent: int, bursts: list[dict[str, Any]]) -> dict[str, Any]:
    """Bursts, and what they were over the least time where all of `lent` but the ring has room for checkpoints."""
    bound = least(rates, lent - LEAST)
    over = [one["s"] / bound for one in bursts]
    return {"bytes": lent - LEAST, "least_s": bound, "bursts": bursts, "over_least": over}


def one_burst(store: Any, name: str, array: torch.Tensor) -> dict[str, Any]:
    history = store.history(name)
    relayed = store.stats()["relayed"]
    torch.cuda.synchronize()
    start = time.perf_counter()
    for version in range(COUNT):
        array.fill_(version)
        history.checkpoint(version, array)
    torch.cuda.synchronize()
    took = time.perf_counter() - start
    history.wait("host")
    wrong = 0
    for version in range(COUNT):
        wrong += int((history.restore(version, out=array) != version).sum())
    if wrong:
        raise SystemExit(f"{wrong} words came back wrong")
    return {"s": took, "relayed": store.stats()["relayed"] - relayed}


def wait_for_leases(store: Any, lent: int) -> None:
    """Until the store has borrowed all that is lent."""
    end = time.monotonic() + 30
    while (has := store.stats()["leases"]["borrowed"]) < lent:
        if time.monotonic() > end:
            raise SystemExit(
                f"bursts: {has >> 20} of {lent >> 20} MiB were borrowed in 30 s; EBBTIDE_LOG=info says why"
            )
        time.sleep(0.005)


def lent_for(room: int) -> int:
    """Bytes of whole leases with `room` for checkpoints beside the ring, which is a smallest lease."""
    return 8 * lease_of(LEAST + room) if room else LEAST


def with_room(name: str, lent: int, repeats: int, array: torch.Tensor) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    lender = context.Process(target=lend, args=(theirs, f"bursts-{name}", lent), daemon=True)
    lender.start()
    ours.recv()
    options: dict[str, Any] = {"device": "cuda:0", "device_cache": CACHED * SIZE, "host_cache": SIZE * (COUNT + 8)}
    with in_group(f"bursts-{name}"):
        store = ebbtide.open(**options, tuning={"host_arena": "direct"}, disk=0, borrow="auto")
    wait_for_leases(store, lent)
    one_burst(store, "first", array)  # it touches and pins the memory of the host cache
    found = [one_burst(store, f"burst {n}", array) for n in range(repeats)]
    store.close()
    ours.send(None)
    lender.join()
    return found


def main() -> None:
    given = harness.options(__doc__ or "", repeats=7).parse_args()
    torch.cuda.set_device(0)
    machine = harness.machine(given.dir) | {"gpu": torch.cuda.get_device_name(0), "gpus": torch.cuda.device_count()}
    found: dict[str, Any] = {"machine": machine, "rates": bare_rates(), "rooms": {}}
    array = torch.empty(SIZE // 4, device="cuda:0")
    for name, room in ROOMS.items():
        bursts = with_room(name, lent_for(room), given.repeats, array)
        found["rooms"][name] = judged(found["rates"], lent_for(room), bursts)
        over = found["rooms"][name]["over_least"]
        middle, relayed = statistics.median(over), min(one["relayed"] for one in bursts)
        print(
            f"room for {name}: {middle:.3f} ({min(over):.3f} to {max(over):.3f}), {relayed} chunks relayed or more",
            flush=True,
        )
        harness.leave(found, given.json)


if __name__ == "__main__":
    main()
