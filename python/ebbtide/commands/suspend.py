"""`ebbtide suspend`: asks the process that writes a store to suspend it, and waits for the mark."""

from __future__ import annotations

import os
import re
import signal as signals
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import outcome

if TYPE_CHECKING:
    from .store import Checkpoint

MARKS = "/.ebbtide-suspended/"  # the history of a store's mark, whose version is the time in ns since 1970
_LOOK = 0.05  # seconds between two looks at a store that has changed


def is_mark(one: Checkpoint) -> bool:
    """Whether a checkpoint is the mark of a store that was suspended."""
    return one.history == MARKS


def mark_of(directory: Path) -> int | None:
    """When the store was suspended, in ns since 1970."""
    from .store import Store

    return max((one.version for one in Store(directory).checkpoints if is_mark(one)), default=None)


def suspend(
    where: Annotated[str, typer.Argument(metavar="PID|DIR", help="The process, or the store that it writes.")],
    signal: Annotated[str, typer.Option("--signal", metavar="NAME", help="As given to suspend_on.")] = "TERM",
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait.")] = 60,
    json: outcome.Json = False,
) -> None:
    """Send a process the signal that suspends its stores, and wait until they are marked.

    The program must have called `suspend_on`: a process that does not catch the signal gets none.

    Exit code 0: every store is suspended; 1: one is not, and is named; 2: there is no such process or store.
    """
    with outcome.exit_codes(json):
        number = _number_of(signal)
        process, stores = _whom(where)
        if not _catches(process, number):
            raise outcome.Refused(
                f"process {process} does not catch {number.name}, which would end it: it has not called suspend_on"
            )
        before = {store: mark_of(store) for store in stores}
        os.kill(process, number)
        marks = _await_marks(process, before, time.monotonic() + timeout)
        missing = [store for store in stores if marks[store] is None]
        if json:
            rows = [{"store": str(store), "suspended_ns": marks[store]} for store in stores]
            outcome.show_json({"process": process, "running": _runs(process), "stores": rows})
        else:
            for store in stores:
                outcome.say(f"{store}: {'suspended' if marks[store] else _why_not(process, timeout)}")
        if missing:
            raise typer.Exit(outcome.DAMAGED)


def _number_of(name: str) -> signals.Signals:
    try:
        return (
            signals.Signals(int(name)) if name.isdigit() else signals.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
        )
    except (KeyError, ValueError):
        raise outcome.Refused(f"--signal={name} is not valid: expected a name such as TERM or USR1") from None


def _whom(where: str) -> tuple[int, list[Path]]:
    """The process, and the stores that it writes."""
    if where.isdigit():
        process = int(where)
        if not _runs(process):
            raise outcome.Refused(f"there is no process {process}", "io_error")
        stores = _stores_of(process)
        if not stores:
            raise outcome.Refused(
                f"process {process} writes no store of its own (the stores of a node's pool are written by its agent)"
            )
        return process, stores
    directory = Path(where).resolve()
    mark_of(directory)  # refused by name if it is no store
    found = re.match(r"process (\d+) on (.+)\n", (directory / "lock").read_text(errors="replace"))
    if found is None or found[2] != socket.gethostname() or directory not in _stores_of(int(found[1])):
        raise outcome.Refused(f"no process of this machine has {directory} open for writing")
    return int(found[1]), [directory]


def _stores_of(process: int) -> list[Path]:
    """The directories whose file `lock` the process has open."""
    found = set()
    try:
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            try:
                file = Path(os.readlink(descriptor))
            except OSError:
                continue  # closed meanwhile
            if file.name == "lock" and (file.parent / "store").exists():
                found.add(file.parent)
    except OSError:
        return []
    return sorted(found)


def _status(process: int, field: str) -> str:
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(f"{field}:")), "")


def _runs(process: int) -> bool:
    return _status(process, "State")[:1] not in ("", "Z", "X")


def _catches(process: int, number: int) -> bool:
    return bool(int(_status(process, "SigCgt") or "0", 16) >> (number - 1) & 1)


def _await_marks(process: int, before: dict[Path, int | None], until: float) -> dict[Path, int | None]:
    """The new mark of each store; a store is read again only when its file `lock` says that it has changed."""
    marks: dict[Path, int | None] = dict.fromkeys(before)
    seen: dict[Path, bytes] = {}
    while True:
        running = _runs(process) and time.monotonic() < until
        for store, old in before.items():
            text = (store / "lock").read_bytes()
            if marks[store] is not None or (running and seen.get(store) == text):
                continue
            seen[store] = text
            mark = mark_of(store)
            marks[store] = mark if mark != old else None
        if not running or None not in marks.values():
            return marks
        time.sleep(_LOOK)


def _why_not(process: int, timeout: float) -> str:
    if not _runs(process):
        return f"not suspended: process {process} ended without a mark"
    return f"not suspended within {timeout:g} s, or it failed: process {process} goes on, and says why"


command = suspend
cls = outcome.Command
