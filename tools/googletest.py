"""Runs GoogleTest programs in a few processes each, and loses no result when one of them crashes or hangs.

A program's tests are dealt to shards, a process each; those that change their process (limits, signals, environment,
children) have one of their own. A test that ends its process, or that is not done in its time, fails by name, and what
the shard had left is run in the next process. Every test that a program lists must have ended: one that has not is a
failure, and so is a program that lists none.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import time
from typing import ClassVar

TESTS_A_SHARD = 24
LINES_TOLD = 500  # the last of what a test that failed has said
RESULT = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+?\.\S+?)(?:, where .*?)?(?: \((\d+) ms\))?$")


@dataclasses.dataclass
class Program:
    """One that CMake wrote into googletests.txt of its tree."""

    path: str
    launcher: list[str]
    timeout: float  # seconds for one test; a limit for a hang, and no promise
    alone: bool  # nothing else may run meanwhile
    apart: list[str]  # patterns of the tests that need a process of their own

    @property
    def name(self) -> str:
        return pathlib.Path(self.path).name


@dataclasses.dataclass
class Ended:
    verdict: str  # "passed", "failed", "skipped"
    seconds: float = 0.0
    output: str = ""
    crashed: bool = False  # or hung: its process did not end as it should


def programs_of(tree: pathlib.Path) -> list[Program]:
    programs = []
    for line in (tree / "googletests.txt").read_text().splitlines():
        told = json.loads(line)
        programs.append(Program(**{**told, "launcher": told["launcher"].split(), "apart": told["apart"].split()}))
    return programs


class Unlisted(Exception):
    """A program that does not say which tests it has."""


def tests_of(program: Program, environment: dict[str, str]) -> list[str]:
    command = [*program.launcher, program.path, "--gtest_list_tests"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, timeout=program.timeout, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unlisted(str(error)) from None
    if listed.returncode:
        raise Unlisted(f"{listed.stdout}{listed.stderr}\nit ended with {listed.returncode}")
    found, suite = [], ""
    for line in listed.stdout.splitlines():
        word = line.split("#")[0].rstrip()
        if word.startswith("  "):
            found.append(suite + word.strip())
        elif word.endswith("."):
            suite = word
    if not found:
        raise Unlisted(f"it lists no test\n{listed.stdout}{listed.stderr}")
    return found


class Process:
    """One process over some tests: what each of them came to, and how the process ended."""

    groups: ClassVar[set[int]] = set()  # of all that run now, whichever thread waits for them

    def __init__(self, program: Program, environment: dict[str, str]):
        self.program, self.environment = program, environment
        self.ended: dict[str, Ended] = {}
        self.running = ""  # the test that has begun and not ended
        self.hung = False
        self.lines: collections.deque[str] = collections.deque(maxlen=LINES_TOLD)  # since that one began
        self.order = ""  # the line that has the seed, when shuffled
        self.status = 0

    def run(self, *arguments: str) -> None:
        command = [*self.program.launcher, self.program.path, "--gtest_color=no", *arguments]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True
        ) as process:
            self.groups.add(process.pid)
            self._read(process)
            if process.poll() is None or self.hung:
                kill_group(process.pid)
            self.status = process.wait()
            kill_group(process.pid)  # what it started and left behind
            self.groups.discard(process.pid)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        rest, limit, drained = b"", time.monotonic() + self.program.timeout, float("inf")
        while True:
            ready, _, _ = select.select([process.stdout], [], [], 0.2)
            if ready:
                some = os.read(process.stdout.fileno(), 1 << 16)
                if not some:
                    break
                *whole, rest = (rest + some).split(b"\n")
                for line in whole:
                    if self._line(line.decode(errors="replace")):
                        limit = time.monotonic() + self.program.timeout
            now = time.monotonic()
            if process.poll() is not None:  # a child that outlives it may hold the pipe, and write to it for ever
                drained = min(drained, now + 1)
                if not ready or now > drained:
                    break
            elif now > limit:
                self.hung = True
                break
        if rest:
            self._line(rest.decode(errors="replace"))

    def _line(self, line: str) -> bool:
        self.lines.append(line)
        if "with a seed of" in line and not self.ended:
            self.order = line + "\n"
        found = RESULT.search(line)
        if not found or (found[1] != "RUN" and (found[3] is None or found[2] != self.running)):
            return False
        if found[1] == "RUN":
            self.running = found[2]
            self.lines.clear()
            self.lines.append(line)
            return True
        verdict = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[found[1]]
        output = self.order + "\n".join(self.lines) if verdict == "failed" else ""
        self.ended[self.running] = Ended(verdict, int(found[3]) / 1000, output)
        self.running = ""
        self.lines.clear()
        return True

    def failed(self) -> list[str]:
        return [test for test, one in self.ended.items() if one.verdict == "failed"]

    def ended_well(self) -> bool:
        return self.status == (1 if self.failed() else 0)

    def how(self) -> str:
        if self.hung:
            return f"it was not done in {self.program.timeout:g} s"
        return f"signal {signal.Signals(-self.status).name}" if self.status < 0 else f"status {self.status}"


def stop(number: int, _frame: object) -> None:
    """A handler of signals: ends this process and all that it runs."""
    for leader in list(Process.groups):
        kill_group(leader)
    os._exit(128 + number)


def kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def run_tests(program: Program, tests: list[str], environment: dict[str, str]) -> dict[str, Ended]:
    """Each of `tests`: in one process, or in as many as it takes when that one does not come to its end."""
    ended: dict[str, Ended] = {}
    while left := [test for test in tests if test not in ended]:
        process = Process(program, environment)
        process.run(f"--gtest_filter={':'.join(left)}")
        ended.update({test: one for test, one in process.ended.items() if test in left})
        whole = "\n".join(process.lines)
        if process.running in left:
            ended[process.running] = Ended("failed", 0.0, f"{whole}\nit ended its process: {process.how()}", True)
        elif not any(test in ended for test in left):
            report = f"{whole}\nit is listed and did not run: {process.how()}"
            ended.update({test: Ended("failed", 0.0, report, True) for test in left})
        elif all(test in ended for test in left) and not process.ended_well():
            for test in guilty_of_the_end(program, process, environment):
                report = f"{ended[test].output}{whole}\nafter the tests: {process.how()}"
                ended[test] = Ended("failed", 0.0, report, True)
    return ended


def guilty_of_the_end(program: Program, process: Process, environment: dict[str, str]) -> list[str]:
    """Of the tests of a process that ended badly (a leak, say): those that do it alone. Or else those that had failed,
    and if none had, all."""
    guilty = []
    for test in process.ended if len(process.ended) > 1 and not process.hung else []:
        alone = Process(program, environment)
        alone.run(f"--gtest_filter={test}")
        if not alone.ended_well():
            guilty.append(test)
    return guilty or process.failed() or list(process.ended)


def shards_of(program: Program, tests: list[str]) -> list[list[str]]:
    apart = [test for test in tests if any(fnmatch.fnmatchcase(test, pattern) for pattern in program.apart)]
    together = [test for test in tests if test not in set(apart)]
    shards = -(-len(together) // TESTS_A_SHARD)
    return [[test] for test in apart] + [together[i::shards] for i in range(shards)]


def run_programs(programs: list[Program], at_once: int, environment: dict[str, str]) -> dict[str, Ended]:
    """What each listed test came to, by "program.Suite.Test"; whatever failed is printed as soon as it has."""
    results, chosen = {}, []
    for program in programs:
        try:
            chosen.append((program, tests_of(program, environment)))
        except Unlisted as error:
            results[f"{program.name}.its tests"] = Ended("failed", 0.0, str(error), True)
            print(f"{error}\nFAILED: {program.name}.its tests", flush=True)
    return results | run_chosen(chosen, at_once, environment)


def run_chosen(chosen: list[tuple[Program, list[str]]], at_once: int, environment: dict[str, str]) -> dict[str, Ended]:
    """The same for some tests of each program."""
    results: dict[str, Ended] = {}

    def run_shard(shard: tuple[Program, list[str]]) -> None:
        program, tests = shard
        for test, end in run_tests(program, tests, environment).items():
            results[f"{program.name}.{test}"] = end
            if end.verdict == "failed":
                print(f"{end.output}\nFAILED: {program.name}.{test}", flush=True)

    for alone in (False, True):
        shards = [
            (program, shard)
            for program, tests in chosen
            if program.alone == alone
            for shard in shards_of(program, tests)
        ]
        with concurrent.futures.ThreadPoolExecutor(max_workers=1 if alone else at_once) as pool:
            list(pool.map(run_shard, shards))
    return results
