"""Runs the tests that need a GPU: from C++, from Python, of the documentation, and under compute-sanitizer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path

from .session import ROOT, Failed, Session

MEMCHECKED = ("tests/python/test_gpu_order.py", "tests/python/test_gpu_memory.py")


def ctest(session: Session, *more: object) -> list[object]:
    """Over every test with the label `gpu`, or those of them that --tests names."""
    return ["ctest", "--preset", "gpu", "--test-dir", session.build, "-R", session.options.tests or ".", *more]


def cxx(session: Session) -> None:
    report = session.out / "ctest.xml"
    report.unlink(missing_ok=True)
    command = ctest(session, "-j", session.options.test_jobs, "--output-junit", report)
    status = session.run(*command, TMPDIR=str(session.scratch))
    count(session, "C++ tests", report, status)


def python(session: Session) -> None:
    pytest(session, "Python tests", "pytest.xml", "-m", "gpu or device", "tests/python")


def docs(session: Session) -> None:
    """The Python blocks of the documentation, and its commands that name a GPU."""
    pytest(session, "documentation", "docs.xml", "-m", "gpu or block", "tests/docs/test_examples.py")


def pytest(session: Session, what: str, report: str, *tests: str) -> None:
    path = session.out / report
    path.unlink(missing_ok=True)
    status = session.run(
        *session.python("-m", "pytest", "-q", *tests, "-p", "no:cacheprovider", f"--junitxml={path}",
                        "-o", "junit_family=xunit2", "-o", "faulthandler_timeout=120"),
        EBBTIDE_DIR=str(session.scratch), TMPDIR=str(session.scratch),
    )  # fmt: skip
    count(session, what, path, status)


def count(session: Session, what: str, report: Path, status: int) -> None:
    """Says how many passed; whatever failed, or that none ran, is a failure, and what was skipped is named."""
    try:
        cases = list(xml.parse(report).getroot().iter("testcase"))
    except (OSError, xml.ParseError):
        cases = []
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    passed = len(cases) - len(failed) - len(skipped)
    session.say(f"{what}: {passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    for case in skipped:
        session.say(f"  skipped: {case.get('name')}")
    for case in failed:
        session.fail(f"{what}: {case.get('name')}")
    if not failed and (status or passed <= len(skipped)):
        session.fail(f"{what}: ended with {status}; {passed} passed and {len(skipped)} skipped proves nothing")


def gpu_tests(session: Session) -> dict[str, list[str]]:
    """GoogleTest names by program, without those that memcheck leaves out."""
    command = ctest(session, "-E", session.options.memcheck_skip or "^$", "--show-only=json-v1")
    listing = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, check=True,
                             timeout=max(1, session.left()))  # fmt: skip
    found = defaultdict(list)
    for test in json.loads(listing.stdout)["tests"]:
        command = test.get("command", [])
        # CMake 4 starts a test through a script of its own, with what it needs as definitions.
        words = [word.replace("TEST_FILTER=", "--gtest_filter=") for word in command]
        names = [word.split("=", 1)[1] for word in words if word.startswith("--gtest_filter=")]
        programs = [word.split("=", 1)[1] for word in words if word.startswith("TEST_EXECUTABLE=")]
        if names:
            found[programs[0] if programs else next(word for word in command if not word.startswith("-"))] += names
    return dict(found)


def watched(session: Session, what: str, log: str, *command: object) -> int:
    """The status of a command under memcheck, 99 if that found errors; says what it told at the end.

    Arenas are plain allocations then, which it can watch. What the driver refuses is for the tests to judge.
    """
    status = session.run(
        "compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "99", *command,
        log=log, EBBTIDE_CUDA_PLAIN="1", EBBTIDE_DIR=str(session.scratch), TMPDIR=str(session.scratch),
    )  # fmt: skip
    summary = re.findall(r"ERROR SUMMARY: (.+)", (session.out / log).read_text(errors="replace"))
    session.say(f"memcheck {what}: {summary[-1] if summary else 'no summary'}")
    if not summary:
        session.fail(f"memcheck {what}: it watched nothing")
    return status


def begin_memcheck(session: Session, log: str) -> None:
    if not shutil.which("compute-sanitizer"):
        raise Failed("there is no compute-sanitizer")
    (session.out / log).unlink(missing_ok=True)


def memcheck(session: Session) -> None:
    log = "memcheck.txt"
    begin_memcheck(session, log)
    programs = gpu_tests(session)
    # Tests on the double of a GPU call nothing that is watched, and a program without such a call is an error there.
    programs = {program: names for program, names in programs.items() if any("cuda" in one.lower() for one in names)}
    if not programs:
        raise Failed("no test to run")
    for program, names in programs.items():
        what = f"{Path(program).name}, {len(names)} tests"
        status = watched(session, what, log, program, f"--gtest_filter={':'.join(names)}")
        if status:
            session.fail(f"memcheck {what}: ended with {status} (99: it found errors)")


def memcheck_python(session: Session) -> None:
    """Calls take longer there than tests allow: one that failed is told, and judged in the stage without memcheck."""
    log = "memcheck_python.txt"
    begin_memcheck(session, log)
    command = session.python("-m", "pytest", "-q", "-p", "no:cacheprovider", *MEMCHECKED)
    status = watched(session, "Python", log, *command)
    ended = re.findall(r"^\d+ (?:passed|failed).*$", (session.out / log).read_text(errors="replace"), re.MULTILINE)
    session.say(f"  {ended[-1] if ended else 'it did not come to its end'}")
    if status == 99 or not ended or "passed" not in ended[-1]:
        session.fail(f"memcheck Python: ended with {status} (99: it found errors)")
