"""`ebbtide bench paper`: figures of the papers as experiments on this machine, beside what else a program could use."""

from __future__ import annotations

from .figure import FULL, QUICK, Cell, Figure, Place, Scale
from .hpdc23 import FIGURES as HPDC23

__all__ = ["FIGURES", "FULL", "QUICK", "Cell", "Figure", "Place", "Scale"]

#: All that there are, by what names them on the command line.
FIGURES: dict[str, Figure] = {f"hpdc23:{name}": figure for name, figure in HPDC23.items()}
