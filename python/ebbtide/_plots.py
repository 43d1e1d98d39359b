"""What all plots have in common. Drawing needs matplotlib, which is imported here alone, so by no command that draws
nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

BLUE, RED, ORANGE = "#1f5fa8", "#c8321e", "#d98a1f"


def figure(width: float, height: float) -> Figure:
    """An empty one, in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def logarithmic(axes: Any) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5 of each decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))


def save(drawn: Figure, path: Path, dpi: int = 130) -> None:
    """The same bytes each time."""
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        drawn.savefig(path, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": dpi}))
