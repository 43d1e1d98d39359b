"""`ebbtide sim preempt`: which jobs make way for one on demand, and what that does to a machine."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from ebbtide._options import ResultsFile, parsed, size_of, time_of, wrong
from ebbtide.errors import InvalidArgument

_OPTIONS = {"jobs", "workload", "nodes", "deadline", "bandwidth", "state", "interval", "every", "reserve"}


def preempt(
    jobs: Annotated[
        Path | None, typer.Option("--jobs", metavar="FILE.csv", help="The jobs that run: a header and a row a job.")
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option("--workload", metavar="FILE.swf", help="A Standard Workload Format file instead: runs all of it."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", help="That are needed. With --workload: the machine's; else the file's.")
    ] = None,
    deadline: Annotated[float, parsed("--deadline", time_of, "TIME", "Within which they are to be free.")] = "5min",  # type: ignore
    bandwidth: Annotated[
        int, parsed("--bandwidth", size_of, "SIZE", "Bytes a second that the file system takes of all.")
    ] = "100GB",  # type: ignore
    state: Annotated[
        int, parsed("--state", size_of, "SIZE", "With --workload: what a checkpoint has of each node.")
    ] = "64GB",  # type: ignore
    interval: Annotated[
        float, parsed("--interval", time_of, "TIME", "With --workload: work between two checkpoints.")
    ] = "1h",  # type: ignore
    every: Annotated[int, typer.Option(help="With --workload: each so many-th job is on demand.")] = 20,
    reserve: Annotated[
        int,
        typer.Option(help="With --workload: nodes that the policy `reserve` keeps free; 0: the largest such job's."),
    ] = 0,
    json: ResultsFile = None,
) -> None:
    """Say which jobs make way for one on demand so that the least work is lost, or run a workload (Maurya et al., SC 2022)."""
    from rich.console import Console
    from rich.table import Table

    from . import report
    from .jobs import read_jobs
    from .machine import Machine
    from .workload import read_workload

    if (jobs is None) == (workload is None):
        raise wrong("--jobs" if jobs is None else "--workload", "either --jobs or --workload is needed, and not both")
    document: dict[str, Any]
    try:
        if jobs is not None:
            if nodes is None:
                raise wrong("--nodes", "the number of nodes that are needed is needed")
            document = report.plan_document(read_jobs(jobs), nodes, deadline, bandwidth)
            tables, lines = report.plan_tables(document), report.plan_lines(document)
        else:
            assert workload is not None
            arrivals, there = read_workload(workload)
            if nodes is None and there is None:
                raise wrong("--nodes", f"{workload} does not say how many nodes its machine has")
            machine = Machine(nodes or there or 0, deadline, bandwidth, state, interval, every=every, reserve=reserve)
            document = report.run_document(arrivals, machine)
            tables, lines = [report.run_table(document)], []
    except InvalidArgument as error:
        field, _, message = str(error).partition(": ")
        raise wrong(
            f"--{field}" if field in _OPTIONS else "--jobs", message if field in _OPTIONS else str(error)
        ) from None
    console = Console()
    for title, heads, rows in tables:
        table = Table(*heads, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in lines:
        console.print(line, soft_wrap=False, highlight=False)
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")
