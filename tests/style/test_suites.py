"""Each suite guards a promise of the documentation, by name (tests/promises.py), and each page has suites that guard it."""

import fnmatch
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))
from promises import GUARDS  # noqa: E402

SUITES = sorted(
    str(path.relative_to(TESTS)) for pattern in ("*_test.cpp", "test_*.py", "capi/*.c") for path in TESTS.rglob(pattern)
)
TRIALS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "reliability" / "cpp").glob("*.cpp"))
SUITES += TRIALS
FILES = sorted(str(path.relative_to(TESTS)) for path in TESTS.rglob("*")) + TRIALS
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))


def headings(page: str) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", (ROOT / page).read_text(), re.MULTILINE))


@pytest.mark.parametrize("suite", SUITES)
def test_each_suite_guards_a_promise(suite):
    promises = [promise for promise, suites in GUARDS.items() if any(fnmatch.fnmatchcase(suite, one) for one in suites)]
    assert promises, f"{suite} guards nothing that tests/promises.py names"


@pytest.mark.parametrize("promise", GUARDS)
def test_each_promise_is_there_and_has_suites(promise):
    page, heading = promise.split(": ", 1)
    assert any(fnmatch.fnmatchcase(one, heading.replace("[", "[[]")) for one in headings(page)), (
        f"{page} has no such heading"
    )
    assert GUARDS[promise]
    assert [one for one in GUARDS[promise] if not fnmatch.filter(FILES, one)] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_page_is_guarded(page):
    assert any(promise.startswith(f"{page}: ") for promise in GUARDS)


@pytest.mark.parametrize("suite", [suite for suite in SUITES if suite.endswith("_test.cpp")])
def test_each_suite_is_compiled(suite):
    path = TESTS / suite
    built = (path.parent / "CMakeLists.txt").read_text()
    assert re.search(rf"\b{path.name}\b|GLOB tests [^)]*\*_test\.cpp", built), f"no program of {path.parent} has it"
