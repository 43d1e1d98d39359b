"""A shared directory that fails, is full or does not answer while a store goes on beside it, and is there again; and a
local one that is full."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reliability import outcomes
from reliability.outcomes import Count
from reliability.programs import Program
from reliability.session import Session
from reliability.signals import checked
from reliability.stalled import GRACE_S, LIMIT_S, LONG_S, passed_on, stop

MUST = (outcomes.EXACT, outcomes.CLEAR_ERROR)
DISK_MB = 8
SAVES = 16  # of 64 KiB, before and after the trouble begins


class Trouble:
    """What a case has of directories; begin() and end() are without and with them."""

    descriptors_live = True  # what was open works again afterwards

    def __init__(self, local: Path, shared: Path) -> None:
        self.local, self.shared = local, shared

    def begin(self) -> None: ...
    def end(self) -> None: ...


class Silent(Trouble):
    server = 0

    def begin(self) -> None:
        stop(self.server)

    def end(self) -> None:
        os.kill(self.server, signal.SIGCONT)


class Failing(Trouble):
    fails = Path()

    def begin(self) -> None:
        self.fails.touch()

    def end(self) -> None:
        self.fails.unlink()


class Full(Trouble):
    disk = Path()

    def begin(self) -> None:
        with open(self.disk / "ballast", "wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 4096):
                    pass
            except OSError:
                pass

    def end(self) -> None:
        (self.disk / "ballast").unlink()


@contextmanager
def silent(session: Session, area: Path) -> Iterator[Trouble]:
    with passed_on(area) as there:
        trouble = Silent(area / "local", there.mounted / "store")
        trouble.server = there.server.pid
        yield trouble


@contextmanager
def failing(session: Session, area: Path) -> Iterator[Trouble]:
    with passed_on(area) as there:
        trouble = Failing(area / "local", there.mounted / "store")
        trouble.fails = there.behind.with_name(there.behind.name + ".fails")
        yield trouble


@contextmanager
def unplugged(session: Session, area: Path) -> Iterator[Trouble]:
    with passed_on(area) as there:
        trouble = Trouble(area / "local", there.mounted / "store")
        trouble.descriptors_live = False  # the old file system is gone: only the next process has the new one
        trouble.begin, trouble.end = there.unplug, there.plug_in  # type: ignore[method-assign]
        yield trouble


@contextmanager
def full_below(session: Session, area: Path) -> Iterator[Trouble]:
    with session.small_disk(DISK_MB) as disk, passed_on(disk) as there:  # a tmpfs keeps nothing
        trouble = Full(area / "local", there.mounted / "store")
        trouble.disk = disk
        yield trouble


@contextmanager
def full_above(session: Session, area: Path) -> Iterator[Trouble]:
    with session.small_disk(DISK_MB) as disk, passed_on(disk) as there:
        trouble = Full(there.mounted / "local", area / "store")
        trouble.disk = disk
        yield trouble


KINDS = {
    "the shared directory does not answer": silent,
    "the shared directory fails": failing,
    "the shared directory is mounted anew": unplugged,
    "the shared directory is full": full_below,
    "the local directory is full": full_above,
}


def trial(session: Session) -> Count:
    count = Count(session.seed)
    for _ in range(session.count("unplugged", 10, 1)):
        for kind, of in KINDS.items():
            for closes in (False, True):  # while the trouble lasts
                with session.directory("unplugged") as area, of(session, area) as trouble:
                    one(session, count, kind, trouble, closes)
    return count


def one(session: Session, count: Count, kind: str, trouble: Trouble, closes: bool) -> None:
    def add(what: str, outcome: str, told: str, must: tuple[str, ...] = MUST) -> None:
        count.add(outcome, f"{kind}: {what}", told if outcome != outcomes.EXACT else "")
        count.hold(must, outcome, f"{kind}, {what}: {told}")

    exact = (outcomes.EXACT,)
    local_works = "local" not in kind
    given = {"directory": str(trouble.local), "shared": str(trouble.shared), "seed": session.seed,
             "close_timeout": LIMIT_S if closes else LONG_S}  # fmt: skip
    with Program("beside", **given) as program:
        if program.read(until="ready") is None:
            raise RuntimeError(f"no store could be made: {program.said}, {program.process.poll()}")
        save(program)
        add("sent before", *answer(program, "shared", LONG_S), exact)
        sent = SAVES - 1
        trouble.begin()
        try:
            save(program)
            level = "storage"
            add("kept locally meanwhile", *answer(program, level, LONG_S if local_works else LIMIT_S),
                exact if local_works else MUST)  # fmt: skip
            add("sent meanwhile", *answer(program, "shared", LIMIT_S))
            if closes:
                add("closed meanwhile", *answer(program, "close", LIMIT_S))
        finally:
            trouble.end()
        if not closes:
            save(program)
            must = exact if trouble.descriptors_live else MUST
            add("sent afterwards", *answer(program, "shared", LONG_S), must)
            add("closed afterwards", *answer(program, "close", LONG_S), must)
            sent = 3 * SAVES - 1
        program.tell("end")
        status = program.end()
        ended = outcomes.HANG if status is None else outcomes.CRASH if status < 0 else outcomes.EXACT
        add("the process ends", ended, str(status), exact)
    if local_works and (closes or not trouble.descriptors_live):  # the next one that opens both sends it
        with Program("beside", **given | {"close_timeout": LONG_S}) as program:
            program.read(until="ready")
            add("sent by the next process", *answer(program, "shared", LONG_S), exact)
            add("closed by the next process", *answer(program, "close", LONG_S), exact)
        sent = (2 if closes else 3) * SAVES - 1
    shutil.rmtree(trouble.local)
    add("the local directory is lost", *checked(trouble.shared, session.seed, sent), exact)


def save(program: Program) -> None:
    program.tell(f"save {SAVES}")
    program.read(LONG_S + GRACE_S, until="saved")


def answer(program: Program, word: str, limit: float) -> tuple[str, str]:
    program.tell(f"{word} {limit}")
    said = program.read(limit + GRACE_S, until="call")
    if said is None:
        return outcomes.HANG, f"no answer in {limit + GRACE_S:.0f} s to {word}, which was given {limit:.0f} s"
    if said["error"] is None:
        return outcomes.EXACT, ""
    if said["seconds"] > limit + GRACE_S:
        return outcomes.HANG, f"after {said['seconds']:.1f} s: {said['error']}"
    return outcomes.CLEAR_ERROR, said["error"]
