"""What the tests of ls, verify, export and gc have in common."""

from __future__ import annotations

import json
import os
import pathlib
import stat
from typing import Any, NamedTuple

from ebbtide.cli import app
from format_writer import BLOCK, Record, Writer
from typer.testing import CliRunner

OK, DAMAGED, REFUSED = 0, 1, 2
SEGMENT = Writer.segment_name(1)


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: object) -> Done:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def pattern(size: int, start: int) -> bytes:
    return bytes((start + 7 * i) % 251 for i in range(size))


def healthy(directory: pathlib.Path) -> tuple[Writer, dict[str, Record]]:
    """Three checkpoints of two histories in two files; one of them has replaced an older one."""
    writer = Writer(directory)
    records = {
        "old": writer.add(b"adjoint", 7, pattern(1000, 1), pattern(9000, 2)),
        "plain": writer.add(b"", -3, pattern(5000, 3), metadata=b"\0opaque"),
        "new": writer.add(b"adjoint", 7, pattern(10, 4), segment=2),
        "last": writer.add(b"adjoint", 8, pattern(20_000, 5), segment=2),
    }
    return writer, records


def tree(directory: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """All of a directory: modes and contents."""
    out = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        content = (
            path.read_bytes()
            if stat.S_ISREG(status.st_mode)
            else os.fsencode(os.readlink(path))
            if path.is_symlink()
            else b""
        )
        out[str(path.relative_to(directory))] = (status.st_mode, content)
    return out


__all__ = [
    "BLOCK",
    "DAMAGED",
    "OK",
    "REFUSED",
    "SEGMENT",
    "Done",
    "Record",
    "Writer",
    "healthy",
    "pattern",
    "run",
    "tree",
]
