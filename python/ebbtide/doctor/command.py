"""`ebbtide doctor`: the command line."""

from __future__ import annotations

import json as json_text
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # everything else is imported when the command runs, so that `ebbtide --help` is fast
    from .report import Sections


def doctor(
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            exists=True,
            file_okay=False,
            help="The disk tier's directory (default: $EBBTIDE_DIR, $TMPDIR or /tmp).",
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write everything found to FILE.")] = None,
) -> None:
    """Say what this machine has for a store, how fast it is, and what to change; it takes some seconds.

    Exit code 0; 1: a store cannot be opened in that directory at all.
    """
    from rich.console import Console

    from .._options import wrong
    from . import report

    if json and not json.parent.is_dir():
        raise wrong("--json", f"{json.parent} is not a directory")
    console, started = Console(), time.perf_counter()
    with console.status("measuring"):
        sections, can_open = examine(directory)
    report.show(console, sections)
    if json:
        document = report.document(sections, can_open, time.perf_counter() - started)
        json.write_text(json_text.dumps(document, indent=1) + "\n")
    if not can_open:
        raise typer.Exit(1)


def examine(directory: Path | None) -> tuple[Sections, bool]:
    """Every section's findings, and whether a store can be opened."""
    from ebbtide import _core

    from . import caches, disk, gpus, limits, peers, snapshots
    from .finding import Level

    info, ring_reason = _core.build_info(), _core.io_uring_absent_reason()
    devices = _core.cuda_devices(open=True)
    place = disk.directory_of(directory)
    where = disk.place(place)
    plan, can_open = caches.sizes(directory)
    return {
        "build": gpus.build(info, gpus.cards()),
        "gpus": gpus.gpus(devices, _core.cuda_absent_reason(), bool(info["cuda"])),
        "links": [gpus.gpu_links(device) for device in devices] + [gpus.host_copies()],
        "peers": peers.findings(len(devices), _core.peer_links() if len(devices) > 1 else []),
        "disk": [where] if where.level is Level.change else [where, *disk.rates(place)],
        "limits": limits.findings(info["io_uring"], ring_reason),
        "snapshots": snapshots.findings(_core.write_tracking()),
        "caches": [caches.memory(), *plan],
    }, can_open


command = doctor
