"""Processes of a node's pool, killed at random moments with their agent or without, against a model.
Each process writes versions and files, writes them anew, drops them and waits for them. Killed are a process, the agent,
both, or all, in the midst of a call or between two; then the process is started again, and what it finds is compared.
OLDER_EXACT: something is missing, or older, that was never reported. `python reliability/node.py SEED` repeats a case.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from reliability.outcomes import CLEAR_ERROR, CRASH, EXACT, HANG, OLDER_EXACT, SILENT_WRONG, Count
from reliability.session import Session

MUST = (EXACT, OLDER_EXACT, CLEAR_ERROR)
CASES, SHORT = 100, 2
RANKS, STEPS, ANSWER_S = 2, 60, 60.0
WORDS = (1, 100, 5000, 60_000, 131_072, 400_000, 900_000)  # of 8 bytes; the last is larger than a share of the pool
Value = tuple[int, int]  # what it begins with, and how many words


class Breach(Exception):
    """An outcome that must not be, and what happened."""


class Rank:
    """One rank: its process, and what may be found of each of its names. None: it may be missing."""

    def __init__(self, case: Case, rank: int) -> None:
        self.case, self.rank = case, rank
        self.may: dict[str, set[Value | None]] = {}
        self.newest: dict[str, Value | None] = {}
        self.start()

    def start(self) -> None:
        environment = os.environ | {
            "EBBTIDE_JOB": self.case.job, "EBBTIDE_RANK": str(self.rank), "LOCAL_WORLD_SIZE": str(RANKS)}  # fmt: skip
        command = [sys.executable, str(Path(__file__).with_name("node_worker.py")), str(self.case.directory)]
        log = (self.case.area / f"log-{self.rank}").open("a")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        answer = self.answer()
        if answer is None:
            raise Breach(CRASH, f"rank {self.rank} cannot start: {Path(log.name).read_text()[-300:]}")
        self.compare(answer["ok"], "it starts")

    def answer(self) -> dict[str, Any] | None:
        """None: it has ended."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
            raise Breach(HANG, f"rank {self.rank} has not answered")
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(ANSWER_S)

    def say(self, *words: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed: it has no answer
            print(json.dumps(words), file=self.process.stdin, flush=True)

    def compare(self, found: dict[str, list[int]], when: str) -> None:
        for key in self.may.keys() | found.keys():
            value = (found[key][0], found[key][1]) if key in found else None
            may = self.may.get(key, {None})
            if value not in may:
                raise Breach(SILENT_WRONG, f"rank {self.rank}, {when}: {key} is {value}, and may be {may}")
            self.case.older = self.case.older or value != self.newest.get(key)
            self.may[key], self.newest[key] = {value}, value

    def call(self, *words: Any) -> bool:
        """Perhaps somebody is killed meanwhile. False: there was an error, or the process is no more."""
        name, key = words[0], words[1] if len(words) > 1 else ""
        if name == "put":
            self.newest[key] = (words[2][0], words[2][1])
            self.may.setdefault(key, {None}).add(self.newest[key])
        elif name == "drop":
            self.newest[key] = None
            self.may[key].add(None)
        self.say(*words)
        if self.case.random.random() < 0.25:
            self.case.kill(self)
        answer = self.answer()
        if answer is None:
            self.process.wait()
            return False
        if "error" in answer:
            self.case.errors.append(answer["error"])
            return False
        if name == "there":
            newest = {key: list(value) for key, value in self.newest.items() if value}
            if answer["ok"] != newest:
                raise Breach(SILENT_WRONG, f"rank {self.rank} has {answer['ok']}, and wrote {newest}")
        elif name == "wait":
            self.may[key] = {self.newest[key]}
        elif name == "close" and not answer["ok"]:
            self.may = {key: {value} for key, value in self.newest.items()}
        return True


class Case:
    def __init__(self, seed: int, area: Path) -> None:
        self.random, self.area, self.directory = random.Random(seed), area, area / "store"
        self.job = f"model-{seed}-{uuid.uuid4().hex[:8]}"
        self.errors: list[str] = []
        self.older = False
        self.ranks: list[Rank] = []

    def agents(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"ebbtide-agent") and words[1:2] == [f"job-{self.job}".encode()]:
                found.append(int(path.parent.name))
        return found

    def kill(self, rank: Rank) -> None:
        time.sleep(self.random.choice((0, 0, 0.001, 0.02, 0.15)))
        who = self.random.choice(("process", "agent", "both", "all"))
        processes = [] if who == "agent" else self.ranks if who == "all" else [rank]
        pids = [one.process.pid for one in processes] + ([] if who == "process" else self.agents())
        for pid in self.random.sample(pids, len(pids)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def step(self, rank: Rank, number: int) -> None:
        key = self.random.choice("hhf") + str(self.random.randrange(5))
        value = [number * 10_000_000, self.random.choice(WORDS)]
        if rank.newest.get(key) is not None or rank.may.get(key, {None}) != {None}:
            if not rank.call("drop", key) or self.random.random() < 0.3:
                return
        if rank.call("put", key, value):
            if self.random.random() < 0.6:
                rank.call("wait", key, self.random.choice(("node", "node", "storage")))
        elif rank.process.poll() is None:
            rank.call("drop", key)  # a part of it may be there
        if self.random.random() < 0.1 and rank.process.poll() is None and not self.errors:
            rank.call("there")

    def run(self) -> str:
        for number in range(RANKS):
            self.ranks.append(Rank(self, number))
        for number in range(1, STEPS + 1):
            rank = self.random.choice(self.ranks)
            self.step(rank, number)
            for one in self.ranks:
                if one.process.poll() is not None:
                    one.start()
        for rank in self.ranks:
            if rank.call("close"):
                rank.close()
            rank.process.kill()
            rank.process.wait()
        for rank in self.ranks:
            rank.start()
        return CLEAR_ERROR if self.errors else OLDER_EXACT if self.older else EXACT

    def end(self) -> None:
        for rank in self.ranks:
            rank.process.kill()
            rank.process.wait()
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)
        Path(f"/dev/shm/ebbtide-{os.getuid()}/job-{self.job}.pool").unlink(missing_ok=True)


def play(seed: int, area: Path) -> tuple[str, str]:
    """The outcome of a case, and what was told: of a breach, what must not be."""
    case = Case(seed, area)
    try:
        outcome = case.run()
        return outcome, case.errors[0] if case.errors else ""
    except Breach as breach:
        return str(breach.args[0]), f"seed {seed}: {breach.args[1]}"
    finally:
        case.end()


def note(count: Count, outcome: str, told: str) -> None:
    count.add(outcome, told=told)
    count.hold(MUST, outcome, told)


def trial(session: Session) -> Count:
    count, drawn = Count(session.seed), session.random("node")
    seeds = [drawn.getrandbits(31) for _ in range(session.count("node", CASES, SHORT))]

    def one(seed: int) -> tuple[str, str]:
        with session.directory(f"node-{seed}") as area:
            return play(seed, area)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for outcome, told in pool.map(one, seeds):
            note(count, outcome, told)
    return count


if __name__ == "__main__":
    counted = Count()
    for given in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            found = play(given, Path(scratch))
            print(given, *found, flush=True)
            note(counted, *found)
    print(json.dumps(counted.as_json(), indent=1))
