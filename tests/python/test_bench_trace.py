"""Traces: like figure 4 of hpdc23, the same for a seed, and refused by file and line when they are wrong."""

from pathlib import Path

import pytest
from ebbtide import _traces as traces
from ebbtide.bench.command import app
from typer.testing import CliRunner

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sc22-sample-trace.csv"


def test_same_seed_same_trace_other_seed_other_trace():
    assert traces.make_trace(40, 3, seed=7) == traces.make_trace(40, 3, seed=7)
    assert traces.make_trace(40, 3, seed=7) != traces.make_trace(40, 3, seed=8)


def test_gpus_of_one_trace_differ_and_do_not_depend_on_how_many_there_are():
    two, three = traces.make_trace(30, 2, seed=1), traces.make_trace(30, 3, seed=1)
    assert traces.column(two, 1) == traces.column(three, 1)
    assert traces.column(three, 0) != traces.column(three, 1)


@pytest.mark.parametrize("seed", range(25))
def test_within_the_ranges_of_the_paper(seed):
    trace = traces.make_trace(seed=seed)
    assert (len(trace), len(trace[0])) == (384, 8)
    for gpu in range(8):
        sizes = traces.column(trace, gpu)
        assert 37.9e9 <= sum(sizes) <= 50.1e9
        steady = sorted(sizes)[len(sizes) // 2]
        assert sizes[0] < 0.15 * steady, "small at the start"
        assert sizes[24] > 2 * sizes[0], "then growing"
        assert min(sizes[96:]) > 0.6 * steady and max(sizes) < 1.4 * steady, "then of one magnitude"
        steps = [abs(b - a) / a for a, b in zip(sizes[96:], sizes[97:])]
        assert max(steps) < 0.03, "varying slowly"


def test_scale_and_length():
    small = traces.make_trace(96, 2, seed=3, scale=0.01)
    for gpu in range(2):
        assert 38e9 * 0.01 / 4 * 0.99 <= sum(traces.column(small, gpu)) <= 50e9 * 0.01 / 4 * 1.01
    assert traces.make_trace(1, 1, seed=0)[0][0] > 0


def test_written_trace_is_read_back(tmp_path):
    trace = traces.make_trace(10, 4, seed=2)
    traces.write_trace(tmp_path / "t.csv", trace)
    assert traces.read_trace(tmp_path / "t.csv") == trace


def test_the_published_sample_is_read():
    trace = traces.read_trace(SAMPLE)
    assert (len(trace), len(trace[0])) == (30, 8)
    assert trace[0][0] == 100161084


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2\n3\n", "line 2: 1 columns where the first row has 2"),
        ("1,2\n3,x\n", "line 2: '3,x' is not a row of sizes"),
        ("1\n0\n", "line 2: a size of 0 bytes"),
        ("", "holds no snapshot"),
    ],
)
def test_a_wrong_trace_is_refused_by_line(tmp_path, text, said):
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="wrong.csv") as refusal:
        traces.read_trace(path)
    assert said in str(refusal.value)


def test_command_writes_the_same_file_twice(tmp_path):
    for name in ("a.csv", "b.csv"):
        arguments = ["trace", str(tmp_path / name), "--snapshots", "20", "--gpus", "2", "--seed", "5"]
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code == 0, ran.output
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 20
