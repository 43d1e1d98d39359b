"""tools/run_tests.py: what counts as flaky, and which tests a change touches."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import retries  # noqa: E402
import run_tests  # noqa: E402
import stress  # noqa: E402

LATE = "store_test.cpp:9: Failure\nExpected equality of these values:\n  late\n    Which is: 3\n  0\n"


@pytest.mark.parametrize(
    "said, crashed, then, flaky",
    [
        (LATE, False, [True, True], True),
        (LATE, False, [True, False], False),
        (LATE, False, [False, True], False),
        (LATE, True, [True, True], False),
        (f"{LATE}==7==ERROR: AddressSanitizer: heap-use-after-free", False, [True, True], False),
        ("WARNING: ThreadSanitizer: data race", False, [True, True], False),
        ("planner.cpp:3:5: runtime error: signed integer overflow", False, [True, True], False),
        ("store_test.cpp:9: Failure\nValue of: reads(2)\n  Actual: false", False, [True, True], False),
        (">       assert (restored == field).all()\nE       assert False", False, [True, True], False),
        ("worker 'gw0' crashed while running 'test_a.py::test_b'", False, [True, True], False),
        # Contents that are compared elsewhere in the test did not fail.
        ("        assert (x == 1).all()\n>       assert waits == 2\nE       assert 3 == 2", False, [True, True], True),
    ],
)
def test_what_is_flaky(said, crashed, then, flaky):
    results = iter(then)
    assert retries.is_flaky(retries.Failure("a test", said, crashed, lambda: next(results))) == flaky


def test_all_sets_of_a_run_of_continuous_integration_share_the_count_of_flaky_tests(tmp_path, monkeypatch):
    monkeypatch.setenv("CI", "1")
    assert retries.record(["one"], tmp_path) == 1
    assert retries.record([], tmp_path) == 1
    assert retries.record(["two", "three"], tmp_path) == 3 > retries.MOST_FLAKY
    assert (tmp_path / "flaky.txt").read_text().split() == ["one", "two", "three"]
    monkeypatch.delenv("CI")
    assert retries.record(["four"], tmp_path) == 1


SOME_TESTS = """
import os, pathlib
COUNT = pathlib.Path(__file__).with_name("count")
class TestSome:
    def test_fails_once(self):
        COUNT.write_text(COUNT.read_text() + "." if COUNT.exists() else ".")
        assert COUNT.read_text() != "."
def test_fails():
    assert 1 == 2
def test_has_wrong_data_once():
    there = COUNT.with_name("there")
    data, _ = there.exists(), there.touch()
    assert b"right" if data else b"right" == b"wrong"
def test_passes():
    pass
"""


def test_what_fails_runs_again_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "BUILD", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # so that this folder is the root of its reports
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(SOME_TESTS)
    counts = run_tests.pytest_suite("some", sys.executable, 1, ["tests"])
    assert counts.flaky == ["some: tests.test_some.TestSome.test_fails_once"]
    assert counts.names == [
        "some: tests.test_some.test_fails", "some: tests.test_some.test_has_wrong_data_once",
    ]  # fmt: skip
    assert (counts.passed, counts.failed) == (2, 2)


def test_a_suite_with_flaky_tests_alone_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "BUILD", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(SOME_TESTS.partition("def test_fails()")[0])
    counts = run_tests.pytest_suite("some", sys.executable, 1, ["tests"])
    assert (len(counts.flaky), counts.passed, counts.failed) == (1, 1, 0)


@pytest.mark.parametrize(("status", "flaky", "failed"), [(0, [], 0), (1, [], 1), (1, ["a"], 0), (3, ["a"], 1)])
def test_an_end_that_no_test_accounts_for_is_a_failure(status, flaky, failed):
    assert run_tests.Counts(flaky=flaky).end("some", "pytest", status, of_failed_tests=1).failed == failed


def test_stress_takes_what_a_change_touches(tmp_path, monkeypatch):
    monkeypatch.setattr(stress, "ROOT", tmp_path)
    monkeypatch.setattr(stress, "TESTS", tmp_path / "tests")
    files = {
        "tests/a/one_test.cpp": '#include "helper.hpp"\nTEST(One, first) {\n  x();\n}\nTEST_P(One, second) {}\n',
        "tests/a/two_test.cpp": "int help();\nTEST(Two, first) {\n  x();\n}\nTEST(Two, second) {\n  y();\n}\n",
        "tests/a/helper.hpp": "int x();\n",
        "tests/python/test_p.py": "import q_support\ndef test_first():\n    a\n\ndef test_second():\n    b\n",
        "tests/python/q_support.py": "a = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "a"], check=True)

    def touched(name: str, old: str, new: str) -> list[str]:
        text = files[name]
        (tmp_path / name).write_text(text.replace(old, new))
        names = stress.names_changed(stress.changed_lines("HEAD"))
        (tmp_path / name).write_text(text)
        return names

    assert touched("tests/a/two_test.cpp", "y()", "z()") == ["Two.second"]
    assert touched("tests/a/two_test.cpp", "help", "helps") == ["Two.first", "Two.second"]
    assert touched("tests/a/helper.hpp", "int", "long") == ["One.first", "One.second"]
    both = ["tests/python/test_p.py::test_first", "tests/python/test_p.py::test_second"]
    assert touched("tests/python/test_p.py", "b\n", "c\n") == both[1:]
    assert touched("tests/python/q_support.py", "1", "2") == both
    assert touched("tests/a/two_test.cpp", "none", "") == []


def test_a_test_with_parameters_is_known_by_its_plain_name():
    assert [stress.plain(name) for name in ("A.b", "All/A.b/3", "A/0.b")] == ["A.b", "A.b", "A.b"]
