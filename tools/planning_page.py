"""The last chapter of docs/planning.md: the models on the machines of data/ics19.csv."""

from __future__ import annotations

import csv
import pathlib
import textwrap

from ebbtide.plan import best, efficiency, figures, first_order, ics19


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows))


def _deviations(printed: list[dict[str, str]]) -> str:
    """How far each formula is from what table 1 prints, at most."""
    most: dict[str, float] = {}
    for row in printed:
        found = ics19.table_row(float(row["exaflops"]), int(row["gpus_per_cpu"]))
        for name, value in found.items():
            most[name] = max(most.get(name, 0.0), abs(value / float(row[name]) - 1))
    return _table(["column", "largest difference"], [[f"`{name}`", f"{value:.1%}"] for name, value in most.items()])


def _both(gpu_failures: float) -> tuple[float, float]:
    """Percent to first order, and exactly with the best pattern."""
    machine = ics19.machine(gpu_failures=gpu_failures)
    return 100 * first_order.efficiency(machine), 100 * efficiency(machine, best(machine))


def page(table: pathlib.Path) -> str:
    with table.open(newline="") as file:
        printed = list(csv.DictReader(file))
    efficiencies = ics19.efficiencies(ics19.machine())
    document = figures.figures()
    held = [one for one in document["figure14"] if (one["most_for_90"] or 0) >= 50]
    says = {"baseline": "84.9", "level1_free": "92.7", "levels12_free": "97.2"}

    def say(text: str) -> str:
        return textwrap.fill(text, 120)

    parts = [
        say(
            "Table 1 of the paper, as printed, is `data/ics19.csv`. The model computes its columns; the rates of CPU failures "
            "it takes from the table, by GPUs a CPU. P is the peak of GPUs and CPUs together."
        ),
        _deviations(printed),
        say("At 3.6 EF and 16 GPUs a CPU, in percent:"),
        _table(
            ["", "paper", "first order"],
            [[f"`{name}`", says[name], f"{percent:.1f}"] for name, percent in efficiencies.items()],
        ),
        "![Efficiency by scale: five densities of GPUs, and four choices of free levels](planning.svg)",
    ]
    for title, (heads, rows) in figures.tables(document).items():
        parts += [f"**{title}**", _table(heads, rows)]
    parts += [
        say(
            "The speed-ups s and the shares v that the paper measured are only in its plots, so figures 12 and 13 are not "
            "drawn, and figure 14 is shown for s of 1, 4 and 40, the range that the abstract names, and for some v."
        ),
        say(
            'The model does not bear out two things that the text says. Section 6.2.2 has optimized snapshots "sustain 90%" at '
            '"highly-scaled GPU failure rates" and names no factor: the last column has how far 90% hold for each s and v, and '
            + (f"{len(held)} of {len(document['figure14'])} hold" if held else "none of them holds")
            + ' it at 50 times. Section 3 has efficiency degrade "at densities of 8-to-1 and greater"; in the model 8 GPUs a CPU do '
            "as well as 2 and 4, since each has 8 GB/s of PCIe, and 16 is the first density that loses."
        ),
        say(
            "The first order has no failures during checkpoints and recoveries. The exact model has them, and with copies that "
            "block and recoveries that take as long, many failures leave nearly nothing: a recovery from the file system takes "
            f"{ics19.machine().write[2]:.0f} s and is struck again before it ends. In percent, at 3.6 EF and 16 GPUs a CPU, each at its "
            "best pattern:"
        ),
        _table(
            ["failures of GPUs", "first order", "exact"],
            [[f"{factor:g} ×", *(f"{percent:.1f}" for percent in _both(factor))] for factor in figures.FACTORS],
        ),
    ]
    return "\n\n".join(parts) + "\n"
