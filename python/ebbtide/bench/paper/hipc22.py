"""The experiments of hipc22, sec. V: how the memory of the caches comes to be, for programs that run for seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .figure import Cell, Place, Scale, Shots, shot_of

INTERVALS = (0.005, 0.01, 0.02, 0.03, 0.06)
HOSTS = (8, 16, 32, 64)  # GiB, at the paper's size
DIFFERS = (
    "one process in place of eight GPUs; opening counts with the checkpoints, and is not in the bound; `direct` is the store with all memory"
    " allocated and pinned as it opens, and managed memory is a peer on a GPU alone"
)


def _large_host(scale: Scale, place: Place, interval: float, variable: bool = False, part: float = 1) -> Cell:
    """All checkpoints fit the host cache, and an eighth of them the device's. part: of the paper's 32 GiB."""
    usual = scale.checkpoints * 2 // 3
    config = shot_of(replace(scale, checkpoints=int(usual * part)), place, "reverse", "all", False, variable, interval)
    device = max(usual * scale.size // 8, 2 * max(config.sizes[0]))
    config = replace(config, device_cache=device, host_cache=config.history(), disk=0)
    return Cell((("hints", "all"),), config, ("direct",) if place.device == "cpu" else ("direct", "uvm_in_memory"))


def _intervals(variable: bool):
    def cells(scale: Scale, place: Place) -> Sequence[Cell]:
        return [
            replace(cell, labels=(("interval", f"{1e3 * interval:g} ms"), *cell.labels))
            for interval in INTERVALS
            for cell in (_large_host(scale, place, interval, variable),)
        ]

    return cells


def _devices(scale: Scale, place: Place) -> Sequence[Cell]:
    """All checkpoints fit the device cache, which is the host's as well."""
    found = []
    for interval in INTERVALS:
        cell = _large_host(scale, place, interval)
        config = replace(cell.config, device_cache=cell.config.history())
        found.append(Cell((("interval", f"{1e3 * interval:g} ms"), *cell.labels), config, cell.peers))
    return found


def _ranks(scale: Scale, place: Place) -> Sequence[Cell]:
    found = []
    for ranks in scale.ranks:
        cell = _large_host(scale, place, 0.02)
        config = replace(cell.config, sizes=cell.config.sizes * ranks)
        peers = cell.peers if ranks == 1 else ("direct",)
        found.append(Cell((("ranks", str(ranks)), ("hints", "all")), config, peers))
    return found


def _hosts(scale: Scale, place: Place) -> Sequence[Cell]:
    found = []
    for size in HOSTS:
        cell = _large_host(scale, place, 0.02, part=size / 32)
        found.append(replace(cell, labels=(("host cache", f"{size}/32"), *cell.labels)))
    return found


FIGURES = {
    "3b": Shots(
        "throughput by computing interval, sizes of a trace, all in the host cache (3b: checkpoints; 3c: both)",
        "up to 16.7 times direct pinning for checkpoints, 9.3 times for both (sec. V-E)",
        DIFFERS,
        "interval",
        _intervals(True),
        opening=True,
    ),
    "5a": Shots(
        "throughput by computing interval, equal sizes, all in the host cache (5a: checkpoints; 5b: both)",
        "up to 12.5 times direct pinning for checkpoints, 7.8 times for both (sec. V-E)",
        DIFFERS,
        "interval",
        _intervals(False),
        opening=True,
    ),
    "4b": Shots(
        "throughput by computing interval, equal sizes, all in the device cache (4b: checkpoints; 4c: both)",
        "checkpoints in up to 76% less time, both in up to 63% less (sec. V-E)",
        DIFFERS,
        "interval",
        _devices,
        opening=True,
    ),
    "6a": Shots(
        "throughput of a process by processes, equal sizes, all in the host cache, 20 ms (6a: checkpoints; 6b: both)",
        "7.6 and 4.7 times direct pinning with one process, 27.8 and 13.6 with eight (sec. V-E)",
        DIFFERS.replace("one process in place of eight GPUs", "as many processes as GPUs"),
        "ranks",
        _ranks,
        opening=True,
    ),
    "6c": Shots(
        "throughput by host cache (parts of 32 GiB at full size), all in it, 20 ms",
        "both 4.8 to 12.4 times direct pinning (sec. V-E)",
        DIFFERS,
        "host cache",
        _hosts,
        opening=True,
    ),
}
