"""Days of a cluster as a document, a table and a picture beside the analytic model."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from .machine import Cluster
from .model import expected
from .simulation import Day, run

SIZES = (100, 300, 1000, 3000, 10000)
FACTORS = (1, 10, 50)
_COLOURS = ("#1f5fa8", "#d98a1f", "#c8321e")


def document(cluster: Cluster, days: Sequence[Day]) -> dict[str, Any]:
    """Means over days, with the standard error of the efficiency; seconds, and shares from 0 to 1."""
    efficiencies = [day.efficiency for day in days]
    error = statistics.stdev(efficiencies) / len(days) ** 0.5 if len(days) > 1 else None
    return {
        "cluster": asdict(cluster) | {"shared_every": cluster.shared_every},
        "days": [asdict(day) | {"efficiency": day.efficiency} for day in days],
        "efficiency": statistics.mean(efficiencies),
        "error": error,
        "expected": expected(cluster),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """For a person."""
    days = found["days"]

    def mean(name: str) -> float:
        return float(statistics.mean(day[name] for day in days))

    share = {name: 100 * mean(name) / mean("seconds") for name in ("blocked", "lost", "recovery")}
    error = "" if found["error"] is None else f" ± {100 * found['error']:.2f}"
    failures = [sum(day["failures"][level] for day in days) / len(days) for level in range(3)]
    return [
        f"efficiency: {100 * found['efficiency']:.2f}%{error} (the exact model: {100 * found['expected']:.2f}%)",
        f"blocked by checkpoints {share['blocked']:.2f}%, work done again {share['lost']:.2f}%, recovery {share['recovery']:.2f}%",
        f"file system: {100 * mean('shared_load'):.1f}% of its time; each {found['cluster']['shared_every']}. checkpoint goes there; "
        f"written and dropped: {100 * mean('written_and_dropped'):.1f}%",
        f"in a run: {mean('checkpoints'):.0f} checkpoints, {mean('on_disk'):.0f} of them on disk and {mean('on_shared'):.0f} on the file "
        f"system; failures by level: {failures[0]:.1f}, {failures[1]:.1f}, {failures[2]:.1f}",
        f"{mean('simulated'):.0f} nodes simulated, {mean('apart'):.1f} of them apart from the others; {mean('events'):.0f} events",
    ]


def sweep(days: int = 30) -> list[dict[str, Any]]:
    """Machines of several sizes and failures of GPUs, a day for each seed."""
    out = []
    for factor in FACTORS:
        for nodes in SIZES:
            cluster = replace(Cluster(nodes), gpu_failures=factor)
            out.append(document(cluster, [run(cluster, seed) for seed in range(days)]))
    return out


def table(swept: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, in percent."""
    heads = [
        "failures of GPUs",
        "nodes",
        "each so many to the file system",
        "its load",
        "written and dropped",
        "simulated",
        "exact model",
    ]
    rows = []
    for one in swept:
        load, dropped = (
            statistics.mean(day[name] for day in one["days"]) for name in ("shared_load", "written_and_dropped")
        )
        rows.append(
            [
                f"{one['cluster']['gpu_failures']:g} ×",
                str(one["cluster"]["nodes"]),
                str(one["cluster"]["shared_every"]),
                f"{100 * load:.0f}",
                f"{100 * dropped:.0f}",
                f"{100 * one['efficiency']:.2f} ± {100 * (one['error'] or 0):.2f}",
                f"{100 * one['expected']:.2f}",
            ]
        )
    return heads, rows


def picture(swept: list[dict[str, Any]]) -> str:
    """Efficiency by size: points are simulated, lines are the model's. SVG."""
    left, bottom, width, height, least = 60, 300, 420, 260, 55
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" width="640" height="360"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13">',
        '<rect width="640" height="360" rx="8" fill="#ffffff"/>',
    ]

    def text(x: float, y: float, words: str, colour: str = "#223344", anchor: str = "middle") -> None:
        out.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>')

    def place(at: int, share: float) -> tuple[float, float]:
        return left + 20 + at * (width - 40) / (len(SIZES) - 1), bottom - (100 * share - least) / (100 - least) * height

    for percent in range(60, 101, 10):
        y = place(0, percent / 100)[1]
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#d8dee6"/>')
        text(left - 8, y + 4, f"{percent}%", anchor="end")
    for at, nodes in enumerate(SIZES):
        text(place(at, 1)[0], bottom + 20, str(nodes))
    text(left + width / 2, bottom + 42, "nodes of 8 GPUs")
    text(left + width / 2, 24, "efficiency: points simulated, lines the exact model")
    for row, (factor, colour) in enumerate(zip(FACTORS, _COLOURS)):
        mine = [one for one in swept if one["cluster"]["gpu_failures"] == factor]
        points = " ".join("{:.1f},{:.1f}".format(*place(at, one["expected"])) for at, one in enumerate(mine))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for at, one in enumerate(mine):
            x, y = place(at, one["efficiency"])
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        text(left + width + 8, 60 + 18 * row, f"GPUs fail {factor} ×", colour, "start")
    return "\n".join([*out, "</svg>"]) + "\n"
