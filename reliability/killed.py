"""kill -9 at random moments while a program saves, then a restart, again and again in one directory."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from reliability import outcomes
from reliability.outcomes import Count
from reliability.session import Clock, Session
from reliability.subject import Progress, Subject

KEEP = 3
IN_ONE_DIRECTORY = 10
MUST = (outcomes.EXACT,)


def until_begun(progress: Path, patience: float = 20.0) -> bool:
    clock = Clock()
    while clock() < patience:
        if progress.exists() and progress.stat().st_size:
            return True
        time.sleep(0.0005)
    return False


def seconds_a_save(session: Session, subject: Subject, seed: int) -> float:
    """By the first ones of a program, which are what is killed."""
    with session.directory("kill") as area:
        clock = Clock()
        done = subject.saved(area / "store", seed, area / "progress", steps=8, keep=KEEP)
        assert done.last("durable") == 7, done.lines
        return clock() / 8


def trial(session: Session, subject: Subject) -> Count:
    count, random = Count(session.seed), session.random("killed", subject.key)
    left = session.count("killed", 100, 5)
    each = seconds_a_save(session, subject, session.seed)
    while left > 0:
        with session.directory("kill") as area:
            expected: int | None = None
            first, seed = 0, random.getrandbits(32)
            for turn in range(min(left, IN_ONE_DIRECTORY)):
                left -= 1
                progress = area / f"progress-{turn}"
                pid = subject.write(area / "store", seed, progress, first=first, keep=KEEP)
                begun = until_begun(progress)
                time.sleep(random.uniform(0.0, 6 * each))
                os.kill(pid, signal.SIGKILL)
                ended = subject.reap(pid)
                said = Progress.read(progress)
                if not begun or said.said("failed"):
                    outcome, told, step = outcomes.CLEAR_ERROR, f"could not go on: {said.said('failed')}", None
                elif ended.get("signal") != signal.SIGKILL:
                    outcome, told, step = outcomes.CRASH, f"it ended with {ended} before it was killed", None
                else:
                    durable = said.last("durable")
                    expected = durable if durable is not None else expected
                    outcome, told, step = subject.restart(area / "store", seed, expected)
                    if step is not None and step > (said.last("begun") or 0):
                        outcome, told = outcomes.SILENT_WRONG, f"step {step} was never begun"
                count.add(outcome, told=told if outcome != outcomes.EXACT else "")
                count.hold(
                    MUST, outcome, f"kill {len(said.lines)} lines in, expected step {expected}, got {step}: {told}"
                )
                if outcome != outcomes.EXACT:
                    break  # what this directory holds is no longer known
                first = (step if step is not None else -1) + 1
                expected = step
    return count
