"""Who may use a store: one writer at a time, its owner alone, never through a symbolic link."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reliability import outcomes
from reliability.outcomes import Count
from reliability.programs import Program, ran
from reliability.session import Missing, Session

REFUSED = (outcomes.CLEAR_ERROR,)
GOOD = (outcomes.EXACT,)
STRANGER = 65534
FILES = ("store", "lock", "segment-00000001.ebb", "index", "store.new", "index.new")
LETTERS = b"somebody's letters\n" * 300


def outcome_of(program: Program, status: int | None = 0) -> tuple[str, str]:
    """Of a program that opened a store, or was refused."""
    if status is None or status < 0:
        return (outcomes.HANG if status is None else outcomes.CRASH), f"status {status}"
    if program.last("error"):
        return outcomes.CLEAR_ERROR, f"{program.last('kind')}: {program.last('error')}"
    if program.last("held") is None:
        return outcomes.CRASH, f"status {status}, and nothing said"
    return (outcomes.SILENT_WRONG, program.last("wrong")) if program.last("wrong") else (outcomes.EXACT, "")


def note(count: Count, kind: str, must: tuple[str, ...], outcome: str, told: str, naming: str = "") -> None:
    if outcome == outcomes.CLEAR_ERROR and naming not in told:
        outcome, told = outcomes.CRASH, f"an error that does not name {naming}: {told}"
    count.add(outcome, kind, told.split(": ")[0] if outcome == outcomes.CLEAR_ERROR else told)
    count.hold(must, outcome, f"{kind}: {told}")


def writers(session: Session) -> Count:
    count = Count(session.seed)
    for _ in range(session.count("writers", 10, 1)):
        with session.directory("writers") as area:
            given: dict[str, Any] = {"directory": str(area / "store"), "seed": session.seed}
            with Program("hold", **given, save=0, stay=True) as first:
                first.read(until="wrong")
                status, second = ran("hold", **given)
                note(count, "a second one", REFUSED, *outcome_of(second, status), naming="in_use")
                status, reader = ran("hold", **given, readonly=True)
                note(count, "one that reads", GOOD, *outcome_of(reader, status))
                os.kill(first.process.pid, signal.SIGKILL)
                first.end()
            status, after = ran("hold", **given, save=1)
            note(count, "after the first was killed", GOOD, *outcome_of(after, status))
        with session.directory("writers") as area, ExitStack() as stack:
            given = {"directory": str(area / "store"), "seed": session.seed}
            racing = [stack.enter_context(Program("hold", **given, stay=True)) for _ in range(6)]
            for program in racing:
                program.read(until=None)
            winners = [program for program in racing if program.last("held")]
            for program in racing:
                kind = "many at once"
                if program.last("held") and len(winners) > 1:
                    note(count, kind, GOOD, outcomes.SILENT_WRONG, f"{len(winners)} at once could write")
                else:
                    note(count, kind, GOOD + REFUSED, *outcome_of(program), naming="in_use")
    return count


def strangers(session: Session) -> Count:
    if os.geteuid() != 0:
        raise Missing("files of another user can be made by root alone")
    count = Count(session.seed)
    for kind, directory, user in others_directories(session):
        for readonly in (False, True):
            how = f"{kind}, {'to read' if readonly else 'to write'}"
            before = contents(directory)
            more: dict[str, Any] = {"user": user} if user else {}
            status, program = ran("hold", directory=str(directory), seed=session.seed, readonly=readonly, **more)
            outcome, told = outcome_of(program, status)
            if contents(directory) != before:
                outcome, told = outcomes.SILENT_WRONG, "files were changed"
            note(count, how, REFUSED, outcome, told, naming=str(directory))
    return count


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def others_directories(session: Session) -> Iterator[tuple[str, Path, int | None]]:
    """A directory with a store in it, and who opens it (None: this process's user)."""
    with session.directory("strangers") as area:
        session.scratch.chmod(0o711)
        area.chmod(0o711)
        _, made = ran("hold", directory=str(area / "pattern"), seed=session.seed, save=0)
        if made.last("closed") is None:
            raise RuntimeError(f"no store could be made: {made.said}")
        pattern = area / "pattern"
        names = [path.name for path in sorted(pattern.iterdir())]

        def copy(name: str) -> Path:
            return Path(shutil.copytree(pattern, area / name))

        yield "root's, opened by another", copy("a"), STRANGER
        theirs = copy("b")
        for path in (theirs, *theirs.iterdir()):
            os.chown(path, STRANGER, STRANGER)
        yield "another's, opened by root", theirs, None
        for number, name in enumerate(names):
            one = copy(f"c{number}")
            os.chown(one / name, STRANGER, STRANGER)
            yield f"its file {name} is another's", one, None
            one = copy(f"d{number}")
            (one / name).chmod(0o622)
            yield f"its file {name} may be written by all", one, None
        for mode in (0o777, 0o770, 0o1777):
            one = copy(f"e{mode}")
            one.chmod(mode)
            yield f"a directory of mode {mode:o}", one, None
        empty = area / "empty"
        empty.mkdir()
        os.chown(empty, STRANGER, STRANGER)
        yield "another's empty directory", empty, None


def links(session: Session) -> Count:
    count = Count(session.seed)
    for name in ("", *FILES):
        for aim in ("a file of somebody's", "nothing"):
            for with_store in (False, True):
                with session.directory("links") as area:
                    planted(session, count, area, name, aim, with_store)
    return count


def planted(session: Session, count: Count, area: Path, name: str, aim: str, with_store: bool) -> None:
    store, target = area / "store", area / "target"
    given: dict[str, Any] = {"directory": str(store), "seed": session.seed}
    if with_store:
        ran("hold", **given, save=0)
    elif name:
        store.mkdir(mode=0o700)
    link = store / name if name else store
    if link.is_dir():
        link.rename(target if aim != "nothing" else area / "away")
    else:
        link.unlink(missing_ok=True)
        if aim != "nothing":
            target.mkdir(mode=0o700) if not name else target.write_bytes(LETTERS)
    link.symlink_to(target)
    before = contents(target) if target.is_dir() else target.read_bytes() if target.exists() else None
    status, program = ran("hold", **given, save=1)
    outcome, told = outcome_of(program, status)
    after = contents(target) if target.is_dir() else target.read_bytes() if target.exists() else None
    if after != before:
        outcome, told = outcomes.SILENT_WRONG, f"what {name or 'the directory'} leads to was changed"
    note(count, f"{name or 'the directory'} leads to {aim}", GOOD + REFUSED, outcome, told, naming=str(store))


def modes(session: Session) -> Count:
    count = Count(session.seed)
    for _ in range(session.count("modes", 5, 1)):
        with session.directory("modes") as area:
            status, program = ran("modes", directory=str(area / "store"), seed=session.seed)
            told = str(program.said)
            if status is None or status < 0:
                outcome = outcomes.HANG if status is None else outcomes.CRASH
            elif program.last("files") is None:
                outcome = outcomes.CLEAR_ERROR
            else:
                bad = program.last("while_open") or program.last("after")
                outcome = outcomes.SILENT_WRONG if bad else outcomes.EXACT
            count.add(outcome, told=told if outcome != outcomes.EXACT else "")
            count.hold(GOOD, outcome, told)
    return count
