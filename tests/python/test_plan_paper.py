"""The machines of ics19: table 1 from formulas, and what the paper says of them."""

from __future__ import annotations

import csv
from pathlib import Path

import ebbtide
import pytest
from ebbtide.models.efficiency import figures, ics19

TABLE = Path(__file__).resolve().parents[2] / "data" / "ics19.csv"


def printed() -> list[dict[str, float]]:
    with TABLE.open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_table_1_follows_the_formulas():
    rows = printed()
    assert len(rows) == 9
    for row in rows:
        found = ics19.table_row(row["exaflops"], int(row["gpus_per_cpu"]))
        for name, value in found.items():
            assert value == pytest.approx(row[name], rel=0.006), (row["exaflops"], row["gpus_per_cpu"], name)
        total = sum(value for name, value in found.items() if name.endswith("failures_s"))
        assert total == pytest.approx(row["total_failures_s"], rel=0.006)


def test_cpu_failures_are_those_printed():
    at_3_6 = {int(row["gpus_per_cpu"]): row for row in printed() if row["exaflops"] == 3.6}
    assert {density: (row["cpu_failures_s"], row["cpus"]) for density, row in at_3_6.items()} == ics19.CPU_FAILURES


def test_efficiencies_of_the_text():
    found = ics19.efficiencies(ics19.machine(3.6, 16))
    assert found["baseline"] == pytest.approx(84.9, abs=0.5)
    assert found["level1_free"] == pytest.approx(92.7, abs=0.5)
    assert found["levels12_free"] == pytest.approx(97.2, abs=0.5)
    assert ics19.efficiencies(ics19.machine(gpu_failures=0.1))["baseline"] == pytest.approx(90, abs=1)
    assert ics19.efficiencies(ics19.machine(gpu_failures=50))["baseline"] < 54


def test_shape_of_figure_2():
    by_density = figures.figures()["figure2"]
    for two, four, eight, sixteen, thirty_two in zip(*(by_density[name] for name in ("2", "4", "8", "16", "32"))):
        assert max(two, four, eight) - min(two, four, eight) < 0.5
        assert min(two, four, eight) - sixteen > 0.5
        assert sixteen - thirty_two > 0.5
    for line in by_density.values():
        assert line == sorted(line, reverse=True)


def test_the_most_failures_are_where_efficiency_is_90():
    for one in figures.figures()["figure14"]:
        most, options = one["most_for_90"], {name: one[name] for name in ("speedup", "written")}
        if most is not None:
            assert ics19.efficiencies(ics19.machine(gpu_failures=most, **options))["baseline"] == pytest.approx(90)
    assert ics19.most_gpu_failures(0.99, 1, 1) is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"exaflops": 0}, "exaflops: 0 "),
        ({"density": 3}, "density: 3 .*2, 4, 8, 16, 32"),
        ({"gpu_failures": -1}, "gpu_failures: -1 "),
        ({"gpu_failures": 1e6}, "gpu_failures: .*level 1: .* a checkpoint takes 8 s"),
        ({"speedup": 0}, "speedup: 0 "),
        ({"written": 1.1}, "written: 1.1 "),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, named):
    with pytest.raises(ebbtide.InvalidArgument, match=named):
        ics19.machine(**options)
