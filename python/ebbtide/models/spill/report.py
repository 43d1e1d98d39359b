"""The documents of steps.py for a person: tables, what the slides say of the same, and a plot."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from rich.table import Table

from ebbtide._units import format_size
from ebbtide.sim.spills import STRATEGIES

from .steps import Document


def step_table(document: Document) -> Table:
    """A row for each transfer."""
    out = Table(title_justify="left")
    for name in ("strategy", "GPU", "to", "bytes", "GPU ends after", "over flow"):
        out.add_column(name, justify="left" if name in ("strategy", "to") else "right")
    least = document["flow"]["milliseconds"]
    for strategy, plan in document.items():
        over = f"{plan['milliseconds'] / least - 1:+.1%}" if least else "-"
        out.add_row(strategy, "", "", "", f"{plan['milliseconds']:.2f} ms", over)
        for one in plan["transfers"]:
            to = {"host": "host", "peer": f"GPU {one['peer']}", "relay": f"host, through GPU {one['peer']}"}[
                one["route"]
            ]
            end = plan["ends"][str(one["from"])]
            out.add_row("", str(one["from"]), to, f"{one['bytes'] / 1e6:.1f} MB", f"{end:.2f} ms", "")
        out.add_section()
    return out


def trace_table(document: Document) -> Table:
    """A row for each strategy."""
    out = Table(
        title=f"{document['steps']} steps, {format_size(document['free'])} free on each GPU", title_justify="left"
    )
    out.add_column("strategy", no_wrap=True)
    for name in ("blocked", "over flow", "mean ratio", "decision", "longest"):
        out.add_column(name, justify="right")
    for strategy in STRATEGIES:
        over, decision = document["over_flow"][strategy], document["decision_us"][strategy]
        out.add_row(
            strategy,
            f"{sum(document['milliseconds'][strategy]):.2f} ms",
            f"{over['in_all']:+.0%}",
            f"{over['mean_ratio']:.2f}",
            f"{statistics.median(decision):.0f} µs",
            f"{max(decision):.0f} µs",
        )
    return out


def notes(document: Document) -> list[str]:
    """What has to be known to compare a trace's table with the slides."""
    out = []
    over = {strategy: document["over_flow"][strategy]["in_all"] for strategy in STRATEGIES}
    if document["published"] and document["free"] == 128 << 20 and document["topology"] == "dgx1v":
        ratio = {strategy: document["over_flow"][strategy]["mean_ratio"] for strategy in STRATEGIES}
        out.append(
            f"Slide 19 has +97% for greedy; these steps give {over['greedy']:+.0%}. It has +400% for local, which does not "
            f"come from the {document['steps']} published steps: they give {over['local']:+.0%}. Slide 21's 2 and 8 times "
            f"are the mean ratios, {ratio['greedy']:.2f} and {ratio['local']:.2f}."
        )
    if over["flow_paper"] > 0.0005:
        out.append(
            f"flow_paper counts in units of {document['unit'] / 1e6:g} MB, which costs it {over['flow_paper']:+.0%} here; it "
            "comes as near to flow as its --unit is small."
        )
    if over["flow_paper_added"] > over["flow_paper"] + 0.0005:
        out.append(
            "flow_paper_added does not reach the least time with smaller units: adding the costs spreads the load, and does not "
            "minimise the slowest link."
        )
    return out


def plot(document: Document, path: Path) -> None:
    """Overhead over the least time by step, and how long the decisions take (slides 19 and 20)."""
    from ebbtide import _plots

    figure = _plots.figure(10, 4)
    overhead, response = figure.subplots(1, 2)
    colours: dict[str, Any] = {"local": "#777777", "greedy": _plots.ORANGE, "flow_paper": _plots.RED}
    colours |= {"flow_paper_added": "#8a4fa8", "flow": _plots.BLUE}
    least = document["milliseconds"]["flow"]
    for strategy in STRATEGIES:
        mine = document["milliseconds"][strategy]
        steps = [step for step, best in enumerate(least) if best > 0]
        if strategy != "flow":
            ratios = [100 * (mine[step] / least[step] - 1) for step in steps]
            overhead.plot(steps, ratios, color=colours[strategy], linewidth=1.2, marker=".", label=strategy)
        response.plot(document["decision_us"][strategy], color=colours[strategy], linewidth=1.2, label=strategy)
    overhead.set_ylabel("blocked time over flow (%)")
    overhead.set_yscale("symlog", linthresh=1)
    _plots.logarithmic(response)
    response.set_ylabel("decision (µs)")
    for axes in (overhead, response):
        axes.set_xlabel("step")
        axes.grid(alpha=0.25)
    handles, labels = response.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    _plots.save(figure, path)
