"""Runs tests many times on a busy machine: what fails once in a hundred runs fails here, and not in continuous integration.

Which tests: those that a change touches, or those whose name matches. A line inside a test means that test; any other line of
a file with tests means all of its tests; a line of a file that others include or import means theirs. Beside them run two
busy loops and a writer that syncs to the disk. Each round runs the tests in another order.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import frameworks
import googletest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
TREE = ROOT / "build" / "release"
A_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)")
BUSY_LOOP = "while True: pass"
WRITER = """
import os, sys
part = os.urandom(1 << 20)
with open(sys.argv[1], "wb", buffering=0) as file:
    while True:
        file.seek(0)
        for _ in range(64):
            file.write(part)
        os.fsync(file.fileno())
"""


@contextlib.contextmanager
def busy_machine() -> Iterator[None]:
    with tempfile.NamedTemporaryFile() as file:  # in build/tmp
        work = [[BUSY_LOOP], [BUSY_LOOP], [WRITER, file.name]]
        beside = [subprocess.Popen([sys.executable, "-c", *words]) for words in work]
        try:
            yield
        finally:
            for process in beside:
                process.kill()
                process.wait()


def changed_lines(since: str) -> dict[pathlib.Path, set[int]]:
    """The lines, as they are now, of the files below tests/ that differ from `since`."""
    git = ["git", "-C", str(ROOT)]
    diff = subprocess.check_output([*git, "diff", "--unified=0", "--no-renames", since, "--", "tests"], text=True)
    lines: dict[pathlib.Path, set[int]] = collections.defaultdict(set)
    file = None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = ROOT / line[6:] if line.startswith("+++ b/") else None
        elif file and (hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)):
            first, many = int(hunk[1]), int(hunk[2] or 1)
            lines[file].update(range(first, first + max(many, 1)))
    new = subprocess.check_output([*git, "ls-files", "--others", "--exclude-standard", "tests"], text=True)
    lines.update({ROOT / name: set(range(1, 1 << 20)) for name in new.splitlines()})
    return lines


def cxx_spans(file: pathlib.Path) -> list[tuple[range, str]]:
    """Each test of a file with the lines that it takes: to the brace that ends it, in the first column."""
    spans, lines = [], file.read_text().splitlines()
    for at, line in enumerate(lines, 1):
        if found := A_TEST.match(line):
            end = next((i for i, text in enumerate(lines[at - 1 :], at) if text.startswith("}") or "{}" in text), at)
            spans.append((range(at, end + 1), f"{found[1]}.{found[2]}"))
    return spans


def python_spans(file: pathlib.Path) -> list[tuple[range, str]]:
    tree = ast.parse(file.read_text())
    name = str(file.relative_to(ROOT))
    spans = []
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test"):
            first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
            spans.append((range(first, (one.end_lineno or first) + 1), f"{name}::{one.name}"))
    return spans


def users_of(file: pathlib.Path) -> list[pathlib.Path]:
    """The files with tests that include or import a file that has none."""
    if file.suffix == ".py":
        if file.name == "conftest.py":
            return sorted(file.parent.rglob("test_*.py"))
        word = re.compile(rf"^\s*(?:from|import) .*\b{file.stem}\b", re.MULTILINE)
        return [one for one in sorted(TESTS.rglob("test_*.py")) if word.search(one.read_text())]
    word = re.compile(rf'^#include "[^"]*\b{re.escape(file.stem)}\.hpp"', re.MULTILINE)
    return [one for one in sorted(TESTS.rglob("*_test.cpp")) if word.search(one.read_text())]


def names_changed(changed: dict[pathlib.Path, set[int]]) -> list[str]:
    """Suite.test for C++, file::test for Python."""
    names: set[str] = set()
    for file, lines in changed.items():
        if not file.exists() or file.suffix not in (".py", ".cpp", ".hpp"):
            continue
        holders = [file] if file.name.startswith("test_") or file.name.endswith("_test.cpp") else users_of(file)
        for holder in holders:
            spans = python_spans(holder) if holder.suffix == ".py" else cxx_spans(holder)
            inside = {name for span, name in spans if holder == file and not lines.isdisjoint(span)}
            outside = holder != file or lines - {line for span, _ in spans for line in span}
            # A comment or an include is outside too: better a test too many.
            names |= {name for _, name in spans} if outside else inside
    return sorted(names)


def plain(test: str) -> str:
    """Suite.test of what GoogleTest lists as Instance/Suite.test/3, or as Suite/0.test."""
    suites, name = test.split(".", 1)
    suite = next(word for word in reversed(suites.split("/")) if not word.isdigit())
    return f"{suite}.{name.split('/')[0]}"


def cxx_rounds(wanted: set[str] | re.Pattern[str], rounds: int, jobs: int) -> collections.Counter[str]:
    programs = []
    for program in googletest.programs_of(TREE):
        tests = googletest.tests_of(program, dict(os.environ))
        named = f"{program.name}.{{}}".format
        chosen = [
            test
            for test in tests
            if (wanted.search(named(test)) if isinstance(wanted, re.Pattern) else plain(test) in wanted)
        ]
        if chosen:
            programs.append((program, chosen))
    print(f"{sum(len(tests) for _, tests in programs)} tests in {len(programs)} programs of {TREE}", flush=True)
    failures: collections.Counter[str] = collections.Counter()
    for number in range(1, rounds + 1 if programs else 0):
        environment = {**os.environ, "GTEST_SHUFFLE": "1", "GTEST_RANDOM_SEED": str(number)}
        ended = googletest.run_chosen(programs, jobs, environment)
        failures.update(test for test, end in ended.items() if end.verdict == "failed")
    return failures


def collected(python: object, wanted: re.Pattern[str], arguments: list[str]) -> list[str]:
    command = [python, "-m", "pytest", "--collect-only", "-q", *arguments]
    listed = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if "::" in line and wanted.search(line)]


def python_rounds(python: object, tests: list[str], rounds: int, options: list[str]) -> collections.Counter[str]:
    print(f"{len(tests)} tests with {python}", flush=True)
    failures: collections.Counter[str] = collections.Counter()
    for number in range(1, rounds + 1 if tests else 0):
        order = random.Random(number).sample(tests, len(tests))
        command = [str(python), "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", *options, *order]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", process.stdout, re.MULTILINE)
        if process.returncode not in (0, 5):  # 5: the machine lacks what all of them need
            print(process.stdout, process.stderr, sep="\n", flush=True)
            failures.update(failed or [f"{python} ended with {process.returncode}"])
    return failures


def run(since: str, names: str | None, rounds: int, jobs: int) -> int:
    build = ["cmake", "--build", str(TREE), "--target", "ebb_tests", "-j", str(jobs)]
    if subprocess.run(build).returncode:
        return 1
    of_frameworks = {str(file.relative_to(ROOT)) for file in frameworks.files()}
    changed = [] if names else names_changed(changed_lines(since))
    cxx: set[str] | re.Pattern[str] = re.compile(names) if names else {name for name in changed if "::" not in name}
    python = collected(sys.executable, re.compile(names), []) if names else [name for name in changed if "::" in name]
    for_frameworks = [name for name in python if name.split("::")[0] in of_frameworks]
    with busy_machine():
        failures = cxx_rounds(cxx, rounds, jobs)
        failures += python_rounds(sys.executable, python, rounds, [])
        if for_frameworks:
            options = ["-m", "not gpu and not device"]
            failures += python_rounds(frameworks.made(), for_frameworks, rounds, options)
    for test, many in sorted(failures.items()):
        print(f"FAILED {many} of {rounds}: {test}")
    if not failures:
        print(f"all passed {rounds} times")
    return 1 if failures else 0
