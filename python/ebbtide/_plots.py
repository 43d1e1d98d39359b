"""What all plots have in common. Drawing needs matplotlib, an extra; it is imported when something is drawn, and only here."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, RED, ORANGE = "#1f5fa8", "#c8321e", "#d98a1f"


def can_draw(say: Callable[[str], None]) -> bool:
    """Whether matplotlib is there. If not, says which line installs it: to be asked before the work of minutes."""
    if importlib.util.find_spec("matplotlib") is None:
        say('there will be no picture: matplotlib is not installed. To install it: pip install "ebbtide[plots]"')
        return False
    return True


def figure(width: float, height: float) -> Figure:
    """An empty one, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def logarithmic(axes: Any) -> None:
    """A logarithmic y axis with plain numbers at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import FuncFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else ""))


def save(drawn: Figure, path: Path, dpi: int = 130) -> None:
    """The same bytes each time."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        drawn.savefig(path, **({"metadata": {"Date": None}} if path.suffix == ".svg" else {"dpi": dpi}))
