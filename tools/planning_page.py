"""The last chapter of docs/planning.md: the models on the machines of data/ics19.csv."""

from __future__ import annotations

import csv
import functools
import json
import pathlib
import statistics
import sys
import textwrap
from dataclasses import replace

from ebbtide.models import preemption
from ebbtide.models.cluster import Cluster
from ebbtide.models.cluster import report as cluster_report
from ebbtide.models.efficiency import Pattern, best, drained, efficiency, figures, first_order, ics19
from ebbtide.models.zones import document as zone_document
from ebbtide.models.zones import report as zone_report
from ebbtide.sim import ZoneHardware


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


@functools.cache
def zones() -> dict:
    return zone_document.patterns_document(2**30, ZoneHardware())


def _say(text: str) -> str:
    return textwrap.fill(text, 120)


def _zone_machine() -> list[str]:
    """What programs lose on the zone machine, and what the reserve of its buffer does to that."""
    found = zones()
    reserves = (0, 0.125, 0.5, 0.75, 0.9)
    mode = "NB+I+H+D"

    def with_reserves(memory: int, **hardware: float) -> list[dict]:
        return [
            zone_document.patterns_document(memory, ZoneHardware(reserve=share, **hardware), (mode,))["programs"]  # type: ignore[arg-type]
            for share in reserves
        ]

    def by_share(found: list[dict]) -> str:
        return _table(
            ["program", *(f"reserve {share:g}" for share in reserves)],
            [
                [name, *(f"{programs[name]['modes'][mode]['relative']:.3f}" for programs in found)]
                for name, one in found[0].items()
                if not one["pattern"]["adversarial"]
            ],
        )

    by_reserve = with_reserves(2**30)
    as_a_store = with_reserves(2**28, buffer=8 << 20, memory_rate=16e9, link_half=0, round_trip=1e-6)
    parts = [
        _say(
            "Programs on the zone machine, each in 1 GiB of memory. The names in brackets are the paper's programs of that "
            "kind; the last three are kept because they break what holds for the others."
        ),
        _table(*zone_report.patterns_table(found)),
        "![Time lost over that of F, by program and mode: figures 10 and 11](zone_machine.svg)",
    ]
    for title, (heads, rows) in zone_report.tables(found).items():
        parts += [f"**{title}**", _table(heads, rows)]
    lost = {
        name: {which: 1e6 * one["modes"][which]["lost_s"] for which in ("I", "NB+I+H")}
        for name, one in found["programs"].items()
    }
    parts += [
        _say(
            "NB+I+H loses no more than I, NB+I and NB+F+H on the paper's kinds of program (6.1.1), and with D they lose "
            "no more than without it, within 1%. That is no law. A write at once to the only zone that is owed waits longer than "
            "the copy takes, since "
            f"the answer has a way to go: `one_zone` loses {lost['one_zone']['NB+I+H']:.1f} µs with NB+I+H and "
            f"{lost['one_zone']['I']:.1f} µs with I; `few_reversed` {lost['few_reversed']['NB+I+H']:.0f} and "
            f"{lost['few_reversed']['I']:.0f} µs. And no mode helps a program that writes all of its memory at once: with D it "
            "gains the rate of large transfers alone. Fine zones without D store less and take longer, because transfers of 4 KiB "
            "have 9% of the link's rate."
        ),
        _say(
            "Copies in turn are faster than the link and would fill the buffer. So the last places of each slot are for writes "
            "(the reserve), and their share matters where writes come in any order. Here it is three quarters. "
            f"Time lost over that of F, {mode}:"
        ),
        by_share(by_reserve),
        _say(
            "A store's reserve is an eighth. Its copies are a processor's, about as fast as those that drain the buffer, so copies in "
            "turn seldom fill it, and a large reserve takes from them what it gives to writes. And a slot drains as one piece of a "
            "file, so a reserve of three quarters would make nearly four times as many pieces. The same programs with a store's buffer of two "
            "slots of 4 MiB, copies at 8 GB/s, a drain at 4 GB/s and no round trip:"
        ),
        by_share(as_a_store),
    ]
    return parts


def _preemption(data: pathlib.Path) -> list[str]:
    """The plan for the sample's jobs, and the sample's workload under each policy."""
    from ebbtide.models.preemption import report

    jobs = preemption.read_jobs(data / "preempt-jobs.csv")
    document = report.plan_document(jobs, 160, 300, 8e9)
    arrivals, nodes = preemption.read_workload(data / "preempt-sample.swf")
    runs = report.run_document(arrivals, preemption.Machine(nodes or 0, 300, 8e9))
    parts = [
        textwrap.fill(
            f"**Preemption.** The jobs of `data/preempt-jobs.csv`, of which 160 of {sum(job.nodes for job in jobs)} nodes are needed in "
            "5 minutes, with a file system of 8 GB/s:",
            120,
        ),
        "\n".join(f"- {line}" for line in report.plan_lines(document)),
    ]
    for title, heads, rows in (*report.plan_tables(document)[1:], report.run_table(runs)):
        parts += [f"**{title}**", _table(heads, rows)]
    return parts


@functools.cache
def cluster_sweep() -> list[dict]:
    return cluster_report.sweep(days=20)


def _cluster() -> list[str]:
    """Machines of several sizes beside the exact model, and why they differ."""
    swept = cluster_sweep()
    last = swept[-1]
    levels = Cluster(last["cluster"]["nodes"], gpu_failures=last["cluster"]["gpu_failures"]).levels
    rare = replace(drained(levels), failures=(*levels.failures[:2], 0))
    without = efficiency(rare, Pattern(last["cluster"]["interval"], 1, last["cluster"]["shared_every"]))
    arrived = sum(day["on_shared"] for day in last["days"]) / len(last["days"])
    return [
        textwrap.fill(
            "**A large machine for a day.** Nodes of 8 GPUs and 2 CPUs; 20 days each, with the standard error of their mean. "
            "Efficiency and load in percent; the exact model has the same pattern, drained in the background:",
            120,
        ),
        _table(*cluster_report.table(swept)),
        "![Efficiency by size of the machine, simulated and as the exact model has it](cluster.svg)",
        "The two differ for these reasons:",
        "\n".join(
            textwrap.fill(line, 120, subsequent_indent="  ")
            for line in (
                "- Failures of the file system's level are rare: one in two months. Twenty days seldom have one, and the model has "
                "their mean. Where GPUs fail 50 times as often, a recovery from the file system is struck again and again; on "
                f"{last['cluster']['nodes']} nodes the model says {100 * last['expected']:.1f}% with them and {100 * without:.1f}% without, and "
                f"{100 * last['efficiency']:.1f}% are simulated.",
                "- A start of the program has new planners: what was on its way to the file system is not finished. The model leaves "
                f"each copy the time that it takes. In that last row {arrived:.1f} versions a day get there, so a failure of level 3 "
                "would cost nearly all of the day.",
                "- The planner writes what it has. While no version that goes to the file system waits, the link is free, and it begins "
                "others: it cannot know that the program will drop them, and a store promises that each version becomes durable "
                "unless it is dropped. What is dropped before its write begins is not written. What was begun and dropped is "
                "counted apart from the load, as written and dropped; it delays the versions that go there by a part of one copy.",
            )
        ),
    ]


def _predicted(benches: pathlib.Path) -> list[str]:
    """The simulator beside the real runtime."""
    sys.path.insert(0, str(benches))
    import predicted_figures

    found = json.loads((benches / "results/predicted.json").read_text())
    parts = [
        "### How far the simulator is off",
        _say(
            "Shots of the [benchmark](bench.md), on host memory and on a GPU, beside the same shots in the simulator "
            "(`benches/predicted.py`). Each run is simulated with the intervals and the link rates of that run: what each link moved over "
            "the time in which it did, and bare copies amid the traffic for a call's own copy. The bar is "
            f"{predicted_figures.WITHIN:.0%}, or {1e3 * predicted_figures.WITHIN_SHORT_S:.0f} ms where less than "
            f"{1e3 * predicted_figures.SHORT_S:.0f} ms is blocked, between medians. A shot whose own runs spread by more than "
            f"{predicted_figures.SPREAD:.0%} (longest less shortest, over the median) is shown and not judged, and so is one with a "
            "single run. *From bare rates* is the same simulation from the rates before and after the runs, as one would predict "
            "without having run it."
        ),
    ]
    for part, what in (("cpu", "Host memory"), ("gpu", "A GPU")):
        parts += [f"**{what}**", _table(*predicted_figures.table(found[part]["rows"]))]
    rows = [row for part in found.values() for row in part["rows"]]
    verdicts = [row["verdict"] for row in rows]
    failed = [row["shot"] for row in rows if row["verdict"] == "DOES NOT HOLD"]
    parts.append(
        _say(
            f"Of {len(rows)} shots, {verdicts.count('holds')} hold the bar, {len(failed)} "
            + ("does" if len(failed) == 1 else "do")
            + f" not{' (' + ', '.join(failed) + ')' if failed else ''}, and {sum(v.startswith('shown') for v in verdicts)} are shown. "
            "Of a recorded shot of a GPU there is the sum of its intervals, not each of them, and bare copies of some sizes alone: with "
            "checkpoints of varying size (`variable`), these are blocked longer than the simulator says. In the shots that were verified, which are short and have one "
            "run each, transfers of 16 MiB ended faster than the disk's bare rate; with hints the calls waited longer than the links' time explains, and "
            "without hints they did not."
        )
    )
    return parts


def page(table: pathlib.Path) -> str:
    with table.open(newline="") as file:
        printed = list(csv.DictReader(file))
    efficiencies = ics19.efficiencies(ics19.machine())
    document = figures.figures()
    held = [one for one in document["figure14"] if (one["most_for_90"] or 0) >= 50]
    says = {"baseline": "84.9", "level1_free": "92.7", "levels12_free": "97.2"}

    say = _say
    programs = list(document["figure12"].values())
    means = {mode: statistics.mean(one[mode] for one in programs) for mode in (figures.DRIVER, figures.OPTIMIZED)}
    program_rows = document["figure14_programs"]
    held_programs = [name for name, one in program_rows.items() if (one["most_for_90"] or 0) >= 50]
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
            "The speed-ups s and the shares v that the paper measured are only in its plots. So figures 12 and 13, and 14 once "
            "more, have the programs of the zone machine (below), as if they filled all memory. s is a full copy at the whole "
            "rate of the link, as in the model, over the time lost, which is taken as a round trip at least. In the mean "
            f"{figures.DRIVER} comes to {means[figures.DRIVER]:.1f}% and {figures.OPTIMIZED} to {means[figures.OPTIMIZED]:.1f}%; the "
            "paper has 90.9% and 94.0% for its programs (sec. 9). "
            "Figure 12 has two parts in the paper: with each program's footprint, and scaled to full memory. The footprints that it "
            "measured are only in the plot, and a program of the zone machine has no size of its own. So the table by program is the lower "
            "part, with all memory filled. For the upper part the footprints are assumed: each of "
            f"{', '.join(f'{share:.0%}' for share in figures.FOOTPRINTS)} of the GPUs' memory, for every program, with the state outside GPUs "
            "in proportion. The text says of one program alone, MiniContact (`small_set`), that its footprint is small, and that it does well even "
            f"with full copies: F has {document['figure12_footprints']['F'][-1]:.1f}% at {figures.FOOTPRINTS[-1]:.0%}, and "
            f"{document['figure12_footprints']['F'][0]:.1f}% with all memory. Figure 14 is also shown for s of 1, 4 and 40, the range that "
            "the abstract names, and for some v."
        ),
        say(
            'The model does not bear out two things that the text says. Section 6.2.2 has optimized snapshots "sustain 90%" at '
            '"highly-scaled GPU failure rates" and names no factor: the last column has how far 90% hold for each s and v, and '
            + (f"{len(held)} of {len(document['figure14'])} hold" if held else "none of them holds")
            + " it at 50 times; of the programs, "
            + (f"{', '.join(f'`{name}`' for name in held_programs)} do" if held_programs else "none does")
            + '. Section 3 has efficiency degrade "at densities of 8-to-1 and greater"; in the model 8 GPUs a CPU do '
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
    parts += _zone_machine()
    parts += _preemption(table.parent)
    parts += _cluster()
    parts += _predicted(table.parent.parent / "benches")
    return "\n\n".join(parts) + "\n"
