"""Runs every test and ends with one line of counts. `make test` calls it; build trees are in build/.

`make test`: Release, from the objects that the wheel holds; Python; what calls cost (tools/instructions.py).
`make test-sanitized`: the address and undefined-behaviour sanitizers over every room, shuffled. `make test-races`: the
thread sanitizer over the rooms that have threads. `make test-all`, before a release: all of these with EBB_LONG set, for tests that have a long form, Release
shuffled, the trials of reliability in full, and a build that compiles each file alone. `make test-frameworks`: the helpers
for frameworks, in an environment of their own, where a test that is skipped has failed. A test that fails runs again, twice
and alone (tools/retries.py says what a flaky one is).

`tools/run_tests.py stress`: each test that has changed since --since, or whose name matches --names, fifty times, shuffled,
on a busy machine (tools/stress.py).

Where the thread sanitizer cannot start, its suite is skipped and says so; with CI set in the environment it fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as xml
from collections.abc import Callable

import frameworks
import googletest
import instructions
import retries
import stress

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
BUILD = ROOT / "build"
WITH_THREADS = "os;device;cache;transfer;storage;share;options;store;files;snapshots;capi"
# A report of a sanitizer must end the test that caused it. Short stacks of allocations and small fake stacks of threads
# take a quarter less time.
SANITIZER_ENVIRONMENT = {
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "ASAN_OPTIONS": ":".join(
        [
            "detect_stack_use_after_return=1",
            "strict_string_checks=1",
            "malloc_context_size=8",
            "max_uar_stack_size_log=16",
        ]
    ),
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
SHUFFLED = {"GTEST_SHUFFLE": "1"}
SETS = {
    "test": ["release", "python", "instructions"],
    "sanitized": ["sanitized"],
    "races": ["races"],
    "all": ["release", "shuffled", "sanitized", "python", "instructions", "races", "trials", "alone"],
    "frameworks": ["frameworks"],
}


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: list[str] = dataclasses.field(default_factory=list)
    names: list[str] = dataclasses.field(default_factory=list)  # of what failed
    flaky: list[str] = dataclasses.field(default_factory=list)  # they count as passed

    def add(self, other: Counts) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.names += other.names
        self.flaky += other.flaky

    def fail(self, name: str) -> Counts:
        self.failed += 1
        self.names.append(name)
        return self

    def end(self, suite: str, program: str, status: int, of_failed_tests: int) -> Counts:
        """Counts a program's end that no test of it accounts for; `of_failed_tests` is its status if any failed at first."""
        told = self.failed or (self.flaky and status == of_failed_tests)
        return self.fail(f"{suite}: {program} ended with {status}") if status and not told else self

    def judge(self, failure: retries.Failure) -> None:
        """Counts a failure, once it is known whether it comes again."""
        if retries.is_flaky(failure):
            self.flaky.append(failure.name)
            self.passed += 1
        else:
            self.fail(failure.name)


def read_junit(path: pathlib.Path, suite: str, passes: Callable[[xml.Element], bool]) -> Counts:
    """The counts of a report; `passes` runs one of its cases alone."""
    counts = Counts()
    if not path.exists():
        return counts.fail(f"{suite}: ended without a report")
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{suite}: {case.get('classname')}.{case.get('name')}"
        skipped, failed = case.find("skipped"), [*case.findall("failure"), *case.findall("error")]
        missing = case.get("status") == "notrun" and (skipped is None or "SKIP_" not in skipped.get("message", ""))
        if failed or case.get("status") == "fail" or missing:
            said = "\n".join(filter(None, [*(one.get("message", "") for one in failed), *case.itertext()]))
            counts.judge(retries.Failure(name, said, missing, lambda case=case: passes(case)))
        elif skipped is not None or case.get("status") == "disabled":
            counts.skipped.append(name)
        else:
            counts.passed += 1
    return counts


def run(command: list[object], **options) -> int:
    words = list(map(str, command))
    print("+", " ".join(words), flush=True)
    return subprocess.run(words, **options).returncode


def built(tree: pathlib.Path, jobs: int, definitions: list[str]) -> bool:
    """The Release tree is as `make build` configured it; configured anew it would not be the wheel's."""
    if tree.name != "release" or not (tree / "CMakeCache.txt").exists():
        every = ["-DEBB_TESTS=ON", "-DEBB_ROOMS=", "-DEBB_TEST_ROOMS="]
        configure = ["cmake", "-S", ROOT, "-B", tree, "-G", "Ninja", *every, *definitions]
        if run(configure, stdout=subprocess.DEVNULL):
            return False
    return run(["cmake", "--build", tree, "--target", "ebb_tests", "-j", jobs]) == 0


def cxx_suite(name: str, jobs: int, definitions: list[str], environment: dict[str, str], tree: str = "") -> Counts:
    place = BUILD / (tree or name)
    if not built(place, jobs, definitions):
        return Counts().fail(f"{name}: the build")
    print(f"+ the GoogleTest programs of {place}, {environment}", flush=True)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
    everything = {**mine, **environment}
    counts = Counts()
    programs = {program.name: program for program in googletest.programs_of(place)}
    ended = googletest.run_programs(list(programs.values()), jobs, everything)

    def passes(test: str) -> bool:
        program, of_it = test.split(".", 1)
        return googletest.run_tests(programs[program], [of_it], everything)[of_it].verdict == "passed"

    for test, end in sorted(ended.items()):
        if end.verdict == "failed":
            again = functools.partial(passes, test)
            counts.judge(retries.Failure(f"{name}: {test}", end.output, end.crashed, again))
        elif end.verdict == "skipped":
            counts.skipped.append(f"{name}: {test}")
        else:
            counts.passed += 1
    tell_slowest({test: end.seconds for test, end in ended.items()})
    counts.add(others(name, place, jobs, everything))
    return counts


def others(name: str, tree: pathlib.Path, jobs: int, environment: dict[str, str]) -> Counts:
    """What ctest knows beside GoogleTest: programs in C, trials of reliability, mutations."""
    report = tree / "report.xml"  # ctest takes it as relative to nothing but itself
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", tree, "-LE", "googletest", "-j", jobs, "--output-on-failure", "--no-tests=error"]
    status = run([*command, "--output-junit", report], env=environment)

    def passes(case: xml.Element) -> bool:
        one = ["ctest", "--test-dir", tree, "-R", f"^{re.escape(case.get('name'))}$", "--no-tests=error"]
        return run(one, env=environment) == 0

    return read_junit(report, name, passes).end(name, "ctest", status, of_failed_tests=8)


def tell_slowest(seconds: dict[str, float], many: int = 8) -> None:
    print("slowest:")
    for test in sorted(seconds, key=seconds.__getitem__, reverse=True)[:many]:
        print(f"  {seconds[test]:6.1f} s  {test}")


def races_suite(jobs: int) -> Counts:
    if not thread_sanitizer_starts():
        why = "races: every suite: the thread sanitizer cannot start on this kernel"
        return Counts().fail(why) if os.environ.get("CI") else Counts(skipped=[why])
    definitions = ["-DEBB_SANITIZE=thread", f"-DEBB_TEST_ROOMS={WITH_THREADS}"]
    return cxx_suite("races", jobs, definitions, SANITIZER_ENVIRONMENT, "tsan")


def thread_sanitizer_starts() -> bool:
    """It cannot where the kernel randomises more address bits than it knows and a container forbids to turn that off."""
    with tempfile.TemporaryDirectory() as scratch:
        source, program = pathlib.Path(scratch) / "empty.cpp", pathlib.Path(scratch) / "empty"
        source.write_text("int main() {}\n")
        subprocess.run([os.environ.get("CXX", "g++"), "-fsanitize=thread", source, "-o", program], check=True)
        tries = [[program], ["setarch", "-R", program]]
        return any(subprocess.run(command, capture_output=True).returncode == 0 for command in tries)


def pytest_suite(suite: str, python: object, jobs: int, arguments: list[object]) -> Counts:
    report = BUILD / f"pytest-{suite}.xml"
    report.unlink(missing_ok=True)
    workers = ["-n", jobs, "--dist", "worksteal"] if jobs > 1 else []
    pytest = [python, "-m", "pytest", "-q", "-o", "faulthandler_timeout=600"]
    reported = [f"--junitxml={report}", "-o", "junit_family=xunit2"]
    status = run([*pytest, "--durations=8", *workers, *arguments, *reported], cwd=ROOT)

    def passes(case: xml.Element) -> bool:
        return run([*pytest, node_id(case.get("classname"), case.get("name"))], cwd=ROOT) == 0

    return read_junit(report, suite, passes).end(suite, "pytest", status, of_failed_tests=1)


def node_id(classname: str, name: str) -> str:
    """What pytest calls a test that its report calls by a module, and a class if it has one, and a name."""
    words = classname.split(".")
    for end in range(len(words), 0, -1):
        module = pathlib.Path(*words[:end]).with_suffix(".py")
        if (ROOT / module).exists():
            return "::".join([str(module), *words[end:], name])
    return name  # a module that could not be imported


def python_suite(jobs: int) -> Counts:
    return pytest_suite("python", sys.executable, jobs, [])


def frameworks_suite(jobs: int) -> Counts:
    """Nothing may be skipped: tests that need a GPU are left out."""
    python, counts = frameworks.made(), Counts()
    for name, arguments in frameworks.arguments().items():
        counts.add(pytest_suite(name, python, jobs, arguments))
    while counts.skipped:
        counts.fail(f"{counts.skipped.pop()} was skipped")
    return counts


def instructions_suite() -> Counts:
    """A test for each count. Where they cannot be compared, which fails nothing, the run says why."""
    if why := instructions.absent():
        return Counts(skipped=[f"instructions: not compared: {why}"])
    before, now = instructions.recorded(), instructions.count()
    if why := instructions.not_comparable(before, now):
        return Counts(skipped=[f"instructions: not compared: {why}"])
    counts = Counts()
    for wrong in instructions.compare(before, now).values():
        if wrong:
            counts.fail(f"instructions: {wrong}")
        else:
            counts.passed += 1
    return counts


def alone_suite(jobs: int) -> Counts:
    """Each file compiled alone: in a batch one may use what another includes."""
    definitions = ["-DEBB_BENCHES=ON", "-DCMAKE_UNITY_BUILD=OFF"]
    return Counts(passed=1) if built(BUILD / "alone", jobs, definitions) else Counts().fail("alone: the build")


def trials_suite(jobs: int) -> Counts:
    """The trials of reliability in full, which `release` has in their short forms: every crash, cut, flip and fault."""
    from reliability.catalogue import TRIALS

    counts = Counts()
    if not built(BUILD / "release", jobs, ["-DEBB_BENCHES=ON"]):
        return counts.fail("trials: the build")
    program = BUILD / "release" / "reliability" / "cpp" / "ebb_trials"
    command = [
        sys.executable,
        ROOT / "reliability" / "run",
        "--seed",
        1,
        "--trials",
        program,
        "--out",
        BUILD / "trials",
    ]
    for name in [trial.name for trial in TRIALS if trial.native and not trial.sanitized]:
        if run([*command, "--on", "ebbtide", "--only", name]):
            counts.fail(f"trials: {name}")
        else:
            counts.passed += 1
    return counts


SUITES = {
    "release": lambda jobs: cxx_suite("release", jobs, ["-DEBB_BENCHES=ON"], {}),
    "shuffled": lambda jobs: cxx_suite("shuffled", jobs, ["-DEBB_BENCHES=ON"], SHUFFLED, "release"),
    "sanitized": lambda jobs: cxx_suite(
        "sanitized", jobs, ["-DEBB_SANITIZE=address,undefined"], {**SANITIZER_ENVIRONMENT, **SHUFFLED}, "asan"
    ),
    "python": python_suite,
    "instructions": lambda jobs: instructions_suite(),
    "races": races_suite,
    "trials": trials_suite,
    "alone": alone_suite,
    "frameworks": frameworks_suite,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=[*SETS, "stress"], nargs="?", default="test", help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers and tests at once")
    parser.add_argument("--only", choices=SUITES, action="append", help="just this suite (may be given again)")
    parser.add_argument("--since", metavar="REV", default="HEAD~1", help="stress: what changed; default: %(default)s")
    parser.add_argument("--names", metavar="REGEX", help="stress: these tests instead")
    parser.add_argument("--rounds", type=int, default=50, help="stress: how many times; default: %(default)s")
    arguments = parser.parse_args()
    # Some tests send themselves an interrupt, which a job that was started in the background would ignore.
    signal.signal(signal.SIGINT, googletest.stop)
    signal.signal(signal.SIGTERM, googletest.stop)
    sys.stdout.reconfigure(errors="backslashreplace")  # whatever a test says
    # A store cannot be on a tmpfs, which the system's temporary folder may be.
    (BUILD / "tmp").mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(BUILD / "tmp")
    if arguments.set == "all":
        os.environ["EBB_LONG"] = "1"  # tests that have a long form take it

    if arguments.set == "stress":
        return stress.run(arguments.since, arguments.names, arguments.rounds, arguments.jobs)

    total, told = Counts(), []
    for name in arguments.only or SETS[arguments.set]:
        begin = time.monotonic()
        before = os.times()
        try:
            counts = SUITES[name](arguments.jobs)
        except Exception as error:  # the other suites are run all the same
            traceback.print_exc()
            counts = Counts().fail(f"{name}: {error!r}")
        after = os.times()
        processor = after.children_user + after.children_system - before.children_user - before.children_system
        told.append(
            f"{name}: {counts.passed} passed, {counts.failed} failed, {len(counts.skipped)} skipped"
            f" in {time.monotonic() - begin:.0f} s, {processor:.0f} s of processor"
        )
        total.add(counts)
    print()
    for name in total.skipped:
        print("skipped:", name)
    for name in total.names:
        print("FAILED:", name)
    for name in total.flaky:
        print("FLAKY:", name)
    for line in told:
        print("  " + line)
    flaky = retries.record(total.flaky, BUILD)
    if flaky > retries.MOST_FLAKY:
        print(f"build/flaky.txt names {flaky} tests that are flaky; at most {retries.MOST_FLAKY} may be")
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skipped)} skipped")
    return 1 if total.failed or not total.passed or flaky > retries.MOST_FLAKY else 0


if __name__ == "__main__":
    sys.exit(main())
