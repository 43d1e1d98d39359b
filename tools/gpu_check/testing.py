"""Runs the tests that need a GPU: from C++, from Python, and the first under compute-sanitizer's memcheck."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path

from .session import ROOT, Failed, Session

CXX = "[Cc]uda|CUDA|[Gg]pu|GPU"  # in a test's name
MARKS = ("gpu", "device")  # of Python tests that need one


def cxx(session: Session) -> None:
    report = session.out / "ctest.xml"
    report.unlink(missing_ok=True)
    status = session.run(
        "ctest", "--test-dir", session.build, "-R", session.options.tests or CXX, "-j", session.options.test_jobs,
        "--output-on-failure", "--no-tests=error", "--timeout", "150", "--output-junit", report,
        TMPDIR=str(session.scratch),
    )  # fmt: skip
    count(session, "C++ tests", report, status)


def python(session: Session) -> None:
    report = session.out / "pytest.xml"
    report.unlink(missing_ok=True)
    project = (ROOT / "pyproject.toml").read_text()
    known = [mark for mark in MARKS if f'"{mark}:' in project]  # pytest refuses a mark that it does not know
    status = session.run(
        *session.python("-m", "pytest", "-q", "-m", " or ".join(known), "tests/python", "-p", "no:cacheprovider",
                        f"--junitxml={report}", "-o", "junit_family=xunit2", "-o", "faulthandler_timeout=120"),
        EBBTIDE_DIR=str(session.scratch), TMPDIR=str(session.scratch),
    )  # fmt: skip
    count(session, "Python tests", report, status)


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
    """GoogleTest names by program."""
    listing = subprocess.run(
        ["ctest", "--test-dir", str(session.build), "-R", session.options.tests or CXX, "--show-only=json-v1"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=max(1, session.left()),
    )  # fmt: skip
    found = defaultdict(list)
    for test in json.loads(listing.stdout)["tests"]:
        command = test.get("command", [])
        # CMake 4 starts a test through a script of its own, with what it needs as definitions.
        words = [word.replace("TEST_FILTER=", "--gtest_filter=") for word in command]
        names = [word.split("=", 1)[1] for word in words if word.startswith("--gtest_filter=")]
        programs = [word.split("=", 1)[1] for word in words if word.startswith("TEST_EXECUTABLE=")]
        if names and not (session.options.memcheck_skip and re.search(session.options.memcheck_skip, names[0])):
            found[programs[0] if programs else next(word for word in command if not word.startswith("-"))] += names
    return dict(found)


def memcheck(session: Session) -> None:
    """Arenas are plain allocations then, which it can watch. What the driver refuses is for the tests to judge."""
    if not shutil.which("compute-sanitizer"):
        raise Failed("there is no compute-sanitizer")
    programs = gpu_tests(session)
    if not programs:
        raise Failed("no test to run")
    log = "memcheck.txt"
    (session.out / log).unlink(missing_ok=True)
    for program, names in programs.items():
        name = Path(program).name
        status = session.run(
            "compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "99",
            program, f"--gtest_filter={':'.join(names)}", log=log,
            EBBTIDE_CUDA_PLAIN="1", TMPDIR=str(session.scratch),
        )  # fmt: skip
        text = (session.out / log).read_text(errors="replace")
        summary = re.findall(r"ERROR SUMMARY: (.+)", text)
        session.say(f"memcheck {name}: {len(names)} tests, {summary[-1] if summary else 'no summary'}")
        if status:
            session.fail(f"memcheck {name}: ended with {status} (99: it found errors)")
        elif not summary:
            session.fail(f"memcheck {name}: it watched nothing")
