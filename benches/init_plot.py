"""What init.py measured, drawn as hipc22 fig. 4b, 5a, 6a and, at one interval, 5b: time blocked, by strategy."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ebbtide import _plots
from init_figures import HOST, Runs, chosen, total, written

COLORS = {"incremental": _plots.BLUE, "mapped": _plots.BLUE, "cuda_host_alloc": _plots.RED,
          "cuda_malloc": _plots.RED, "direct": _plots.ORANGE, "touch_then_register": "#3f8f4f", "concurrent": "#7a5aa6", "sequential": "#6b7785"}  # fmt: skip
LABELS = {"incremental": "ours (incremental)", "mapped": "ours (mapped)", "cuda_host_alloc": "cudaHostAlloc up front",
          "cuda_malloc": "cudaMalloc up front", "direct": "direct (all up front)",
          "touch_then_register": "touch, then register", "concurrent": "concurrent", "sequential": "sequential"}  # fmt: skip


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Draws the runs of the largest size there is; panels that nothing was measured for say so."""
    runs: Runs = [run for run in found["runs"] if run["part"] != "touch"]
    if not runs:
        raise SystemExit("init_plot: nothing was measured")
    largest = max(run["size"] * run["checkpoints"] for run in runs)
    runs = [run for run in runs if run["size"] * run["checkpoints"] == largest]
    few = min(run["processes"] for run in runs)
    figure = _plots.figure(11, 8)
    axes = figure.subplots(2, 2)
    count, size = runs[0]["checkpoints"], runs[0]["size"] / (1 << 20)
    processes = f"{few} process{'es' if few > 1 else ''}"
    main = next((f"{run['interval_ms']:g} ms" for run in chosen(runs, part="shots")), "")
    _by_interval(axes[0][0], chosen(runs, processes=few))
    axes[0][0].set_title(f"large-host, {processes}: open + checkpoints", fontsize=11)
    _bars(axes[0][1], chosen(runs, processes=few, part="shots"), HOST, total)
    axes[0][1].set_title(f"large-host, {main}, {processes}: open + checkpoints (pale: all)", fontsize=11)
    device = chosen(runs, part="device")
    most = max((run["processes"] for run in device), default=few)
    _bars(axes[1][0], chosen(device, processes=most), ("mapped", "direct", "cuda_malloc"), None)
    axes[1][0].set_title(f"large-device, {most} process{'es' if most > 1 else ''}: open + checkpoints", fontsize=11)
    _by_processes(axes[1][1], chosen(runs, part="shots"))
    axes[1][1].set_title(f"large-host, {main}, by processes at once: open + checkpoints", fontsize=11)
    for panel in axes.flat:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"Time blocked, {count} checkpoints of {size:g} MiB (mean of the processes, median of the runs)")
    _plots.save(figure, path)


def _median_ms(runs: Runs, blocked: Callable[[Mapping[str, Any]], float]) -> float:
    return statistics.median(blocked(run) for run in runs) * 1e3


def _logarithmic(axes: Any) -> None:
    _plots.logarithmic(axes)
    axes.set_ylabel("time blocked (ms)")


def _nothing(axes: Any, why: str) -> None:
    axes.text(0.5, 0.5, f"not measured: {why}", ha="center", va="center", transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def _by_interval(axes: Any, runs: Runs) -> None:
    runs = [run for run in runs if run["part"] in ("sweep", "shots")]
    if not chosen(runs, part="sweep"):
        return _nothing(axes, "intervals")
    for name in HOST:
        found = chosen(runs, strategy=name)
        intervals = sorted({run["interval_ms"] for run in found})
        if found:
            axes.plot(intervals, [_median_ms(chosen(found, interval_ms=at), written) for at in intervals], "o-",
                      color=COLORS[name], label=LABELS[name], linewidth=1.4, markersize=4)  # fmt: skip
    _logarithmic(axes)
    axes.set_xlabel("interval (ms)")
    axes.legend(fontsize=8, frameon=False)


def _bars(axes: Any, runs: Runs, names: tuple[str, ...], more: Callable[[Mapping[str, Any]], float] | None) -> None:
    names = tuple(name for name in names if chosen(runs, strategy=name))
    if not names:
        return _nothing(axes, "this case")
    kinds = [("open + checkpoints", written, 1.0), *([("+ restores", more, 0.5)] if more else [])]
    width = 0.8 / len(kinds)
    tallest, lowest = 0.0, float("inf")
    for i, (label, blocked, alpha) in enumerate(kinds):
        heights = [_median_ms(chosen(runs, strategy=name), blocked) for name in names]
        at = [place + i * width for place in range(len(names))]
        bars = axes.bar(at, heights, width, color=[COLORS[name] for name in names], alpha=alpha, label=label)
        axes.bar_label(bars, [f"{height:.0f}" if height >= 100 else f"{height:.3g}" for height in heights], fontsize=7)
        tallest, lowest = max([tallest, *heights]), min([lowest, *heights])
    _logarithmic(axes)
    if lowest > 0:
        axes.set_ylim(lowest / 4, tallest * 2)  # room for the numbers
    axes.set_xticks([place + width * (len(kinds) - 1) / 2 for place in range(len(names))])
    axes.set_xticklabels([LABELS[name].replace(" (", "\n(").replace(" up front", "\nup front") for name in names],
                         fontsize=8)  # fmt: skip


def _by_processes(axes: Any, runs: Runs) -> None:
    counts = sorted({run["processes"] for run in runs})
    if not counts:
        return _nothing(axes, "this case")
    for name in HOST:
        found = [count for count in counts if chosen(runs, strategy=name, processes=count)]
        if found:
            heights = [_median_ms(chosen(runs, strategy=name, processes=count), written) for count in found]
            axes.plot(found, heights, "o-", color=COLORS[name], label=LABELS[name], linewidth=1.4, markersize=4)
    _logarithmic(axes)
    axes.set_xticks(counts)
    axes.set_xlabel("processes, one a GPU")
    axes.legend(fontsize=8, frameon=False)
