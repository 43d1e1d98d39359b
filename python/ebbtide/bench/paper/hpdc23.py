"""The experiments of hpdc23, sec. 5.4: caching and prefetching a history of checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .figure import Cell, Place, Scale, Shots, shot_of

ORDERS = ("sequential", "reverse", "irregular")
HINTS = ("none", "one", "all")
BLIND = ("pageable", "pinned", "adios2")  # peers that make nothing of hints
SEEING = ("double",)
ON_GPU = ("uvm", "kvikio")  # peers of a GPU's memory alone, that see hints
DIFFERS = "one process in place of eight GPUs; unified memory is a peer on a GPU alone"


def _peers(hints: str, place: Place) -> tuple[str, ...]:
    seeing = SEEING if place.device == "cpu" else ON_GPU + SEEING
    return seeing + BLIND if hints == "none" else seeing


def _orders(wait: bool, variable: bool):
    def cells(scale: Scale, place: Place) -> Sequence[Cell]:
        return [
            Cell(
                (("order", order), ("hints", hints)),
                shot_of(scale, place, order, hints, wait, variable),
                _peers(hints, place),
            )
            for order, hints in itertools.product(ORDERS, HINTS)
        ]

    return cells


def _iterations(scale: Scale, place: Place) -> Sequence[Cell]:
    return [Cell((("hints", hints),), shot_of(scale, place, "sequential", hints, False, False)) for hints in HINTS]


def _intervals(scale: Scale, place: Place) -> Sequence[Cell]:
    return [
        Cell(
            (("interval", f"{1e3 * interval:g} ms"), ("hints", hints)),
            shot_of(scale, place, "irregular", hints, True, True, interval=interval),
            _peers(hints, place),
        )
        for interval, hints in itertools.product(scale.intervals, ("none", "all"))
    ]


def _caches(scale: Scale, place: Place) -> Sequence[Cell]:
    return [
        Cell(
            (("device cache", f"1/{part}"), ("hints", hints)),
            shot_of(scale, place, "irregular", hints, True, True, device_part=part),
            _peers(hints, place),
        )
        for part, hints in itertools.product(scale.parts, ("none", "all"))
    ]


def _ranks(scale: Scale, place: Place) -> Sequence[Cell]:
    return [
        Cell(
            (("ranks", str(ranks)), ("coupling", coupling), ("hints", hints)),
            shot_of(scale, place, "irregular", hints, True, True, ranks=ranks, coupling=coupling),
        )
        for ranks, coupling, hints in itertools.product(scale.ranks, ("free", "tight"), HINTS)
    ]


def _of_orders(what: str, paper: str, wait: bool, variable: bool) -> Shots:
    title = f"checkpoint and restore throughput by order and hints, {what}"
    return Shots(title, paper, DIFFERS, "order", _orders(wait, variable))


FIGURES = {
    "5a": _of_orders("equal sizes, after waiting for flushes", "2 to 74 times UVM (sec. 5.4.2)", True, False),
    "5b": _of_orders("sizes of a trace, after waiting for flushes", "1.6 to 52 times UVM (sec. 5.4.2)", True, True),
    "6a": _of_orders("equal sizes, without waiting", "1.8 to 3.6 times UVM (sec. 5.4.3)", False, False),
    "6b": _of_orders(
        "sizes of a trace, without waiting",
        "2.9 to 22.8 times UVM (sec. 5.4.3); sequential, reverse and irregular restores up to 7.5, 8.7 and 11.7 times (sc22, slide 35)",
        False,
        True,
    ),
    "7": Shots(
        "restore rate and prefetch distance by iteration, equal sizes, sequential order",
        "with all hints up to 4 checkpoints are there ahead (sec. 5.4.4)",
        "one process in place of eight GPUs",
        "hints",
        _iterations,
        by_iteration=True,
    ),
    "8a": Shots(
        "throughput by computing interval, sizes of a trace, irregular order",
        "restores reach the rate of copies on the device from 30 ms on (sec. 5.4.5)",
        DIFFERS,
        "interval",
        _intervals,
    ),
    "8b": Shots(
        "throughput by device cache (a part of the history), sizes of a trace, irregular order",
        "up to 2.6 times UVM (sec. 5.4.5)",
        DIFFERS,
        "device cache",
        _caches,
    ),
    "9": Shots(
        "throughput of a process by processes, sizes of a trace, irregular order",
        "stable up to 32 GPUs; 22.8 times UVM without hints, 13 times with one at a time (sec. 5.4.6);"
        " up to 3.4 times others' tightly coupled, 7.6 times free (sc22, slide 36)",
        "the processes share one disk; the store alone, without peers",
        "ranks",
        _ranks,
    ),
}
