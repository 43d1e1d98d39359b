"""One process lends memory and two borrow it: any of them killed at random moments, the lender also stopped, against a model.
The borrowers write, restore and drop versions whose bytes follow from their numbers, while the lender lends more or less.
Ordinary memory takes the place of a GPU's. `python reliability/lending.py SEED` plays a case again, as far as the
moments agree.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reliability.outcomes import CRASH, EXACT, HANG, SILENT_WRONG, Count
from reliability.session import Clock, Session

MUST = (EXACT,)
KILLS, SHORT = 1000, 8
IN_ONE_CASE = 25  # kills
ANSWER_S = 60.0
LENT = (0, 64 << 20, 128 << 20)  # bytes that may be lent in all; the last are at the beginning
KINDS = ("the lender killed", "a borrower killed", "the lender and a borrower killed", "the lender stopped, and goes on",
         "the lender stopped, a borrower killed", "the lender stopped, and killed")  # fmt: skip
IN_USE = "a lender killed while bytes were in its memory"


class Breach(Exception):
    """An outcome that must not be, and what happened."""


class Child:
    """A process, forked by this one, which has no store, thread or lent memory of its own."""

    def __init__(self, name: str, target: Any, *arguments: Any) -> None:
        self.name, context = name, multiprocessing.get_context("fork")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()
        self.pid = self.process.pid

    def tell(self, *words: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # how it ended is told by its answer
            self.ours.send(words)

    def answer(self, said: Any = None) -> Any:
        """The value of the next "ok"; `said` gets what comes before. Raises Breach: it ended, hangs, or found an error."""
        clock = Clock()
        while True:
            if not self.ours.poll(max(0.0, ANSWER_S - clock())):
                raise Breach(HANG, f"{self.name} has not answered in {ANSWER_S:.0f} s")
            try:
                word, value = self.ours.recv()
            except (EOFError, OSError):
                self.process.join(ANSWER_S)
                raise Breach(CRASH, f"{self.name} ended with {self.process.exitcode}") from None
            if word == "ok":
                return value
            if said is None or word in ("wrong", "error"):
                raise Breach(SILENT_WRONG if word == "wrong" else word, f"{self.name}: {value}")
            said(word, value)

    def ask(self, *words: Any) -> Any:
        self.tell(*words)
        return self.answer()

    def send(self, number: int) -> None:
        assert self.pid
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


class Borrower:
    """One borrower, and what must be found when it is started again. `durable`: its store outlives it."""

    def __init__(self, case: Case, rank: int, durable: bool) -> None:
        self.case, self.rank, self.durable = case, rank, durable
        self.reported: set[int] = set()
        self.starts, self.used = 0, 0
        self.start()

    def start(self) -> None:
        directory = str(self.case.area / f"borrower-{self.rank}")
        given = (self.case.group, directory, self.rank, self.starts, self.durable)
        self.child = Child(f"borrower {self.rank}", self.case.worker.borrow, *given)
        self.starts += 1
        found = set(self.child.answer())
        if missing := self.reported - found:
            raise Breach(SILENT_WRONG, f"borrower {self.rank} misses {sorted(missing)}, which were reported")
        self.reported = found if self.durable else set()

    def heard(self, word: str, version: int) -> None:
        if self.durable:
            self.reported.add(version) if word == "reported" else self.reported.discard(version)

    def killed(self) -> None:
        """What it said before that counts."""
        self.child.kill()
        with contextlib.suppress(EOFError, OSError):
            while self.child.ours.poll():
                word, value = self.child.ours.recv()
                if word in ("wrong", "error"):
                    raise Breach(SILENT_WRONG if word == "wrong" else word, f"borrower {self.rank}: {value}")
                if word != "ok":
                    self.heard(word, value)

    def check(self) -> None:
        self.used = self.child.ask("check")


class Case:
    def __init__(self, seed: int, area: Path) -> None:
        from reliability import lending_worker  # with the store, which those who list the trials need not have

        self.worker = lending_worker
        self.random, self.area, self.group = random.Random(seed), area, f"trial-{seed}-{uuid.uuid4().hex[:8]}"
        self.children: list[Child] = []
        self.lender = self.started()
        self.borrowers = [Borrower(self, rank, self.random.random() < 0.5) for rank in range(2)]

    def started(self) -> Child:
        lender = Child("the lender", self.worker.lend, self.group, LENT[-1])
        lender.answer()
        return lender

    def state(self) -> list[tuple[int, int]]:
        """Borrower and bytes of each lease, as the lender has it."""
        return self.lender.ask("state")

    def until(self, holds: Any, what: str) -> None:
        clock = Clock()
        while not holds(self.state()):
            if clock() > ANSWER_S:
                raise Breach(HANG, f"{what} after {ANSWER_S:.0f} s: {self.state()}")
            time.sleep(0.002)

    def turn(self, kind: str) -> bool:
        """True: bytes were in the memory of a lender that was killed, when they were last looked at."""
        stopped, dies = "stopped" in kind, "the lender" in kind and "killed" in kind and "stopped, a" not in kind
        killed = [self.random.choice(self.borrowers)] if "a borrower" in kind else []
        for borrower in self.borrowers:
            borrower.child.tell("work", self.random.getrandbits(32), self.random.randrange(10, 50))
        offers = self.random.random() < 0.3
        if offers:
            self.lender.tell("offer", self.random.choice(LENT))
        time.sleep(self.random.choice((0, self.random.uniform(0, 0.01), self.random.uniform(0, 0.2))))
        if stopped:
            self.lender.send(signal.SIGSTOP)
        elif dies and self.random.random() < 0.5:
            self.lender.kill()
        for borrower in killed:
            borrower.killed()
        if dies and not stopped:
            self.lender.kill()
        alive = [borrower for borrower in self.borrowers if borrower not in killed]
        for borrower in alive:
            borrower.child.answer(borrower.heard)
        in_use = any(borrower.used for borrower in self.borrowers)
        for borrower in alive:
            borrower.check()
        if stopped:
            in_use = any(borrower.used for borrower in alive)
            self.lender.kill() if dies else self.lender.send(signal.SIGCONT)
        if dies:
            for borrower in alive:
                borrower.check()
            self.lender = self.started()
        elif offers:
            self.lender.answer()
        pids = {borrower.child.pid for borrower in killed}
        self.until(
            lambda leases: not any(pid in pids for pid, _ in leases), "the memory of a killed borrower is not back"
        )
        for borrower in killed:
            borrower.start()
            borrower.used = 0
        if self.random.random() < 0.8:  # else whoever is next is killed while it is lent
            self.lender.ask("offer", LENT[-1])
            self.until(lambda leases: sum(size for _, size in leases) == LENT[-1], "not all that is offered is lent")
        return in_use and dies

    def close(self) -> None:
        for child in (*(borrower.child for borrower in self.borrowers), self.lender):
            child.ask("close")
            child.process.join(ANSWER_S)
            if child.process.exitcode != 0:
                raise Breach(CRASH, f"{child.name} ended with {child.process.exitcode} after it had closed")
        if left := [name for name in os.listdir(f"/dev/shm/ebbtide-{os.getuid()}") if self.group in name]:
            raise Breach(SILENT_WRONG, f"{left} are left")


def play(seed: int, area: Path, kills: int) -> tuple[list[tuple[str, str, bool, str]], int]:
    """Of each turn its kind, outcome, whether lent memory was in use, and what was told; and how many were killed."""
    drawn, done, turns = random.Random(f"{seed} kinds"), 0, []
    kind, case = "start", None
    try:
        case = Case(seed, area)
        while done < kills:
            kind = drawn.choice(KINDS[:2] * 3 + KINDS)
            in_use = case.turn(kind)
            done += "killed" in kind
            turns.append((kind, EXACT, in_use, ""))
        kind = "the end"
        case.close()
    except Breach as breach:
        outcome, told = map(str, breach.args)
        turns.append((kind, outcome, False, f"seed {seed}, turn {len(turns)}, {kind}: {told}"))
        done += "killed" in kind
    finally:
        for child in multiprocessing.active_children():
            child.kill()
            child.join()
        for path in Path(f"/dev/shm/ebbtide-{os.getuid()}").glob(f"*{case.group if case else seed}*"):
            path.unlink(missing_ok=True)
    return turns, done


def note(count: Count, turns: list[tuple[str, str, bool, str]]) -> None:
    for kind, outcome, in_use, told in turns:
        count.add(outcome, kind, told)
        count.hold(MUST, outcome, told)
        if in_use:
            count.by.setdefault(IN_USE, Counter())[outcome] += 1


def trial(session: Session) -> Count:
    count, drawn = Count(session.seed), session.random("lending")
    left = session.count("lending", KILLS, SHORT)
    while left > 0:
        with session.directory("lending") as area:
            turns, done = play(drawn.getrandbits(31), area, min(left, IN_ONE_CASE))
        note(count, turns)
        left -= max(done, 1)
    return count


if __name__ == "__main__":
    counted = Count()
    for given in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            note(counted, play(given, Path(scratch), IN_ONE_CASE)[0])
    print(json.dumps(counted.as_json(), indent=1))
