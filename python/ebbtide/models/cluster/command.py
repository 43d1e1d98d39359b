"""`ebbtide sim cluster`: a large machine for a day."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from ebbtide._options import ResultsFile, parsed, size_of, time_of, wrong
from ebbtide.errors import InvalidArgument

_MOST_APART = 1000


def cluster(
    nodes: Annotated[int, typer.Option(help="Nodes of the machine, all in one job.")] = 1000,
    gpus: Annotated[int, typer.Option(help="GPUs of a node: 4, 8, 16, 32 or 64.")] = 8,
    state: Annotated[int, parsed("--state", size_of, "SIZE", "What a checkpoint has of each GPU.")] = "32GB",  # type: ignore
    interval: Annotated[float, parsed("--interval", time_of, "TIME", "Work between two checkpoints.")] = "160s",  # type: ignore
    every: Annotated[
        int, typer.Option(help="Each so many-th goes to the file system; 0: as often as that can take them.")
    ] = 0,
    gpu_failures: Annotated[float, typer.Option(help="Multiplies the failures of GPUs.")] = 1,
    time: Annotated[float, parsed("--time", time_of, "TIME", "Virtual time of a run.")] = "1d",  # type: ignore
    runs: Annotated[int, typer.Option(min=1, max=10000, help="Runs, each with failures of its own.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the first run's failures.")] = 0,
    apart: Annotated[bool, typer.Option("--apart", help="Simulate each node, also where they are alike.")] = False,
    json: ResultsFile = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw machines of several sizes beside the model.")
    ] = None,
) -> None:
    """Run the planners of a large machine for a day of virtual time, with a shared file system and failures."""
    from . import report
    from .machine import Cluster
    from .simulation import run

    if apart and nodes > _MOST_APART:
        raise wrong("--apart", f"{nodes} nodes are simulated only where they are alike; apart, at most {_MOST_APART}")
    try:
        machine = Cluster(nodes, gpus, state, interval, every, gpu_failures)
        found = report.document(machine, [run(machine, seed + at, time, apart) for at in range(runs)])
    except InvalidArgument as error:
        field, _, message = str(error).partition(": ")
        raise wrong("--" + {"seconds": "time"}.get(field, field).replace("_", "-"), message) from None
    for line in report.lines(found):
        typer.echo(line)
    if plot:
        plot.write_text(report.picture(report.sweep()), encoding="utf-8")
    if json:
        json.write_text(json_text.dumps(found, indent=1) + "\n", encoding="utf-8")
