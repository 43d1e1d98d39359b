"""The two pictures: model beside image, and how long each way of storing checkpoints blocked the program."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import _plots
from .model import Model
from .replay import Outcome
from .survey import Survey

COMPUTING, BLOCKED = "#c9d3dd", _plots.RED


def draw_image(path: Path, model: Model, survey: Survey, image: np.ndarray, slice_of: str = "") -> None:
    """Speed on the left, `image` (nz, nx; filtered for the eye) on the right, both over kilometres, as PNG.

    `slice_of`: the volume of which both are the vertical slice through the middle, in words.
    """
    figure = _plots.figure(15, 4.3)
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    extent = model.extent_km

    speed = left.imshow(model.speed / 1000, extent=extent, cmap="turbo", interpolation="nearest")
    figure.colorbar(speed, ax=left, label="P-wave speed (km/s)", fraction=0.025, pad=0.02)
    _draw_survey(left, survey)
    left.legend(loc="lower right", fontsize=8, framealpha=0.85)
    left.set_title("True model" + (f", middle slice of {slice_of}" if slice_of else ""))
    left.set_ylabel("depth (km)")

    reach = _strongest(image)
    shown = right.imshow(image / reach, extent=extent, cmap="gray_r", vmin=-1, vmax=1, interpolation="bilinear")
    figure.colorbar(
        shown, ax=right, label="reflectivity, relative\n(dark: speed rises with depth)", fraction=0.025, pad=0.02
    )
    right.contour(
        _centres(model.shape[1], model.spacing),
        _centres(model.shape[0], model.spacing),
        model.salt.astype(float),
        levels=[0.5],
        colors="#d0021b",
        linewidths=0.8,
        linestyles="dashed",
    )
    _draw_survey(right, survey)
    right.plot([], [], "--", color="#d0021b", linewidth=0.8, label="salt in the true model")
    right.legend(loc="lower right", fontsize=8, framealpha=0.85)
    shots = len(survey.source_columns)
    right.set_title(
        f"Reverse time migration: {shots} shot{'s' * (shots > 1)}, {survey.peak_frequency:.0f} Hz Ricker wavelet"
    )
    for axes in (left, right):
        axes.set_xlabel("distance (km)")
        axes.set_ylim(extent[2], -0.09)  # room for the symbols at the surface
        axes.set_xlim(extent[0], extent[1])
    _plots.save(figure, path, dpi=120)


def draw_timeline(path: Path, outcomes: list[Outcome], title: str) -> None:
    """Each way as a bar over time, red while the program was blocked, and the sums of the blocked time below, as PNG."""
    figure = _plots.figure(12, 6.4)
    lanes, sums = figure.subplots(2, 1, height_ratios=(1.15, 1))
    figure.suptitle(title)

    for lane, outcome in enumerate(outcomes):
        lanes.broken_barh([(0, outcome.wall_s)], (lane - 0.32, 0.64), facecolor=COMPUTING, linewidth=0)
        calls = list(zip(outcome.began_s, outcome.blocked_s, strict=True))
        # Unsnapped, a call shorter than a pixel is a tint of its length, instead of a whole pixel or nothing.
        lanes.broken_barh(calls, (lane - 0.32, 0.64), facecolor=BLOCKED, linewidth=0, snap=False)
        turn = outcome.began_s[outcome.writes - 1] + outcome.blocked_s[outcome.writes - 1]
        lanes.plot([turn, turn], [lane - 0.42, lane + 0.42], color="black", linewidth=1.2)
        text = f" {sum(outcome.blocked_s):.2f} s blocked"
        lanes.text(outcome.wall_s, lane, text, va="center", fontsize=9)
    lanes.set_yticks(range(len(outcomes)), [o.name + (f"\n({o.note})" if o.note else "") for o in outcomes])
    lanes.invert_yaxis()
    lanes.set_xlim(0, max(o.wall_s for o in outcomes) * 1.14)
    lanes.set_xlabel("time (s)")
    for label, colour in (("computing", COMPUTING), ("blocked", BLOCKED)):
        lanes.broken_barh([(0, 0)], (0, 0), facecolor=colour, label=label)
    lanes.plot([], [], color="black", linewidth=1.2, label="the program turns back")
    lanes.legend(loc="upper center", bbox_to_anchor=(0.5, 1.13), ncols=3, fontsize=9, frameon=False)

    count = outcomes[0].writes
    for outcome, style in zip(outcomes, ("-", "--", ":"), strict=False):
        sums.plot(np.arange(1, 2 * count + 1), np.cumsum(outcome.blocked_s), style, label=outcome.name, linewidth=1.8)
    sums.axvline(count + 0.5, color="black", linewidth=1.2)
    sums.set_xlim(0, 2 * count)
    sums.set_ylim(bottom=0)
    ticks = np.linspace(0, 2 * count, 9).round()
    sums.set_xticks(ticks, [f"{int(t if t <= count else 2 * count - t)}" for t in ticks])
    sums.set_xlabel("checkpoint: written in order up to the line, read back in reverse after it")
    sums.set_ylabel("blocked so far (s)")
    sums.grid(alpha=0.3)
    sums.legend(fontsize=9)
    _plots.save(figure, path, dpi=120)


def _draw_survey(axes, survey: Survey) -> None:
    depth = (survey.depth_row + 0.5) * survey.spacing / 1000
    receivers = survey.receiver_columns
    x = (np.arange(receivers.start, receivers.stop, receivers.step) + 0.5) * survey.spacing / 1000
    axes.plot([x[0], x[-1]], [depth, depth], color="#00a651", linewidth=2.2, label=f"{len(x)} receivers", clip_on=False)
    sources = (np.array(survey.source_columns) + 0.5) * survey.spacing / 1000
    style = {"markersize": 11, "markerfacecolor": "gold", "markeredgecolor": "black"}
    axes.plot(sources, np.full(len(sources), depth), "*", label="shots", clip_on=False, zorder=5, **style)


def _centres(cells: int, spacing: float) -> np.ndarray:
    return (np.arange(cells) + 0.5) * spacing / 1000


def _strongest(image: np.ndarray) -> float:
    """The amplitude at which black and white end: strong events may clip so that weak ones show."""
    return max(float(np.percentile(np.abs(image), 98.5)), np.finfo(np.float32).tiny)
