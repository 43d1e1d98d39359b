"""The paper's figures 2, 3, 12, 13 and 14 from the model, as numbers and as a picture."""

from __future__ import annotations

import functools
import statistics
from typing import Any

from . import first_order, ics19

SCALES = (0.45, 0.9, 1.8, 3.6, 7.2)
_COLOURS = ("#1f5fa8", "#c8321e", "#d98a1f", "#2f855a", "#6b46c1")
FACTORS = (0.1, 1, 10, 50)
SPEEDUPS, SHARES = (1, 4, 40), (1, 0.5, 0.1)
FOOTPRINTS = (1, 0.5, 0.25, 0.1)  # assumed, each for all programs: the paper's are only in its plot
DRIVER, OPTIMIZED = "NB+I+H", "NB+I-FG+H+D"  # the paper's two organizations: by the driver, and by the device


@functools.cache
def programs() -> dict[str, dict[str, dict[str, float]]]:
    """By program of the zone machine and by mode: ``speedup`` (s) and ``written`` (v)."""
    from ebbtide.models.zones.document import patterns_document
    from ebbtide.sim import ZoneHardware
    from ebbtide.sim.zones import MODES

    found = patterns_document(2**30, ZoneHardware(), tuple(mode for mode in MODES if mode != "F"))
    return {
        name: {mode: {"speedup": run["speedup"], "written": run["share"]} for mode, run in one["modes"].items()}
        for name, one in found["programs"].items()
        if not one["pattern"]["adversarial"]
    }


def figures() -> dict[str, Any]:
    """Efficiencies in percent, to first order.

    ``figure2``: by GPUs a CPU, at each of ``exaflops``. ``figure3``: by the levels that are free, at 16 GPUs a CPU.
    ``figure14``: for each ``speedup`` of level 1 and share ``written`` on levels 2 and 3, at each of ``gpu_failures``, and
    ``most_for_90``, the highest factor of the failures of GPUs at which 90% are left (null: 90% are never reached).

    ``programs``: s and v of the zone machine's programs, by mode. ``figure12``: by program and mode, at 3.6 EF and 16 GPUs a
    CPU. ``figure12_footprints``: F and, in the mode ``OPTIMIZED``, each program, if it fills each of ``footprints`` of the
    GPUs' memory. ``figure13``: as figure 2, in the mode ``OPTIMIZED``, the mean of the programs. ``figure14_programs``: as figure 14,
    in that mode, by program.
    """

    def percent(**options: float) -> float:
        return 100 * first_order.efficiency(ics19.machine(**options))  # type: ignore[arg-type]

    def optimized(**options: float) -> list[float]:
        return [percent(**options, **runs[OPTIMIZED]) for runs in programs().values()]

    def by_failures(speedup: float, written: float) -> dict[str, Any]:
        return {
            "speedup": speedup,
            "written": written,
            "percent": [percent(gpu_failures=g, speedup=speedup, written=written) for g in FACTORS],
            "most_for_90": ics19.most_gpu_failures(0.9, speedup, written),
        }

    free = {"none": (), "1": (1,), "2": (2,), "1, 2": (1, 2)}
    return {
        "exaflops": list(SCALES),
        "figure2": {
            str(density): [percent(exaflops=scale, density=density) for scale in SCALES]
            for density in ics19.CPU_FAILURES
        },
        "figure3": {
            name: [100 * first_order.efficiency(ics19.free(ics19.machine(scale), *levels)) for scale in SCALES]
            for name, levels in free.items()
        },
        "gpu_failures": list(FACTORS),
        "figure14": [by_failures(speedup, written) for speedup in SPEEDUPS for written in SHARES],
        "programs": programs(),
        "figure12": {name: {mode: percent(**run) for mode, run in runs.items()} for name, runs in programs().items()},
        "footprints": list(FOOTPRINTS),
        "figure12_footprints": {
            name: [percent(footprint=share, **run) for share in FOOTPRINTS]
            for name, run in ({"F": {}} | {name: runs[OPTIMIZED] for name, runs in programs().items()}).items()
        },
        "figure13": {
            str(density): [statistics.mean(optimized(exaflops=scale, density=density)) for scale in SCALES]
            for density in ics19.CPU_FAILURES
        },
        "figure14_programs": {name: by_failures(**runs[OPTIMIZED]) for name, runs in programs().items()},
    }


def _plain(number: float, digits: int) -> str:
    return f"{number:.{digits}g}" if number < 10 ** (digits - 1) else f"{number:.0f}"


def _by_failures(one: dict[str, Any]) -> list[str]:
    most = one["most_for_90"]
    held = "never" if most is None else f"{_plain(most, 2)} ×"
    return [_plain(one["speedup"], 3), f"{one['written']:.2g}", *(f"{value:.1f}" for value in one["percent"]), held]


def tables(document: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """What ``figures`` found, by title: the heads of the columns, and the rows."""
    scales = [f"{scale:g} EF" for scale in document["exaflops"]]
    out = {}
    for figure, head, title in (
        ("figure2", "GPUs a CPU", "Figure 2: efficiency in percent, by scale"),
        ("figure3", "free levels", "Figure 3: efficiency in percent at 16 GPUs a CPU, by scale"),
        (
            "figure13",
            "GPUs a CPU",
            f"Figure 13: efficiency in percent with {OPTIMIZED}, the mean of programs, by scale",
        ),
    ):
        rows = [[name, *(f"{value:.1f}" for value in values)] for name, values in document[figure].items()]
        out[title] = ([head, *scales], rows)
    modes = list(next(iter(document["figure12"].values())))
    out["Programs of the zone machine: s / v"] = (
        ["program", *modes],
        [
            [name, *(f"{_plain(run['speedup'], 3)} / {run['written']:.2f}" for run in runs.values())]
            for name, runs in document["programs"].items()
        ],
    )
    out["Figure 12: efficiency in percent at 3.6 EF and 16 GPUs a CPU, by program"] = (
        ["program", *modes],
        [[name, *(f"{value:.1f}" for value in row.values())] for name, row in document["figure12"].items()],
    )
    out[f"Figure 12 by footprint (assumed): F, and each program with {OPTIMIZED}"] = (
        ["program", *(f"{share:.0%} of memory" for share in document["footprints"])],
        [[name, *(f"{value:.1f}" for value in row)] for name, row in document["figure12_footprints"].items()],
    )
    factors = [f"{factor:g} ×" for factor in document["gpu_failures"]]
    title = "Figure 14: efficiency in percent at 3.6 EF and 16 GPUs a CPU, by failures of GPUs"
    out[title] = (["s", "v", *factors, "90% up to"], [_by_failures(one) for one in document["figure14"]])
    out[f"Figure 14 with {OPTIMIZED}, by program"] = (
        ["program", "s", "v", *factors, "90% up to"],
        [[name, *_by_failures(one)] for name, one in document["figure14_programs"].items()],
    )
    return out


def picture(document: dict[str, Any]) -> str:
    """Figures 2 and 3 side by side, as SVG."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 340" width="900" height="340"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13">',
        '<rect width="900" height="340" rx="8" fill="#ffffff"/>',
    ]

    def text(x: float, y: float, words: str, colour: str = "#223344", anchor: str = "middle") -> None:
        lines.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>')

    panels = (("figure2", "figure 2: by GPUs a CPU"), ("figure3", "figure 3: by levels that are free"))
    for left, (figure, title) in zip((50, 490), panels):
        text(left + 165, 24, title)
        for percent in (75, 80, 85, 90, 95, 100):
            y = 290 - (percent - 75) * 10
            lines.append(f'<line x1="{left}" y1="{y}" x2="{left + 330}" y2="{y}" stroke="#d8dee6"/>')
            text(left - 8, y + 4, f"{percent}%", anchor="end")
        at = [left + 20 + 72 * i for i in range(len(document["exaflops"]))]
        for x, scale in zip(at, document["exaflops"]):
            text(x, 310, f"{scale:g}")
        text(left + 165, 330, "EF")
        for row, ((name, values), colour) in enumerate(zip(document[figure].items(), _COLOURS)):
            points = " ".join(f"{x},{290 - (value - 75) * 10:.1f}" for x, value in zip(at, values))
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
            text(left + 335, 60 + 18 * row, name, colour, "start")
    return "\n".join([*lines, "</svg>"]) + "\n"
