"""The modes of GPU Snapshot (ics19 sec. 5.1) on processors: what each takes of a program's time, over full blocking copies.

Each program writes its zones of 64 KiB over and over, in the same order, and computes (on this processor) between two
snapshots. The time lost to a mode is what its run takes longer than one without snapshots.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import open as open_store

ZONE = 64 << 10


@dataclasses.dataclass(frozen=True)
class Mode:
    """F: everything is stored; I: what was written. NB: the program does not wait for the copies. H: a zone may be written as
    soon as it is copied. D: a write has its zone copied at once. FG: zones of 4 KiB."""

    name: str
    full: bool = False
    waits: bool = False
    zone: int = ZONE
    hints: bool = True
    duplicate: bool = True


FULL = Mode("F", full=True, waits=True)
FIGURE_10 = (
    Mode("I", waits=True),
    Mode("NB+I", hints=False, duplicate=False),
    Mode("NB+F+H", full=True, duplicate=False),
    Mode("NB+I+H", duplicate=False),
)
FIGURE_11 = (
    Mode("NB+I-FG+H", zone=4096, duplicate=False),
    Mode("NB+F+H+D", full=True),
    Mode("NB+I+H+D"),
    Mode("NB+I-FG+H+D", zone=4096),
)
MODES = (FULL, *FIGURE_10, Mode("I-FG", waits=True, zone=4096), *FIGURE_11)


@dataclasses.dataclass(frozen=True)
class Program:
    """Writes `part` of each of its zones; they are `share` of all, side by side or spread."""

    name: str
    share: float
    spread: bool
    part: float = 1.0

    def zones(self, count: int, interval: int) -> np.ndarray:
        many = max(1, round(self.share * count))
        if self.spread:
            return np.random.default_rng(1).permutation(count)[:many]
        return (np.arange(many) + interval * many) % count


PROGRAMS = (
    Program("sparse", 0.02, spread=True),
    Program("fine", 0.25, spread=True, part=1 / 16),
    Program("sweep", 0.25, spread=False),
    Program("dense", 0.9, spread=False),
)


def interval(field: np.ndarray, program: Program, index: int, compute: float) -> None:
    """Writes, and computes for so many seconds in all."""
    end = time.perf_counter() + compute
    zones = field.reshape(-1, ZONE)
    part = int(ZONE * program.part)
    chosen = program.zones(len(zones), index)
    for at, zone in enumerate(chosen):
        zones[zone, :part] = (index + at) % 251
    while time.perf_counter() < end:
        pass


def run(size: int, program: Program, mode: Mode | None, snapshots: int, compute: float) -> dict[str, float]:
    """Seconds from the first interval to the end of the last snapshot's copies, and what the store counted."""
    field = np.ones(size + ZONE, "u1")
    field = field[-field.ctypes.data % ZONE :][:size]  # whole zones
    with open_store(device="cpu", device_cache=12 * size, host_cache=0, disk=0) as store:
        for version in range(12):  # its memory is used once before
            store.checkpoint(-1 - version, field[: size * 15 // 16])
        for version in range(12):
            store.drop(-1 - version)
        if mode:
            track = "everything" if mode.full and mode.waits else "scan" if mode.waits else "faults"
            store.protect(field, zone=mode.zone, track=track, hints=mode.hints, duplicate=mode.duplicate)
            store.snapshot(0).wait("copied")
        before = dict(store.stats()["snapshots"])
        begun = time.perf_counter()
        cut = None
        for index in range(1, snapshots + 1):
            interval(field, program, index, compute)
            if not mode:
                continue
            cut = store.snapshot(index, full=mode.full)
            if mode.waits:
                cut.wait("copied")
            if index > 1:
                store.drop(index - 1)
        if cut:
            cut.wait("copied")
        seconds = time.perf_counter() - begun
        after = store.stats()["snapshots"]
    counted = {name: after[name] - before[name] for name in ("faults", "duplicates", "blocked_s", "bytes_gathered")}
    return {"seconds": seconds, **counted}


def measure(
    size: int,
    snapshots: int,
    compute: float,
    repeats: int,
    programs: Sequence[Program] = PROGRAMS,
    modes: Sequence[Mode] = MODES,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Each mode and program in turns, so that a machine that drifts does so for all."""
    found: dict[str, Any] = {"size": size, "snapshots": snapshots, "compute_s": compute, "repeats": repeats, "runs": {}}
    for program in programs:
        runs: dict[str, list[dict[str, float]]] = {}
        for repeat in range(repeats):
            say(f"{program.name}, {repeat + 1} of {repeats}")
            for mode in (None, *modes):
                runs.setdefault(mode.name if mode else "alone", []).append(run(size, program, mode, snapshots, compute))
        found["runs"][program.name] = runs
    found["relative"] = {name: relative(runs) for name, runs in found["runs"].items()}
    return found


def relative(runs: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Time lost by mode, over that of F: medians."""
    seconds = {name: statistics.median(one["seconds"] for one in several) for name, several in runs.items()}
    lost = {name: taken - seconds["alone"] for name, taken in seconds.items() if name != "alone"}
    return {name: value / lost["F"] for name, value in lost.items()}


def plot(document: dict[str, Any], path: Path) -> None:
    """Figures 10 and 11 of ics19: a bar for each program and mode."""
    from .. import _plots

    figure = _plots.figure(10, 6.5)
    panels = figure.subplots(2, 1)
    for axes, modes, which in zip(panels, (FIGURE_10, FIGURE_11), ("10", "11")):
        width = 0.8 / len(modes)
        for at, mode in enumerate(modes):
            places = np.arange(len(document["relative"])) + (at - (len(modes) - 1) / 2) * width
            axes.bar(places, [values[mode.name] for values in document["relative"].values()], width, label=mode.name)
        axes.axhline(1, color="black", linewidth=0.8)
        axes.set_xticks(range(len(document["relative"])), list(document["relative"]))
        axes.set_ylabel("time lost over F's")
        axes.set_title(f"as ics19, figure {which}")
        axes.legend(ncols=4, frameon=False)
        axes.grid(axis="y", alpha=0.25)
    _plots.save(figure, path)


def table(document: dict[str, Any]) -> Any:
    """For a person."""
    from rich.table import Table

    names = [mode.name for mode in MODES]
    out = Table(title="Time lost to snapshots, over that of full blocking ones (F)", title_justify="left")
    out.add_column("program")
    for name in names:
        out.add_column(name, justify="right")
    for program, values in document["relative"].items():
        out.add_row(program, *(f"{values[name]:.2f}" for name in names))
    return out
