"""Figure 7 of hpdc23 (sec. 5.4.4): restore rate and prefetch distance at each iteration of the backward pass; and, where
memory was lent, the bytes that spilled over each route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import _plots


def plot(document: dict, path: Path) -> None:
    """Draws a shot's document (of `shot.run`) to `path`; with several ranks, their mean."""
    from matplotlib.ticker import MaxNLocator

    config, restore = document["config"], document["restore"]
    ranks, count = config["ranks"], config["checkpoints"]
    blocked = np.array(restore["blocked_s"]).reshape(ranks, count)
    distance = np.array(restore["prefetch_distance"], dtype=float).reshape(ranks, count).mean(axis=0)
    rate = (restored_bytes(config) / np.maximum(blocked, 1e-9)).mean(axis=0) / 1e9
    iteration = np.arange(count)

    lent = bool(config["lend"])
    figure = _plots.figure(9, 7.5 if lent else 4.5)
    left, *below = figure.subplots(1 + lent, height_ratios=[3, 2][: 1 + lent], squeeze=False)[:, 0]
    (rates,) = left.plot(iteration, rate, color=_plots.BLUE, linewidth=1.2, label="restore rate")
    _plots.logarithmic(left)
    left.set_xlabel("iteration of the backward pass")
    left.set_ylabel("restore rate (GB/s)", color=rates.get_color())
    left.set_xlim(0, max(1, count - 1))
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.grid(alpha=0.25)
    right = left.twinx()
    distances = right.fill_between(
        iteration, distance, step="mid", color=_plots.ORANGE, alpha=0.35, linewidth=0, label="prefetch distance"
    )
    right.set_ylabel("prefetch distance (checkpoints)", color="#a5640b")
    right.yaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_ylim(0, max(1.0, distance.max() * 1.15))
    left.set_zorder(right.get_zorder() + 1)  # the line above the area
    left.set_facecolor("none")
    hints = {"all": "all hints", "one": "one hint at a time", "none": "no hints"}[config["hints"]]
    left.set_title(f"{config['order']} order, {hints}, {'waiting' if config['wait'] else 'not waiting'} for flushes")
    figure.legend(handles=[rates, distances], loc="outside lower center", ncols=2, frameon=False)
    for axes in below:
        _routes(axes, document)
    _plots.save(figure, path)


def _routes(axes: Any, document: dict) -> None:
    """A bar for each route but those between the program and its device, a part of it for each rank."""
    routes = [route for route in document["total"]["moved_bytes"] if set(route.split(">")) != {"app", "device"}]
    begin = np.zeros(len(routes))
    for number, rank in enumerate(document["ranks"]):
        moved = np.array([rank["moved_bytes"].get(route, 0) for route in routes]) / 1e9
        color = _plots.BLUE if number % 2 == 0 else _plots.ORANGE
        axes.barh(routes, moved, left=begin, color=color, edgecolor="white", linewidth=0.8)
        begin = begin + moved
    axes.invert_yaxis()  # the first on top
    axes.set_xlabel("moved in the whole shot (GB), rank by rank")
    axes.grid(alpha=0.25, axis="x")
    axes.set_axisbelow(True)


def restored_bytes(config: dict) -> np.ndarray:
    """Bytes of each restore, shape (ranks, checkpoints), in the order of the restores."""
    ranks, count = config["ranks"], config["checkpoints"]
    if config["sizes"] is None:
        return np.full((ranks, count), config["size"], dtype=float)
    return np.array(config["sizes"], dtype=float)[:, config["restore_order"]]
