"""The paper's figures 2, 3 and 14 from the model, as numbers and as a picture."""

from __future__ import annotations

from typing import Any

from . import first_order, ics19

SCALES = (0.45, 0.9, 1.8, 3.6, 7.2)
_COLOURS = ("#1f5fa8", "#c8321e", "#d98a1f", "#2f855a", "#6b46c1")
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


def picture(document: dict[str, Any]) -> str:
    """Figures 2 and 3 side by side, as SVG."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 340" width="900" height="340"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13">',
        '<rect width="900" height="340" rx="8" fill="#ffffff"/>',
    ]

    def text(x: float, y: float, words: str, colour: str = "#223344", anchor: str = "middle") -> None:
        lines.append(f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}">{words}</text>')

    panels = (("figure2", "figure 2: by GPUs a CPU"), ("figure3", "figure 3: by levels that are free"))
    for left, (figure, title) in zip((50, 490), panels):
        text(left + 165, 24, title)
        for percent in (75, 80, 85, 90, 95, 100):
            y = 290 - (percent - 75) * 10
            lines.append(f'<line x1="{left}" y1="{y}" x2="{left + 330}" y2="{y}" stroke="#d8dee6"/>')
            text(left - 8, y + 4, f"{percent}%", anchor="end")
        at = [left + 20 + 72 * i for i in range(len(document["exaflops"]))]
        for x, scale in zip(at, document["exaflops"]):
            text(x, 310, f"{scale:g}")
        text(left + 165, 330, "EF")
        for row, ((name, values), colour) in enumerate(zip(document[figure].items(), _COLOURS)):
            points = " ".join(f"{x},{290 - (value - 75) * 10:.1f}" for x, value in zip(at, values))
            lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
            text(left + 335, 60 + 18 * row, name, colour, "start")
    return "\n".join([*lines, "</svg>"]) + "\n"
