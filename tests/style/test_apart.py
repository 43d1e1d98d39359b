"""A GoogleTest that changes its process (limits, signals, environment, children) has one of its own: APART in its room."""

import fnmatch
import pathlib
import re

TESTS = pathlib.Path(__file__).resolve().parents[1]
CHANGES = re.compile(
    r"\b(setrlimit|sigaction|setenv|putenv|chdir|umask|fork|in_a_child|sched_setaffinity|prctl)\(|EXPECT_EXIT|_DEATH\("
    r"|\bFewThreads\b|\bsignal\(SIG"
)
PROGRAM = re.compile(r"ebb_add_test\(([^)]*)\)")


def changing_their_process(text: str) -> list[str]:
    bodies = re.split(r"^(?=TEST\w*\()", text, flags=re.MULTILINE)[1:]
    named = ((re.match(r"\w+\((\w+),\s*(\w+)\)", body), body) for body in bodies)
    return [f"{name[1]}.{name[2]}" for name, body in named if name and CHANGES.search(body)]


def patterns_of(path: pathlib.Path) -> list[str]:
    """What the program that has this file calls apart."""
    for program in PROGRAM.findall((path.parent / "CMakeLists.txt").read_text()):
        sources, _, apart = program.partition("APART ")
        if path.name in sources.split() or "${tests}" in sources:
            return apart.split()
    return []


def test_what_changes_its_process_has_one_of_its_own():
    found, wrong = 0, []
    for path in sorted(TESTS.glob("*/*_test.cpp")):
        lists = path.parent / "CMakeLists.txt"
        patterns = patterns_of(path)
        for test in changing_their_process(path.read_text()):
            found += 1
            if not any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns):
                wrong.append(f"{path.relative_to(TESTS)}: {test} is not named by APART in {lists.relative_to(TESTS)}")
    assert found >= 20, "the search finds them"
    assert wrong == []
