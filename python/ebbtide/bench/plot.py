"""Figure 7 of hpdc23 (sec. 5.4.4): restore rate and prefetch distance at each iteration of the backward pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def plot(document: dict, path: Path) -> None:
    """Draws a shot's document (of `shot.run`) to `path`; with several ranks, their mean."""
    from matplotlib.ticker import MaxNLocator

    from .. import _plots

    config, restore = document["config"], document["restore"]
    ranks, count = config["ranks"], config["checkpoints"]
    blocked = np.array(restore["blocked_s"]).reshape(ranks, count)
    distance = np.array(restore["prefetch_distance"], dtype=float).reshape(ranks, count).mean(axis=0)
    rate = (restored_bytes(config) / np.maximum(blocked, 1e-9)).mean(axis=0) / 1e9
    iteration = np.arange(count)

    figure = _plots.figure(9, 4.5)
    left = figure.add_subplot()
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
    _plots.save(figure, path)


def restored_bytes(config: dict) -> np.ndarray:
    """Bytes of each restore, shape (ranks, checkpoints), in the order of the restores."""
    ranks, count = config["ranks"], config["checkpoints"]
    if config["sizes"] is None:
        return np.full((ranks, count), config["size"], dtype=float)
    return np.array(config["sizes"], dtype=float)[:, config["restore_order"]]
