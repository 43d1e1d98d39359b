"""The paper's figures 2, 3 and 14 from the model, as numbers and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import first_order, ics19

SCALES = (0.45, 0.9, 1.8, 3.6, 7.2)
FACTORS = (0.1, 1, 10, 50)
SPEEDUPS, SHARES = (1, 4, 40), (1, 0.5, 0.1)


def figures() -> dict[str, Any]:
    """Efficiencies in percent, to first order.

    ``figure2``: by GPUs a CPU, at each of ``exaflops``. ``figure3``: by the levels that are free, at 16 GPUs a CPU.
    ``figure14``: for each ``speedup`` of level 1 and share ``written`` on levels 2 and 3, at each of ``gpu_failures``, and
    ``most_for_90``, the highest factor of the failures of GPUs at which 90% are left (null: 90% are never reached).
    """

    def percent(**options: float) -> float:
        return 100 * first_order.efficiency(ics19.machine(**options))  # type: ignore[arg-type]

    free = {"none": (), "1": (1,), "2": (2,), "1, 2": (1, 2)}
    return {
        "exaflops": list(SCALES),
        "figure2": {
            str(density): [percent(exaflops=scale, density=density) for scale in SCALES]
            for density in ics19.CPU_FAILURES
        },
        "figure3": {
            name: [100 * first_order.efficiency(ics19.free(ics19.machine(scale), *levels)) for scale in SCALES]
            for name, levels in free.items()
        },
        "gpu_failures": list(FACTORS),
        "figure14": [
            {
                "speedup": speedup,
                "written": written,
                "percent": [percent(gpu_failures=g, speedup=speedup, written=written) for g in FACTORS],
                "most_for_90": ics19.most_gpu_failures(0.9, speedup, written),
            }
            for speedup in SPEEDUPS
            for written in SHARES
        ],
    }


def tables(document: dict[str, Any]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """What ``figures`` found, by title: the heads of the columns, and the rows."""
    scales = [f"{scale:g} EF" for scale in document["exaflops"]]
    out = {}
    for figure, head, title in (
        ("figure2", "GPUs a CPU", "Figure 2: efficiency in percent, by scale"),
        ("figure3", "free levels", "Figure 3: efficiency in percent at 16 GPUs a CPU, by scale"),
    ):
        rows = [[name, *(f"{value:.1f}" for value in values)] for name, values in document[figure].items()]
        out[title] = ([head, *scales], rows)
    factors = [f"{factor:g} ×" for factor in document["gpu_failures"]]
    rows = []
    for one in document["figure14"]:
        most = one["most_for_90"]
        held = "never" if most is None else f"{most:.2g} ×" if most < 10 else f"{most:.0f} ×"
        rows.append([f"{one['speedup']:g}", f"{one['written']:g}", *(f"{value:.1f}" for value in one["percent"]), held])
    title = "Figure 14: efficiency in percent at 3.6 EF and 16 GPUs a CPU, by failures of GPUs"
    out[title] = (["s", "v", *factors, "90% up to"], rows)
    return out


def plot(document: dict[str, Any], path: Path) -> None:
    """Draws figures 2 and 3."""
    from ebbtide import _plots

    drawn = _plots.figure(9, 3.6)
    both = drawn.subplots(1, 2, sharey=True)
    for axes, figure, title in zip(both, ("figure2", "figure3"), ("GPUs a CPU (figure 2)", "free levels (figure 3)")):
        for name, values in document[figure].items():
            axes.plot(document["exaflops"], values, marker="o", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(document["exaflops"], [f"{scale:g}" for scale in document["exaflops"]])
        axes.set_xlabel("EF")
        axes.legend(title=title, fontsize=8, title_fontsize=8)
    both[0].set_ylabel("efficiency in percent")
    _plots.save(drawn, path)
