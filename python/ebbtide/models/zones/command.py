"""`ebbtide sim zones`: what programs would lose to snapshots on the memory-zone hardware."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from ebbtide._options import ResultsFile, size_of, wrong
from ebbtide.errors import InvalidArgument


def _size(name: str, text: str):
    return typer.Option(name, parser=size_of, metavar="SIZE", help=text)


def zones(
    memory: Annotated[int, _size("--memory", "Memory of each program.")] = "1GiB",  # type: ignore
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Writes of a program, in place of the known patterns: seconds,offset,bytes; before the cut below 0.",
        ),
    ] = None,
    link_rate: Annotated[int, _size("--link-rate", "Bytes a second to the host.")] = "4GB",  # type: ignore
    link_half: Annotated[int, _size("--link-half", "Transfers of this size have half the rate.")] = "40168",  # type: ignore
    round_trip: Annotated[float, typer.Option(min=0, help="Microseconds between device and host.")] = 25,
    buffer: Annotated[int | None, _size("--buffer", "D's double buffer; else 1/128 of memory.")] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Of the buffer.")] = 2,
    reserve: Annotated[float, typer.Option(help="Share of a slot that only writes get.")] = 0.75,
    held: Annotated[int, typer.Option(min=0, max=65536, help="Zones to which a memory channel holds writes.")] = 0,
    json: ResultsFile = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw what each mode costs.")] = None,
) -> None:
    """Show what programs lose to a snapshot: blocking, incremental or in the background, on simulated hardware that finds what was written (Lee et al., ICS 2019, figures 10 and 11)."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from ebbtide.sim.zones import ZoneHardware, ZoneProgram

    from . import document as model
    from . import report

    hardware = ZoneHardware(
        link_rate=link_rate,
        link_half=link_half,
        round_trip=round_trip * 1e-6,
        buffer=buffer,
        slots=slots,
        reserve=reserve,
        held_zones=held,
    )
    try:
        if trace:
            found = model.document({trace.stem: (None, ZoneProgram.read(trace, memory))}, hardware)
        else:
            found = model.patterns_document(memory, hardware)
    except (InvalidArgument, OSError, UnicodeDecodeError) as error:
        field, _, message = str(error).partition(": ")
        options = ("memory", "link_rate", "link_half", "round_trip", "buffer", "slots", "reserve")
        if field in options:
            raise wrong("--" + field.replace("_", "-"), message) from None
        raise wrong("--trace" if trace else "--memory", str(error)) from None
    console = Console()
    for title, (heads, rows) in report.tables(found).items():
        table = Table(title=title, title_justify="left", box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
        for head in heads:
            table.add_column(head.replace("+", "\n+"), no_wrap=True)  # so that they fit a terminal
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if plot:
        plot.write_text(report.picture(found), encoding="utf-8")
    if json:
        json.write_text(json_text.dumps(found, indent=1) + "\n", encoding="utf-8")
