"""`ebbtide plan`: what checkpoints would cost, and how often to make them."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide._options import ResultsFile, parsed, size_of, wrong
from ebbtide._units import format_rate, format_size, format_time, parse_time
from ebbtide.errors import InvalidArgument

app = typer.Typer(help="What checkpoints on three levels would cost, and how often to make them.")

_LONGEST = 1e12  # seconds that are a mean time between failures


def _mtbf(text: str) -> float:
    try:
        return parse_time(text, _LONGEST)
    except ValueError:
        right = f"a time such as '3y', '90d' or '12h', at most {_LONGEST:.0e} seconds"
        raise typer.BadParameter(f"{text[:100]!r} is not {right}") from None


def _named(error: InvalidArgument) -> typer.BadParameter:
    """The refusal of the option that the error names first."""
    field, _, message = str(error).partition(": ")
    if field in ("memory_rate", "disk_rate"):
        return wrong("--rates", str(error))
    return wrong("--" + field.replace("_", "-"), message)


def _write(json: Path | None, document: dict[str, Any]) -> None:
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")


@app.callback(invoke_without_command=True)
def plan(
    context: typer.Context,
    state: Annotated[
        int | None, parsed("--state", size_of, "SIZE", "What a checkpoint holds of each node; needed.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, max=10_000_000, help="Nodes of the run.")] = 1,
    mtbf_process: Annotated[
        float | None, parsed("--mtbf-process", _mtbf, "TIME", "Of one node: failures that leave its memory.")
    ] = None,
    mtbf_node: Annotated[
        float | None, parsed("--mtbf-node", _mtbf, "TIME", "Of one node: failures that leave its disk.")
    ] = None,
    mtbf_system: Annotated[
        float | None, parsed("--mtbf-system", _mtbf, "TIME", "Of all: failures that leave the shared file system.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE.csv", help="Failures of all nodes, in place of MTBFs: seconds,level."),
    ] = None,
    rates: Annotated[
        Path | None,
        typer.Option(
            "--rates", metavar="FILE", exists=True, dir_okay=False, help="What `ebbtide doctor --json FILE` measured."
        ),
    ] = None,
    shared_rate: Annotated[
        int | None, parsed("--shared-rate", size_of, "SIZE", "Bytes a second of the shared file system, of all nodes.")
    ] = None,
    draining: Annotated[
        bool, typer.Option("--draining/--blocking", help="Whether disk and file system are written in the background.")
    ] = False,
    json: ResultsFile = None,
) -> None:
    """Say how often to checkpoint to memory, disk and the shared file system, and how efficient that is."""
    if context.invoked_subcommand is not None:
        return
    from ebbtide.sim.rates import measured_rates

    from . import this_machine

    if state is None:
        raise wrong("--state", "the bytes of each node's checkpoint are needed, such as '60GB'")
    site = this_machine.Site(state, nodes)
    try:
        if log:
            found = this_machine.read_failures(log)
            per_node = {level: seconds * (1 if level == "system" else nodes) for level, seconds in found.items()}
            site = replace(site, **{f"mtbf_{level}": seconds for level, seconds in per_node.items()})
        given = {
            "mtbf_process": mtbf_process,
            "mtbf_node": mtbf_node,
            "mtbf_system": mtbf_system,
            "shared_rate": shared_rate,
        }
        if rates:
            try:
                measured = measured_rates(rates, "cpu")
            except InvalidArgument as error:
                raise wrong("--rates", str(error)) from None
            given |= {"memory_rate": measured.get("device_host"), "disk_rate": measured.get("file_write")}
        site = replace(site, **{name: value for name, value in given.items() if value is not None})
        chosen = this_machine.plan(site, draining)
    except InvalidArgument as error:
        raise _named(error) from None
    for place, cost, seconds, rate in zip(
        ("memory", "disk", "shared file system"), site.levels().write, chosen.intervals, chosen.levels.failures
    ):
        typer.echo(
            f"{place + ':':20}each {format_time(seconds)} of work; a checkpoint takes {format_time(cost)}, "
            f"a failure comes each {format_time(1 / rate)}"
        )
    typer.echo(f"efficiency: {100 * chosen.efficiency:.2f}%")
    typer.echo(
        f"assumed: {format_size(site.state)} a node; {format_rate(site.memory_rate)} to memory and "
        f"{format_rate(site.disk_rate)} to disk, a node; {format_rate(site.shared_rate)} to the shared file system"
    )
    typer.echo(
        f"assumed: a failure of a process each {site.mtbf_process / 86400:.4g} days and of a node each "
        f"{site.mtbf_node / 86400:.4g} days, on one node; of the system each {site.mtbf_system / 86400:.4g} days"
    )
    typer.echo(chosen.python())
    document = {
        "site": asdict(site),
        "draining": draining,
        "levels": asdict(chosen.levels),
        "pattern": chosen.pattern._asdict(),
        "intervals": list(chosen.intervals),
        "efficiency": 100 * chosen.efficiency,
        "python": chosen.python(),
    }
    _write(json, document)


@app.command()
def efficiency(
    exaflops: Annotated[float, typer.Option(help="Peak of the machine, which sets its number of nodes.")] = 3.6,
    density: Annotated[int, typer.Option(help="GPUs a CPU: 2, 4, 8, 16 or 32.")] = 16,
    gpu_failures: Annotated[float, typer.Option(help="Multiplies the failures of GPUs.")] = 1,
    speedup: Annotated[float, typer.Option(help="Divides the time of checkpoints to memory.")] = 1,
    written: Annotated[float, typer.Option(help="Share of the state that disk and file system store.")] = 1,
    json: ResultsFile = None,
) -> None:
    """Say how efficient an exascale machine of CPUs with many GPUs is, to first order, in percent (Lee et al., ICS 2019, table 1)."""
    from . import ics19

    try:
        document = ics19.efficiencies(ics19.machine(exaflops, density, gpu_failures, speedup, written))
    except InvalidArgument as error:
        raise _named(error) from None
    for name, percent in document.items():
        typer.echo(f"{name:15}{percent:5.1f}%")
    _write(json, document)


@app.command()
def figures(
    json: ResultsFile = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw efficiency by size, and by failures.")
    ] = None,
) -> None:
    """Show the efficiency of large machines by size, GPUs a CPU and failures, from the model (Lee et al., ICS 2019, figures 2, 3, 12, 13 and 14); programs are those of `ebbtide sim zones`."""
    from rich.console import Console
    from rich.table import Table

    from . import figures as model

    document = model.figures()
    console = Console()
    for title, (heads, rows) in model.tables(document).items():
        table = Table(*(head.replace("+", "\n+") for head in heads), title=title)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if plot:
        plot.write_text(model.picture(document), encoding="utf-8")
    _write(json, document)
