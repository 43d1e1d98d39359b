"""tools/instructions.py: a count that grew fails by its row; other tools are named, and nothing fails."""

import dataclasses
import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import instructions  # noqa: E402
import run_tests  # noqa: E402

GREW = "checkpoint, memory, 8 regions"


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Counts as recorded, which a test may record otherwise."""
    now = instructions.recorded()
    monkeypatch.setattr(instructions, "absent", lambda: None)
    monkeypatch.setattr(instructions, "count", lambda: now)
    monkeypatch.setattr(instructions, "RECORDED", tmp_path / "instructions.json")

    def judged(**recorded) -> run_tests.Counts:
        before = {**dataclasses.asdict(now), **recorded}
        instructions.RECORDED.write_text(json.dumps(before))
        return run_tests.instructions_suite()

    judged.now = now
    return judged


def test_what_did_not_grow_passes(counted):
    counts = counted()
    assert (counts.passed, counts.failed, counts.skipped) == (len(counted.now.calls), 0, [])
    assert len(counted.now.calls) >= 30


def test_a_count_that_grew_by_three_per_cent_fails_by_name(counted):
    counts = counted(calls={**counted.now.calls, GREW: counted.now.calls[GREW] / 1.03})
    assert counts.failed == 1 and counts.passed == len(counted.now.calls) - 1
    assert GREW in counts.names[0] and "+3.0%" in counts.names[0]


def test_a_row_that_is_not_recorded_fails(counted):
    calls = {row: count for row, count in counted.now.calls.items() if row != GREW}
    assert counted(calls=calls).names == [f"instructions: {GREW}: not recorded"]


@pytest.mark.parametrize("call", ["touch", "restore in place"])
def test_one_of_many_protected_arrays_costs_about_what_one_of_few_does(call):
    few, many = (instructions.recorded().calls[f"{call}, one of {n} regions"] for n in (100, 3000))
    assert many < 1.5 * few


def test_counts_of_other_tools_are_not_compared_and_it_says_so(counted):
    counts = counted(tools={**counted.now.tools, "valgrind": "0.1"}, calls={row: 1 for row in counted.now.calls})
    assert counts.failed == 0 and "valgrind" in counts.skipped[0] and "0.1 recorded" in counts.skipped[0]


def test_without_valgrind_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    counts = run_tests.instructions_suite()
    assert counts.failed == 0 and counts.skipped == ["instructions: not compared: valgrind is not installed"]
