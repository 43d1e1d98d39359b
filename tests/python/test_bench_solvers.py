"""The solvers of ics19's figures 6 to 8: they solve, and what the recorder says that they write is what they write."""

import json

import numpy as np
import pytest
from ebbtide.bench import paper, solvers
from ebbtide.bench.command import app
from ebbtide.bench.paper import FIGURES, Place, Scale, ics19
from typer.testing import CliRunner

SIZE = 2 << 20
SMALL = Scale("quick", 6, 64 << 10, (1,), (0.001,), (12,), 8 * SIZE)


@pytest.mark.parametrize("name", solvers.SOLVERS)
def test_every_page_that_changes_is_told(name):
    solver = solvers.SOLVERS[name](SIZE)
    for _ in range(20):
        before = solver.memory.copy().reshape(-1, solvers.PAGE)
        (told,) = solvers.written(solver, 1)
        changed = (solver.memory.reshape(-1, solvers.PAGE) != before).any(axis=1)
        assert changed.any() or not told.any()
        assert not (changed & ~told).any()


def test_conjugate_gradients_converge():
    solver = solvers.Gradients(SIZE)
    for _ in range(60):
        solver.step()
    assert 0 < np.abs(solver.x).max() < 1 and np.linalg.norm(solver.left) < 1e-6


def test_the_wave_leaves_its_source_and_keeps_its_symmetry():
    solver = solvers.Wave(SIZE)
    middle = len(solver.now) // 2
    for _ in range(30):
        solver.step()
    east = solver.now[middle, middle + 1 : middle + 20]
    assert np.allclose(east, solver.now[middle, middle - 1 : middle - 20 : -1]) and np.abs(east).max() > 0


def test_figures_of_zones(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "QUICK", SMALL)
    monkeypatch.setattr(ics19, "INTERVALS", (1, 4))
    for figure in "678":
        found, picture = tmp_path / f"{figure}.json", tmp_path / f"{figure}.png"
        command = ["paper", f"ics19:{figure}", "--json", str(found), "--plot", str(picture), "--dir", str(disk)]
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
        rows = json.loads(found.read_text())["rows"]
        assert {row["labels"]["program"] for row in rows} == set(solvers.SOLVERS)
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_written_grows_until_the_next_checkpoint_and_is_less_in_finer_zones(monkeypatch):
    monkeypatch.setattr(ics19, "INTERVALS", (1, 4))
    over_time = list(FIGURES["ics19:6"].values(SMALL, Place(None), print))
    for name in solvers.SOLVERS:
        shares = [
            share for labels, share in over_time if labels["program"] == name and labels["checkpoint every"] == "4"
        ]
        assert len(shares) == 3 and 0 < shares[0] <= shares[1] <= shares[2] <= 100
    finer = list(FIGURES["ics19:8"].values(SMALL, Place(None), print))
    for name in solvers.SOLVERS:
        shares = [share for labels, share in finer if labels["program"] == name]
        assert len(shares) == 4 and 100 >= shares[0] >= shares[1] >= shares[2] >= shares[3] > 0
