"""docs/recompute-or-store.md's chapter of measured figures, from benches/results."""

from __future__ import annotations

import itertools
import math
import statistics
import textwrap
from typing import Any


def page(document: dict[str, Any]) -> str:
    machine, measured = document["machine"], document["measured"]
    steps, slots = measured["steps"], measured["slots"]
    about = (
        f"{steps} steps on {machine['cpus']} processors ({machine['cpu']}) with {machine['file_system']}, load "
        f"{machine['load_before']:.1f} before and {machine['load_after']:.1f} after, with memory for {slots} states: caches of "
        f"that size, or as many slots of revolve, which computes each step anew {measured['sizes'][0]['points'][0]['anew']:.1f} "
        "times. What each way costs beyond the steps and adjoint steps (medians, with the fastest and the slowest; "
        "`benches/results/recompute_or_store.json`):"
    )
    lines = [textwrap.fill(about, 120, break_on_hyphens=False), ""]
    lines += ["| a state | a step | storing, ms a step | computing anew, ms a step |", "|---|---|---|---|"]
    for size in measured["sizes"]:
        for point in size["points"]:
            costs = " | ".join(_spread(point[key]) for key in ("store_s", "recompute_s"))
            lines.append(f"| {size['bytes'] >> 20} MiB | {1e3 * point['step_s']:.3g} ms | {costs} |")
    found = [f"{_crossing(size)} for states of {size['bytes'] >> 20} MiB" for size in measured["sizes"]]
    lines += ["", textwrap.fill(f"So storing costs less {', and '.join(found)}.", 120), ""]
    return "\n".join(lines)


def _spread(seconds: list[float]) -> str:
    median, low, high = (1e3 * value for value in (statistics.median(seconds), min(seconds), max(seconds)))
    return f"{median:.3g} ({low:.3g} to {high:.3g})"


def crossing(points: list[dict[str, Any]]) -> float | None:
    """The length of a step from which on storing costs less, in s, interpolated; None: it does in none of these, 0: in all."""
    median = statistics.median
    ratios = [(point["step_s"], median(point["recompute_s"]) / median(point["store_s"])) for point in points]
    if ratios[0][1] >= 1:
        return 0.0
    for (shorter, below), (longer, above) in itertools.pairwise(ratios):
        if below < 1 <= above:
            return shorter * (longer / shorter) ** (math.log(1 / below) / math.log(above / below))
    return None


def _crossing(size: dict[str, Any]) -> str:
    found = crossing(size["points"])
    if found is None:
        return "in none of these"
    if found == 0:
        return f"from the shortest steps on that were tried ({1e3 * size['points'][0]['step_s']:.3g} ms)"
    return f"from steps of {1e3 * found:.2g} ms on"
