"""Runs every test and ends with one line of counts. `make test` calls it; build trees lie under build/.

Three builds of the C++ rooms, one after the other: Release (all suites), then the thread sanitizer and the address and
undefined-behaviour sanitizers (the suites of the rooms that have threads or memory of their own). Then pytest.

Where the thread sanitizer cannot start, its suite is skipped and says so; with CI set in the environment it fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
SANITIZED_ROOMS = "platform;memory;transfer;storage;runtime;config;capi"
# A report of a sanitizer must end the test that caused it.
SANITIZER_ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)  # of what failed

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.names += other.names


def read_junit(path: pathlib.Path, suite: str) -> Counts:
    counts = Counts()
    if not path.exists():
        return Counts(failed=1, names=[f"{suite}: ended without a report"])
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{suite}: {case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            counts.failed += 1
            counts.names.append(name)
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            counts.skipped.append(name)
        else:
            counts.passed += 1
    return counts


def run(command: list[str], **options) -> int:
    print("+", " ".join(map(str, command)), flush=True)
    return subprocess.run(list(map(str, command)), **options).returncode


def cxx_suite(name: str, jobs: int, definitions: list[str], environment: dict[str, str]) -> Counts:
    tree = BUILD / name
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    configure = ["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", "-DEBB_TESTS=ON", *definitions]
    if shutil.which("ccache"):
        configure.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    if run(configure, stdout=subprocess.DEVNULL) or run(
        ["cmake", "--build", tree, "--target", "ebb_tests", "-j", str(jobs)]
    ):
        return Counts(failed=1, names=[f"{name}: the build"])
    # --output-junit is relative to nothing but itself: an absolute path.
    status = run(
        [
            "ctest",
            "--test-dir",
            tree,
            "-j",
            str(jobs),
            "--output-on-failure",
            "--no-tests=error",
            "--output-junit",
            report,
        ],
        env={**os.environ, **environment},
    )
    counts = read_junit(report, name)
    if status and not counts.failed:
        counts.add(Counts(failed=1, names=[f"{name}: ctest ended with {status}"]))
    return counts


def sanitized_suite(name: str, jobs: int, sanitizers: str) -> Counts:
    if sanitizers == "thread" and not thread_sanitizer_starts():
        why = f"{name}: every suite: the thread sanitizer cannot start on this kernel"
        return Counts(failed=1, names=[why]) if os.environ.get("CI") else Counts(skipped=[why])
    definitions = [f"-DEBB_SANITIZE={sanitizers}", f"-DEBB_TEST_ROOMS={SANITIZED_ROOMS}"]
    return cxx_suite(name, jobs, definitions, SANITIZER_ENVIRONMENT)


def thread_sanitizer_starts() -> bool:
    """It cannot where the kernel randomises more address bits than it knows and a container forbids to turn that off."""
    with tempfile.TemporaryDirectory() as scratch:
        source, program = pathlib.Path(scratch) / "empty.cpp", pathlib.Path(scratch) / "empty"
        source.write_text("int main() {}\n")
        subprocess.run([os.environ.get("CXX", "g++"), "-fsanitize=thread", source, "-o", program], check=True)
        tries = [[program], ["setarch", "-R", program]]
        return any(subprocess.run(command, capture_output=True).returncode == 0 for command in tries)


def python_suite() -> Counts:
    report = BUILD / "pytest.xml"
    report.unlink(missing_ok=True)
    status = run([sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_family=xunit2"], cwd=ROOT)
    counts = read_junit(report, "pytest")
    if status and not counts.failed:
        counts.add(Counts(failed=1, names=[f"pytest ended with {status}"]))
    return counts


def main() -> int:
    suites = {
        "release": lambda jobs: cxx_suite("release", jobs, ["-DEBB_BENCHES=ON"], {}),
        "tsan": lambda jobs: sanitized_suite("tsan", jobs, "thread"),
        "asan": lambda jobs: sanitized_suite("asan", jobs, "address,undefined"),
        "pytest": lambda jobs: python_suite(),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers and tests at once")
    parser.add_argument("--only", choices=suites, action="append", help="just this suite (may be given again)")
    arguments = parser.parse_args()
    # Some tests send themselves an interrupt, which a job that was started in the background would ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A store refuses to lie on a tmpfs, which the system's temporary folder may be.
    (BUILD / "tmp").mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(BUILD / "tmp")

    total, told = Counts(), []
    for name in arguments.only or suites:
        begin = time.monotonic()
        counts = suites[name](arguments.jobs)
        told.append(
            f"{name}: {counts.passed} passed, {counts.failed} failed, {len(counts.skipped)} skipped"
            f" in {time.monotonic() - begin:.0f} s"
        )
        total.add(counts)
    print()
    for name in total.skipped:
        print("skipped:", name)
    for name in total.names:
        print("FAILED:", name)
    for line in told:
        print("  " + line)
    print(f"total: {total.passed} passed, {total.failed} failed, {len(total.skipped)} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
