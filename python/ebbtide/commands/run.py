"""`ebbtide run`: a program whose files in one directory are written by way of memory."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from . import outcome

_HERE = Path(__file__).resolve().parents[1]


class Fsync(str, Enum):
    """The values of `--fsync`."""

    keep = "keep"
    defer = "defer"


def run(
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM ...", help="The program, with its arguments.")],
    capture: Annotated[Path, typer.Option("--capture", metavar="DIR", help="The files below it are captured.")],
    fsync: Annotated[Fsync, typer.Option("--fsync", help="Whether fsync is done at once, or at the end.")] = Fsync.keep,
    pool: Annotated[str, typer.Option("--pool", metavar="SIZE", help="Memory for what is not written yet.")] = "1GiB",
) -> None:
    """Run a program, and write its files below DIR by way of memory, in large pieces.

    All files are whole when it returns. What is captured and what is not: docs/capture.md.

    Exit code: the program's, 128 + N after signal N, 127 if it was not found; 1: it succeeded but a file is not whole;
    2: it was not started.
    """
    with outcome.exit_codes(False):
        from ebbtide import _core

        size = _core.parse_bytes("--pool", pool)
        helper, library = _HERE / "ebbtide-capture", _HERE / "libebbtide_capture.so"
        if not helper.exists() or not library.exists():
            raise outcome.Refused(f"{helper} is missing: install ebbtide again", "unsupported")
        words = [str(capture), str(size), fsync.value, str(library), str(helper), *program]
        sys.stdout.flush()
        os.execv(helper, [str(helper), *words])


command = run
