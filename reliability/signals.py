"""SIGTERM and SIGINT while checkpoints are being written."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from reliability import outcomes
from reliability.killed import seconds_a_save, until_begun
from reliability.outcomes import Count
from reliability.programs import Program, ran
from reliability.session import Session
from reliability.subject import Progress, Subject

MUST = (outcomes.EXACT,)
WAYS = {  # signal, handler, what the program then ends with
    "SIGTERM, default action": (signal.SIGTERM, False, None),
    "SIGTERM, a handler that ends the program": (signal.SIGTERM, True, "SystemExit"),
    "SIGINT": (signal.SIGINT, False, "KeyboardInterrupt"),
}
TURNED = ", which the library turned into an error of its own"


def trial(session: Session, subject: Subject) -> Count:
    return ours(session) if subject.key == "ebbtide" else others(session, subject)


def others(session: Session, subject: Subject) -> Count:
    """Each save is durable when it returns; how the program then ends is Python's and the library's doing."""
    count, random = Count(session.seed), session.random("signals", subject.key)
    each = seconds_a_save(session, subject, session.seed)
    for turn in range(session.count("signals", 60, 6)):
        kind = list(WAYS)[turn % len(WAYS)]
        with session.directory("signal") as area:
            outcome, told = other(subject, area, random.getrandbits(32), random.uniform(0.0, 6 * each), kind)
        count.add(outcome, kind + TURNED if outcome == outcomes.EXACT and told else kind, told)
        count.hold(MUST, outcome, f"{kind}: {told}")
    return count


def other(subject: Subject, area: Path, seed: int, moment: float, kind: str) -> tuple[str, str]:
    number, handler, _ = WAYS[kind]
    progress = area / "progress"
    pid = subject.write(area / "store", seed, progress, handler=handler)
    begun = until_begun(progress)
    time.sleep(moment)
    before = Progress.read(progress)
    failed = before.said("refused") or before.said("failed") or before.said("not-closed")
    os.kill(pid, number)
    ended = subject.reap(pid)
    said = Progress.read(progress)
    outcome, told = the_end(kind, ended, said)
    if outcome:
        return outcome, told
    if not begun or failed or before.last("begun") is None:
        return outcomes.CLEAR_ERROR, f"it could not go on: {failed or told}"
    outcome, found, step = subject.restart(area / "store", seed, said.last("durable"))
    if step is not None and step > (said.last("begun") or 0):
        return outcomes.SILENT_WRONG, f"step {step} was never begun"
    return outcome, told if outcome == outcomes.EXACT else found


def the_end(kind: str, ended: dict[str, Any], said: Progress) -> tuple[str, str]:
    """The outcome, where the program's end is one (else "": a restart tells), and the error that it ended with where
    that was not the signal's: a library may raise its own while that one passes, and the program ends all the same."""
    number, _, ends_with = WAYS[kind]
    if ended.get("hung"):
        return outcomes.HANG, "it did not end"
    if "signal" in ended and (ends_with or ended["signal"] != number):
        return outcomes.CRASH, f"it ended with {ended}"
    if not ends_with and "signal" not in ended:
        return outcomes.CLEAR_ERROR, f"it was to end by the signal, and ended with {ended}"
    refused = (said.said("refused") or "").partition(" ")[2]  # without the step
    return "", "; ".join(filter(None, (refused, said.said("failed"), said.said("not-closed"))))


def ours(session: Session) -> Count:
    """All that the program wrote is there where it leaves its block, and what was reported where it does not."""
    count, random = Count(session.seed), session.random("signals")
    for turn in range(session.count("signals", 60, 6)):
        kind = list(WAYS)[turn % len(WAYS)]
        with session.directory("signal") as area:
            outcome, told = one(area / "store", session.seed, random.uniform(0.0, 0.3), kind)
        count.add(outcome, kind, told)
        count.hold(MUST, outcome, f"{kind}: {told}")
    return count


def one(directory: Path, seed: int, moment: float, kind: str) -> tuple[str, str]:
    number, handler, ends_with = WAYS[kind]
    with Program("write", directory=str(directory), seed=seed, handler=handler) as program:
        if program.read(until="written") is None:
            return outcomes.CLEAR_ERROR, f"it did not begin: {program.said}"
        time.sleep(moment)
        program.process.send_signal(number)
        status = program.end()
        if status is None:
            return outcomes.HANG, "it did not end"
        if ends_with is None:
            if status != -number:
                return outcomes.CLEAR_ERROR, f"it ended with {status}"
            last = program.last("durable")
        else:
            if status < 0:
                return outcomes.CRASH, f"it ended with {status}"
            if program.last("closed") != ends_with:
                return outcomes.CLEAR_ERROR, f"it ended with {status}: {program.last('error')}"
            last = program.last("written")
    return checked(directory, seed, -1 if last is None else last)


def checked(directory: Path, seed: int, last: int, **more: Any) -> tuple[str, str]:
    """All up to `last` are there, and all that are there are right."""
    status, program = ran("check", directory=str(directory), seed=seed, last=last, **more)
    if status is None:
        return outcomes.HANG, "reading it again"
    if status < 0:
        return outcomes.CRASH, f"reading it again ended with {status}"
    if program.last("wrong"):
        return outcomes.SILENT_WRONG, str(program.last("wrong"))
    if program.last("found") is None:
        return outcomes.CLEAR_ERROR, program.last("error") or f"status {status}"
    if program.last("missing"):
        return outcomes.OLDER_EXACT, f"of 0 to {last}, missing: {program.last('missing')}"
    return outcomes.EXACT, ""
