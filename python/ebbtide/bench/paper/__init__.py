"""`ebbtide bench paper`: figures of the papers as experiments on this machine, beside what else a program could use."""

from __future__ import annotations

from . import hipc22, hpdc23, ics19, sc22, wag
from .figure import FULL, QUICK, Cell, Figure, Place, Scale, Shots, Values

__all__ = ["FIGURES", "FULL", "QUICK", "Cell", "Figure", "Place", "Scale", "Shots", "Values"]

#: All that there are, by what names them on the command line.
FIGURES: dict[str, Figure] = {
    f"{paper}:{name}": figure
    for paper, module in {"hpdc23": hpdc23, "hipc22": hipc22, "sc22": sc22, "ics19": ics19, "wag": wag}.items()
    for name, figure in module.FIGURES.items()
}
