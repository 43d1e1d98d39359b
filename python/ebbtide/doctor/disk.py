"""The directory of the disk tier: its file system, and how fast that is."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ebbtide
from ebbtide import _core

from .._machine.files import FileRate, file_rates
from .._units import format_rate, format_size
from .finding import Finding, change, note, ok

_LEAST = 16 << 20  # bytes that are written and read at least
_SLOW = 500e6  # bytes/s
_SHARED = ("nfs", "lustre", "gpfs", "beegfs", "fuse")
_ELSEWHERE = "name a directory on a local disk: --dir DIRECTORY here, EBBTIDE_DIR for programs"


def directory_of(given: Path | None) -> Path:
    """`given`, else the environment's, chosen as a store does."""
    names = ("EBBTIDE_DIRECTORY", "EBBTIDE_DIR", "TMPDIR")
    return given or Path(next(filter(None, map(os.environ.get, names)), "/tmp"))


def place(
    directory: Path,
    describe: Callable[[str], dict[str, Any]] = _core.file_system,
    lock: Callable[[Any, int], None] = fcntl.flock,
) -> Finding:
    """The file system that `directory` is on."""
    try:
        found = describe(str(directory))
    except ebbtide.Error as error:
        return change("directory", str(error), _ELSEWHERE, path=str(directory))
    values = {"path": str(directory), **found}
    text = (
        f"{directory}: {found['kind']}, {format_size(found['free_bytes'])} of {format_size(found['total_bytes'])} free"
    )
    if found["in_memory"]:
        return change("directory", f"{text}; files there take up memory", _ELSEWHERE, **values)
    if not os.access(directory, os.W_OK | os.X_OK):
        return change("directory", f"{text}; may not be written to", _ELSEWHERE, **values)
    if found["free_bytes"] < 4 * _LEAST:
        return change("directory", text, f"free some space in {directory}, or {_ELSEWHERE}", **values)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        advice = f"{_ELSEWHERE}, or have it mounted with locks (Lustre: -o flock, NFS: lockd)"
        why = f"no locks (flock: {error.strerror}), so nothing keeps two processes from writing one store"
        return change("directory", f"{text}; {why}", advice, **values)
    if found["kind"] in _SHARED:
        return note("directory", f"{text}; others share it", _ELSEWHERE, **values)
    return ok("directory", text, **values)


def rates(directory: Path, measure: Callable[..., tuple[FileRate, FileRate]] = file_rates) -> list[Finding]:
    """Writes and reads a file for a second or two."""
    try:
        write, read = measure(directory)
    except OSError as error:
        return [change("disk", f"could not be measured: {error}", _ELSEWHERE)]
    return [judge("write", write), judge("read", read)]


def judge(way: str, rate: FileRate) -> Finding:
    """A finding on a measured rate."""
    values = {"bytes_per_s": rate.bytes_per_s, "depth": rate.depth, "request": rate.request, "direct": rate.direct}
    text = f"{format_rate(rate.bytes_per_s)}, requests of {format_size(rate.request)}, {rate.depth} at once"
    if not rate.direct:
        advice = "put the directory on a file system with O_DIRECT (ext4, XFS): --dir DIRECTORY, EBBTIDE_DIR"
        return note(f"disk {way}", f"{text}, through the page cache: there is no O_DIRECT here", advice, **values)
    if rate.bytes_per_s < _SLOW:
        advice = "put the directory on an NVMe disk if there is one: --dir DIRECTORY, EBBTIDE_DIR"
        return note(f"disk {way}", f"{text} (O_DIRECT)", advice, **values)
    return ok(f"disk {way}", f"{text} (O_DIRECT)", **values)
