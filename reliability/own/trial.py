"""What a program does to its own objects: seeded cases, each in a process of its own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from reliability import outcomes
from reliability.outcomes import Count
from reliability.own.themes import THEMES
from reliability.processes import Died, Hung
from reliability.session import Session
from reliability.subject import Worker

__all__ = ["CASES", "MUST", "THEMES", "trial"]
MUST = (outcomes.EXACT, outcomes.CLEAR_ERROR)
CASES, SHORT = 5000, 16
LIMIT_S = 120.0  # of one case, which worker.py ends much earlier


def trial(session: Session) -> Count:
    count, random = Count(session.seed), session.random("own")
    seeds = [random.getrandbits(31) for _ in range(session.count("own", CASES, SHORT))]
    parts = 2 * (os.cpu_count() or 1)  # they wait for the disk more than they compute
    with ThreadPoolExecutor(parts) as pool:
        found = list(pool.map(lambda part: played(session, part, seeds[part::parts]), range(parts)))
    for cases, _ in found:
        for seed, one in cases:
            note(count, seed, one)
    for name in found[0][1]:
        count.told[f"left out: arrays of {name}, which is not installed"] += len(seeds)
    return count


def played(session: Session, part: int, seeds: list[int]) -> tuple[list[tuple[int, dict[str, Any]]], list[str]]:
    """What came of these cases, and which libraries are not there."""
    cases: list[tuple[int, dict[str, Any]]] = []
    worker = Worker("--answer", session.scratch / f"own-{part}.log", "own/worker.py")
    try:
        for seed in seeds:
            with session.directory("own") as area:
                try:
                    cases.append((seed, worker.ask("play", LIMIT_S, seed=seed, area=str(area))))
                except (Hung, Died) as error:  # each case has a process of its own: this is the trial's fault
                    raise RuntimeError(f"seed {seed} ended the process that plays the cases: {error}") from error
        return cases, worker.about["absent"]
    finally:
        worker.close()


def note(count: Count, seed: int, found: dict[str, Any]) -> None:
    told = found["told"][0] if found["outcome"] == outcomes.CLEAR_ERROR and found["told"] else ""
    count.add(found["outcome"], found["kind"], told.split(": ")[1] if ": " in told else told)
    if found["breaches"]:
        outcome, what = max(found["breaches"], key=lambda one: outcomes.OUTCOMES.index(one[0]))
        count.hold((), outcome, f"seed {seed}, {found['kind']}: {what}")
