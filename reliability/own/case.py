"""One case: what a seed draws, and the program that does it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

from reliability.own import forks, lent, midst, outside, steps, targets, words
from reliability.own.run import Over, Run
from reliability.own.themes import (
    ANY,
    BESIDE,
    FORKS,
    MORE,
    OBJECTS,
    OUTSIDE,
    SMALL_DISK,
    TARGETS,
    VIEWS,
    WAITING,
    WORDS,
    theme_of,
)

Step = Callable[[Run], None]


def hooked_checkpoint(run: Run) -> None:
    steps.checkpoint(run, hooked=True)


def filled(run: Run) -> None:
    steps.restore(run, run.random.choice(["out", "async out"]))


def small(run: Run) -> None:
    steps.checkpoint(run, hooked=False, most=1 << 8)


# What any program does, and how often beside what its theme is about.
COMMON: dict[Step, int] = {
    steps.checkpoint: 16, steps.restore: 12, steps.wait: 4, steps.drop: 3, steps.versions: 2, steps.latest: 2,
    steps.hint: 1, steps.reopen: 1, forks.fork: 1, lent.reserve: 2, lent.borrow: 2, lent.late: 1, lent.let_go: 1,
    hooked_checkpoint: 2, targets.odd_target: 1, words.odd_words: 1, outside.read_beside: 1,
}  # fmt: skip
ABOUT: dict[str, dict[Step, int]] = {
    OBJECTS: {hooked_checkpoint: 3, filled: 2},
    MORE: {targets.odd_kind: 1},
    TARGETS: {targets.odd_target: 1},
    VIEWS: {lent.reserve: 4, lent.late: 2, lent.borrow: 1, steps.checkpoint: 2},
    SMALL_DISK: {outside.burst: 6, steps.wait: 2, small: 1, steps.drop: 1, steps.restore: 1, steps.versions: 1,
                 steps.reopen: 1, steps.latest: 1},
    OUTSIDE: {outside.disturb: 2, steps.checkpoint: 2, steps.wait: 1, hooked_checkpoint: 1},
    BESIDE: {outside.read_beside: 1},
    FORKS: {forks.fork: 2, steps.reopen: 1, lent.reserve: 1, steps.second_writer: 1},
    WAITING: {midst.blocked: 1},
    WORDS: {words.odd_words: 1},
    ANY: {},
}  # fmt: skip


def options(run: Run) -> None:
    random, kept_alone = run.random, (SMALL_DISK, OUTSIDE, BESIDE)
    levels = ["process", "storage"] + ([] if run.theme in kept_alone else ["ephemeral", "ephemeral"])
    durability = random.choice(levels)
    run.options = {
        "directory": str(run.area / "store"), "device": "cpu",
        "device_cache": random.choice(["256KiB", "1MiB", "4MiB"]), "host_cache": random.choice([0, "512KiB", "2MiB"]),
        "disk": "1GiB", "durability": durability,
        "verify": random.choice(["files", "files", "all"]), "tuning": {"io": random.choice(["auto", "threads"])},
        "eviction": random.choice(["score", "score", "lru", "fifo"]),
    }  # fmt: skip
    if not run.kept:
        run.directory.mkdir()
    if run.theme == SMALL_DISK:
        every = random.choice([0, 0, 40])
        run.model.keep_last, run.model.keep_every = random.choice([1, 1, 2, 3]), every
        run.burst_bytes = random.choice([1 << 16, 1 << 18, 1 << 19])
        need = (run.model.keep_last + 1 + (4 if every else 0)) * (run.burst_bytes + (1 << 14))
        run.tight = random.random() < 0.15
        run.options |= {"disk": int(need * (0.6 if run.tight else random.uniform(1.35, 4))), "device_cache": "4MiB"}
        run.options["host_cache"] = random.choice([0, "4MiB"])
        run.options |= {"keep_last": run.model.keep_last} | ({"keep_every": every} if every else {})
    elif run.kept and random.random() < 0.15:
        run.model.keep_last = run.options["keep_last"] = random.choice([1, 2, 5])


def steps_of(run: Run) -> list[Step]:
    own = ABOUT[run.theme]
    if run.theme == SMALL_DISK:
        return run.random.choices(list(own), list(own.values()), k=run.random.randrange(4, 12))
    everything = dict(COMMON)
    if run.theme == ANY:
        for about in ABOUT.values():
            everything |= {step: 2 for step in about if step not in COMMON and step is not outside.burst}
    share = sum(everything.values()) / max(1, sum(own.values()))
    for step, weight in own.items():
        everything[step] = everything.get(step, 0) + round(weight * share)
    return run.random.choices(list(everything), list(everything.values()), k=run.random.randrange(4, 14))


def play(seed: int, area: Path) -> None:
    """In a process of its own, which it may end by SIGKILL; leaves a report for check.py."""
    run = Run(seed, theme_of(seed), area)
    options(run)
    run.disturb = outside.change
    if run.random.random() < (0.3 if run.theme == FORKS else 0.02):
        forks.fork(run)
    run.say(f"open {run.options}")
    run.store, _ = run.attempt("open", run.open)
    try:
        for step in steps_of(run):
            step(run)
            if run.reader is not None and run.random.random() < 0.3:
                outside.look(run, run.pick_history())
    except Over:
        forks.complaints(run)
        return run.save()
    end(run)


def end(run: Run) -> None:
    lent.late_writes(run)
    steps.versions(run)
    if not run.hurt:
        steps.settled(run)
        lent.late_writes(run)
    run.views.clear()
    gc.collect()
    if run.random.random() < (0.5 if run.theme == FORKS else 0.1):
        forks.fork(run)
    if run.kept and run.random.random() < 0.3:
        forks.complaints(run)
        run.killed()
    if run.reader is not None:
        run.attempt("close the reader", run.reader.close)
    run.close()
    forks.complaints(run)
    run.save()
