#!/usr/bin/env python3
"""What a program on a GPU pays while others use memory that it lends: a bandwidth-bound kernel alone, and under full spill.

One process lends memory of its GPU and runs `y = x + 1` over 2 GiB; the other, on the next GPU, writes checkpoints without
a pause and reads them back, so that all of them pass the lent memory. Predicted: both share the lender's memory, so the
kernel takes its time alone, over the part of the bandwidth that the copies leave. The bandwidth is the kernel's own, alone.

  benches/lender_kernel.py --json benches/results/lender_kernel.json
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

import ebbtide
import harness
import torch
from ebbtide.bench.lending import in_group, wait_until_lent

GROUP, LENT, SIZE, COUNT = "bench-lender-kernel", 16 << 30, 128 << 20, 96


def spilled(store: Any) -> int:
    """Bytes that were copied to or from the lender's memory."""
    return sum(link["bytes"] for link in store.stats()["links"] if "peer" in link["name"].split(">"))


def borrow(pipe: Connection) -> None:
    """Writes and reads until told to stop; then sends when so many bytes had been copied."""
    with in_group(GROUP):
        store = ebbtide.open(device="cuda:0", device_cache="512MiB", host_cache="1GiB", disk=0, borrow=LENT)
    wait_until_lent(store, LENT)
    array = torch.ones(SIZE // 4, device="cuda:0")
    said = [(time.monotonic(), spilled(store))]
    pipe.send(None)
    for number in itertools.count():
        if pipe.poll():
            break
        history = store.history(f"pass {number}", order="reverse")
        for version in range(COUNT):
            history.checkpoint(version, array)
        torch.cuda.synchronize()
        said.append((time.monotonic(), spilled(store)))
        for version in reversed(range(COUNT)):
            history.restore(version, out=array)
        torch.cuda.synchronize()
        said.append((time.monotonic(), spilled(store)))
    pipe.send(said)
    store.close()


def kernel_s(x: torch.Tensor, y: torch.Tensor, repeats: int) -> float:
    """Seconds of one kernel, of many one behind the other."""
    torch.add(x, 1.0, out=y)
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begun.record()
    for _ in range(repeats):
        torch.add(x, 1.0, out=y)
    ended.record()
    ended.synchronize()
    return begun.elapsed_time(ended) / 1e3 / repeats


def rate_between(said: list[tuple[float, int]], begin: float, end: float) -> float:
    """Bytes a second, of the passes that touch this time."""
    before = max(i for i, (at, _) in enumerate(said) if at <= begin or i == 0)
    after = min(i for i, (at, _) in enumerate(said) if at >= end or i == len(said) - 1)
    return (said[after][1] - said[before][1]) / (said[after][0] - said[before][0])


def measured(repeats: int) -> dict[str, Any]:
    torch.cuda.set_device(1)
    x = torch.ones(2 << 28, device="cuda:1")
    y = torch.empty_like(x)
    moved = 2 * x.numel() * x.element_size()
    with in_group(GROUP):
        lender = ebbtide.open(device="cuda:1", device_cache=0, host_cache="4KiB", disk=0, lend=LENT)
    alone = [kernel_s(x, y, 200) for _ in range(repeats)]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    borrower = context.Process(target=borrow, args=(theirs,))
    borrower.start()
    ours.recv()
    time.sleep(1)  # the first passes: pages, estimates
    windows = []
    for _ in range(repeats):
        begin = time.monotonic()
        took = kernel_s(x, y, 400)
        windows.append((begin, time.monotonic(), took))
    ours.send(None)
    said = ours.recv()
    borrower.join()
    lender.close()
    usual = statistics.median(alone)
    bandwidth = moved / usual
    rates = [rate_between(said, begin, end) for begin, end, _ in windows]
    return {
        "alone_s": alone,
        "kernel_bytes_per_s": bandwidth,
        "spilled_bytes_per_s": rates,
        "under_spill_s": [took for _, _, took in windows],
        "over_predicted": [
            took / (usual * bandwidth / (bandwidth - rate)) for (_, _, took), rate in zip(windows, rates)
        ],
    }


def main() -> None:
    given = harness.options(__doc__ or "", repeats=9).parse_args()
    found = {"machine": harness.machine(given.dir) | {"gpu": torch.cuda.get_device_name(1)}}
    harness.leave(found | measured(given.repeats), given.json)


if __name__ == "__main__":
    main()
