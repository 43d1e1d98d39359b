"""A disk that is full, and a limit on the size of files, while a program saves; then a restart; then there is room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reliability import outcomes
from reliability.outcomes import Count
from reliability.session import Session
from reliability.subject import KILOBYTES, Progress, Subject

DISK_MB = 8
MUST = (outcomes.EXACT,)


def judge(session: Session, subject: Subject, store: Path, progress: Path, pid: int,
          goes_on: bool) -> tuple[str, str]:  # fmt: skip
    ended = subject.reap(pid)
    said = Progress.read(progress)
    if "hung" in ended:
        return outcomes.HANG, f"the program that saves, after {said.lines[-1:]}"
    if "signal" in ended:
        return outcomes.CRASH, f"the program that saves, signal {ended['signal']}"
    if said.said("failed"):
        return outcomes.CLEAR_ERROR, f"it could not go on: {said.said('failed')}"
    refused, durable = said.said("refused"), said.last("durable")
    outcome, told, step = subject.restart(store, session.seed, durable, in_memory=True)
    if outcome == outcomes.EXACT and step != durable and (said.last("begun") or 0) < (step or 0):
        return outcomes.SILENT_WRONG, f"step {step} was never begun"
    if outcome == outcomes.EXACT and goes_on and refused and (durable is None or durable < int(refused.split()[0])):
        return outcomes.CLEAR_ERROR, f"no save went well again: {said.said('still-refused')}"
    return outcome, told


def tried(session: Session, subject: Subject, count: Count, store: Path, name: str, turn: int, before: int,
          **more: Any) -> None:  # fmt: skip
    goes_on = turn % 2 == 0
    with session.directory("progress") as beside:
        progress = beside / "progress"
        pid = subject.write(store, session.seed, progress, steps=before + 24, before_limit=before, in_memory=True,
                            goes_on=goes_on, **more)  # fmt: skip
        outcome, told = judge(session, subject, store, progress, pid, goes_on)
        refused = Progress.read(progress).said("refused")
    kind = ("refused, then room" if goes_on else "refused, then ended") if refused else "never refused"
    count.add(outcome, kind, told if outcome != outcomes.EXACT else "")
    count.hold(MUST, outcome, f"{name}: {told}; refused: {refused}")


def disk(session: Session, subject: Subject) -> Count:
    """A tmpfs that another file fills but for room for a few saves and a part of one."""
    count, random = Count(session.seed), session.random("disk", subject.key)
    for turn in range(session.count("disk", 25, 3)):
        with session.small_disk(DISK_MB) as mounted:
            left = KILOBYTES * 1024 * 2 + random.randrange(KILOBYTES * 1024 * 6)
            ballast = mounted / "ballast"
            with open(ballast, "wb") as file:
                file.write(b"\0" * ((DISK_MB << 20) - left))
            tried(session, subject, count, mounted / "store", f"{left} bytes free", turn, 0, ballast=[str(ballast)])
    return count


def file_limit(session: Session, subject: Subject) -> Count:
    """RLIMIT_FSIZE, from the second save on."""
    count, random = Count(session.seed), session.random("file_limit", subject.key)
    for turn in range(session.count("file_limit", 25, 3)):
        with session.directory("limit") as area:
            limit = random.randrange(4096, KILOBYTES * 1024 * 2)
            tried(session, subject, count, area / "store", f"RLIMIT_FSIZE {limit}", turn, 1, file_limit=limit)
    return count
