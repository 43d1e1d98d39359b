"""`ebbtide sim spill`: what GPUs would do with what they cannot hold."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from ebbtide import _plots
from ebbtide._options import ResultsFile, parsed, size_of, time_of, wrong
from ebbtide.errors import InvalidArgument


def _sizes_by_gpu(text: str) -> dict[int, int]:
    """``"0:480MB,6:240MB"``."""
    out: dict[int, int] = {}
    for part in text.split(","):
        gpu, colon, size = part.partition(":")
        if not colon or not gpu.strip().isdecimal() or int(gpu) in out:
            raise typer.BadParameter(f"{text[:100]!r} is not sizes by GPU such as '0:480MB,6:240MB', each GPU once")
        out[int(gpu)] = size_of(size)
    return out


def spill(
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.csv",
            exists=True,
            dir_okay=False,
            help="Checkpoint sizes: one row per step, one column per GPU.",
        ),
    ] = None,
    free: Annotated[
        int, parsed("--free", size_of, "SIZE", "With --trace: what each GPU can hold of its checkpoints.")
    ] = "128MiB",  # type: ignore
    remainder: Annotated[
        dict[int, int] | None,
        parsed("--remainder", _sizes_by_gpu, "GPU:SIZE,...", "One step instead: what GPUs cannot hold."),
    ] = None,
    spare: Annotated[
        dict[int, int] | None, parsed("--spare", _sizes_by_gpu, "GPU:SIZE,...", "And what others can spare.")
    ] = None,
    topology: Annotated[
        str, typer.Option(metavar="NAME|FILE.json", help="dgx1v, nvswitch-h200, or a file with rates.")
    ] = "dgx1v",
    relays: Annotated[
        bool | None,
        typer.Option(
            "--relays/--no-relays", help="Also to the host over the links of peers (default: as the topology has it)."
        ),
    ] = None,
    unit: Annotated[int, parsed("--unit", size_of, "SIZE", "What flow_paper sends at a time.")] = "1MB",  # type: ignore
    json: ResultsFile = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="With --trace: draw overhead over flow and decisions by step."),
    ] = None,
) -> None:
    """Compare ways to send what GPUs cannot hold: to the host alone, or also to other GPUs' memory (Maurya et al., SC 2022)."""
    from rich.console import Console

    from ebbtide import _traces as traces

    from . import report, steps

    links = _topology(topology, relays)
    console = Console()
    if (trace is None) == (remainder is None):
        raise wrong("--trace", "either a trace or a step (--remainder, --spare) is needed")
    if remainder is not None:
        if plot:
            raise wrong("--plot", "one step is not drawn; it is for --trace")
        sizes = [_of_gpus(name, given, links.gpus) for name, given in (("--remainder", remainder), ("--spare", spare))]
        try:
            document = steps.step_document(links, *sizes, unit)
        except InvalidArgument as error:
            raise wrong("--remainder", str(error)) from None
        console.print(report.step_table(document))
    else:
        assert trace is not None
        if spare is not None:
            raise wrong("--spare", "the trace says what is spare; it is for --remainder")
        try:
            rows = traces.read_trace(trace)
        except ValueError as error:
            raise wrong("--trace", str(error)) from None
        if len(rows[0]) != links.gpus:
            raise wrong("--trace", f"{trace} has {len(rows[0])} columns; {topology} has {links.gpus} GPUs")
        try:
            found = steps.trace_document(links, rows, free, unit)
        except InvalidArgument as error:
            raise wrong("--trace", str(error)) from None
        document = {"topology": topology, "relays": links.relays, "trace": str(trace), **found}
        console.print(report.trace_table(document))
        for note in report.notes(document):
            console.print(note, soft_wrap=False, highlight=False)
        if plot and _plots.can_draw(lambda text: Console(stderr=True).print(text, markup=False)):
            report.plot(document, plot)
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")


def lent(
    checkpoints: Annotated[int, typer.Option(min=1, max=4096, help="How many a shot writes, and then reads.")] = 384,
    size: Annotated[int, parsed("--size", size_of, "SIZE", "Of each.")] = "128MiB",  # type: ignore
    interval: Annotated[float, parsed("--interval", time_of, "TIME", "Computing before each call.")] = "10ms",  # type: ignore
    device: Annotated[int, parsed("--device", size_of, "SIZE", "Of the program's device cache.")] = "4GiB",  # type: ignore
    lent: Annotated[int, parsed("--lent", size_of, "SIZE", "That another GPU lends.")] = "16GiB",  # type: ignore
    host: Annotated[int, parsed("--host", size_of, "SIZE", "Of the host cache.")] = "32GiB",  # type: ignore
    writers: Annotated[
        int,
        typer.Option(
            min=1, help="GPUs that write at once. Idle ones lend to them; where too few are idle, writers do."
        ),
    ] = 1,
    topology: Annotated[
        str, typer.Option(metavar="NAME|FILE.json", help="nvswitch-h200, dgx1v, or a file with rates.")
    ] = "nvswitch-h200",
    rooms: Annotated[
        bool,
        typer.Option("--rooms", help="Bursts of 1 and 8 GiB instead, for which a neighbour has room for 1/16 to all."),
    ] = False,
    json: ResultsFile = None,
) -> None:
    """What memory that another GPU lends is worth: a shot and a burst, with and without it, and the least that can be."""
    from rich.console import Console

    from . import lent as worth

    links = _topology(topology, None)
    if writers > links.gpus or links.gpus < 2:
        raise wrong("--writers", f"{writers} of at least two GPUs; {topology} has {links.gpus}")
    node = worth.Node(links, writers)
    try:
        node.pair
    except InvalidArgument as error:
        raise wrong("--writers", str(error)) from None
    if rooms:
        rows = worth.by_room(links, [1 << 30, 8 << 30], [16 << 20, 128 << 20])
        Console().print(worth.room_table(rows))
        if json:
            json.write_text(json_text.dumps(rows, indent=1) + "\n", encoding="utf-8")
        return
    if size < 1 or lent < 2 * size or device < size:
        raise wrong("--size", f"{size} bytes: --device must hold one, and --lent two")
    document = worth.document(node, checkpoints, size, interval, device, lent, host)
    Console().print(worth.table(document))
    if json:
        json.write_text(json_text.dumps(document, indent=1) + "\n", encoding="utf-8")


def _topology(name: str, relays: bool | None):
    from dataclasses import replace

    from ebbtide.sim import Topology

    known = {"dgx1v": Topology.dgx1v, "nvswitch-h200": Topology.nvswitch_h200}
    try:
        found = known[name]() if name in known else Topology.read(Path(name))
    except (InvalidArgument, OSError) as error:
        raise wrong("--topology", f"{error}; known by name: {', '.join(known)}") from None
    return found if relays is None else replace(found, relays=relays)


def _of_gpus(name: str, given: dict[int, int] | None, gpus: int) -> list[int]:
    out = [0] * gpus
    for gpu, size in (given or {}).items():
        if gpu >= gpus:
            raise wrong(name, f"there is no GPU {gpu}; the topology has {gpus}")
        out[gpu] = size
    return out
