"""What a program does to its own objects: seeded cases, each in a process of its own."""

from __future__ import annotations

from typing import Any

from reliability_trials import outcomes
from reliability_trials.outcomes import Count
from reliability_trials.own.themes import THEMES
from reliability_trials.session import Session
from reliability_trials.subject import Died, Hung, Worker

__all__ = ["CASES", "MUST", "THEMES", "trial"]
MUST = (outcomes.EXACT, outcomes.CLEAR_ERROR)
CASES, SHORT = 5000, 16
LIMIT_S = 120.0  # of one case, which worker.py ends much earlier


def trial(session: Session) -> Count:
    count, random = Count(session.seed), session.random("own")
    worker: Worker | None = None
    try:
        for _ in range(session.count("own", CASES, SHORT)):
            seed = random.getrandbits(31)
            with session.directory("own") as area:
                if worker is None:
                    worker = Worker("--answer", session.scratch / "own.log", "own/worker.py")
                try:
                    found = worker.ask("play", LIMIT_S, seed=seed, area=str(area))
                except (Hung, Died) as error:  # each case has a process of its own: this is the trial's fault
                    worker = None
                    raise RuntimeError(f"seed {seed} ended the process that plays the cases: {error}") from error
            note(count, seed, found)
        for name in worker.about["absent"] if worker else []:
            count.told[f"left out: arrays of {name}, which is not installed"] += 1
    finally:
        if worker is not None:
            worker.close()
    return count


def note(count: Count, seed: int, found: dict[str, Any]) -> None:
    told = found["told"][0] if found["outcome"] == outcomes.CLEAR_ERROR and found["told"] else ""
    count.add(found["outcome"], found["kind"], told.split(": ")[1] if ": " in told else told)
    if found["breaches"]:
        outcome, what = max(found["breaches"], key=lambda one: outcomes.OUTCOMES.index(one[0]))
        count.hold((), outcome, f"seed {seed}, {found['kind']}: {what}")
