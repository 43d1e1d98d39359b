"""`ebbtide run`: a program that does not wait until its files in one directory are on the disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import outcome

_HERE = Path(__file__).resolve().parents[1]


def run(
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM ...", help="The program, with its arguments.")],
    directory: Annotated[
        Path, typer.Option("--defer-fsync", metavar="DIR", help="Files below it are synced at the end.")
    ],
    dirty: Annotated[str, typer.Option("--dirty", metavar="SIZE", help="The most that may be unwritten.")] = "",
) -> None:
    """Run a program that does not wait for the disk: its files below DIR are synced at the end.

    What is deferred, and what each death leaves: docs/defer-fsync.md.

    Exit code: the program's, 128 + N after signal N, 127 if it was not found, 126 if it cannot be run; 1: a file could
    not be written out; 2: the program was not started.
    """
    with outcome.exit_codes(False):
        from ebbtide import _core

        size = _core.parse_bytes("--dirty", dirty) if dirty else 0  # 0: a quarter of the memory that is available
        if dirty and size < 1 << 20:
            raise outcome.Refused(f"--dirty: {dirty} is too small: at least 1MiB is needed")
        helper, library = _HERE / "ebbtide-defer", _HERE / "libebbtide_defer.so"
        if not helper.exists() or not library.exists():
            raise outcome.Refused(f"{helper} is missing: install ebbtide again", "unsupported")
        sys.stdout.flush()
        os.execv(helper, [str(helper), str(directory), str(size), str(library), *program])


command = run
