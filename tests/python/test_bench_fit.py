"""What a shot does without options."""

import pytest
from ebbtide._machine import files
from ebbtide._machine.files import FileRate
from ebbtide.bench import fit
from ebbtide.bench.command import app
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

RATES = st.floats(5e6, 2e10).map(lambda rate: FileRate(rate, 8, 4 << 20, True))


@given(st.floats(1, 600), st.tuples(RATES, RATES), st.integers(1 << 26, 1 << 45), st.integers(1, 8))
def test_a_shot_fits_the_time_and_the_disk(seconds, rates, free, ranks):
    found = fit.fit(seconds, rates, free, ranks)
    history = found.checkpoints * found.size * ranks
    assert history <= max(free / 2, ranks * fit.LEAST_SIZE)
    assert 2 * found.checkpoints * found.interval <= max(seconds / fit.SHOTS, 2 * found.interval) * 1.01
    assert found.checkpoints == 1 or history / (found.checkpoints * found.interval) <= min(r.bytes_per_s for r in rates)


def test_the_command_that_repeats_it_is_named(measured, monkeypatch, tmp_path):
    """And is one that the benchmark takes."""
    slow = FileRate(50e6, 2, 4 << 20, True)
    monkeypatch.setattr(files, "file_rates", lambda directory: (slow, slow))
    ran = CliRunner().invoke(app, ["shot", "--time", "1s", "--dir", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    line = next(line for line in ran.output.splitlines() if line.startswith("  ebbtide bench shot"))
    again = CliRunner().invoke(app, [*line.split()[2:], "--dir", str(tmp_path)])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize("command", ["shot", "snapshots"])
def test_an_interval_without_a_unit_is_refused(command):
    ran = CliRunner().invoke(app, [command, "--interval", "1"])
    assert ran.exit_code == 2
    assert "'1ms' or '1s'" in " ".join(ran.output.split())
