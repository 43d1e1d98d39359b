"""SIGTERM and SIGINT while checkpoints are being written."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

from reliability_trials import outcomes
from reliability_trials.outcomes import Count
from reliability_trials.programs import Program, ran
from reliability_trials.session import Session

MUST = (outcomes.EXACT,)
WAYS = {  # signal, handler, what the program then ends with
    "SIGTERM, default action": (signal.SIGTERM, False, None),
    "SIGTERM, a handler that ends the program": (signal.SIGTERM, True, "SystemExit"),
    "SIGINT": (signal.SIGINT, False, "KeyboardInterrupt"),
}


def trial(session: Session) -> Count:
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
