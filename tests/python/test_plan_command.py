"""`ebbtide plan`: its documents, what it assumes, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import ebbtide
import pytest
from ebbtide.cli import app
from ebbtide.models.efficiency import figures, ics19
from typer.testing import CliRunner

ISSUED = ["--state", "60GB", "--nodes", "512", "--mtbf-node", "3y"]


def run(*words: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["plan", *words], env={"COLUMNS": "300"})
    assert ran.exit_code == code, ran.output
    return ran.output


def test_efficiency_writes_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    said = run("efficiency", "--exaflops", "3.6", "--density", "16", "--gpu-failures", "1", "--json", str(path))
    assert json.loads(path.read_text()) == ics19.efficiencies(ics19.machine())
    assert "baseline" in said and "level1_free" in said and "levels12_free" in said


def test_figures_writes_what_the_model_says(tmp_path: Path) -> None:
    path, drawn = tmp_path / "found.json", tmp_path / "drawn.svg"
    run("figures", "--json", str(path), "--plot", str(drawn))
    assert json.loads(path.read_text()) == figures.figures()
    assert drawn.read_text() == figures.picture(figures.figures())


def test_a_plan_has_intervals_the_efficiency_and_a_line_that_runs(tmp_path: Path, disk: Path, monkeypatch) -> None:
    path = tmp_path / "plan.json"
    said = run(*ISSUED, "--mtbf-process", "30d", "--json", str(path))
    found = json.loads(path.read_text())
    assert found["site"]["mtbf_node"] == 3 * 365.25 * 86400
    assert found["levels"]["write"] == pytest.approx([6, 60 / 2.15, 512 * 60 / 2500])
    work, n1, n2 = (found["pattern"][name] for name in ("work", "n1", "n2"))
    assert found["intervals"] == [work, work * n1, work * n1 * n2]
    assert n1 > 1 and f"keep_every={n1}" in found["python"]
    assert f"shared_every={n1 * n2}" in found["python"]
    assert f"{found['efficiency']:.2f}%" in said and found["python"] in said
    assert "a failure of a process each 30 days and of a node each" in " ".join(said.split())
    assert "keep_last=2" in found["python"], "a node may be a checkpoint ahead of another"
    run("--state", "60GB", "--nodes", "1", "--json", str(path))
    assert "keep_last=1" in json.loads(path.read_text())["python"]
    monkeypatch.chdir(disk)
    line = found["python"].replace('"run"', '"run", device="cpu", device_cache="1MiB", host_cache="4MiB", disk="64MiB"')
    names = {"ebbtide": ebbtide}
    exec(line, names)
    names["store"].close()  # type: ignore[attr-defined]


def test_a_log_takes_the_place_of_mtbfs(tmp_path: Path) -> None:
    log, path = tmp_path / "failures.csv", tmp_path / "plan.json"
    log.write_text("seconds,level\n1000,process\n50000,node\n90000,process\n1e6,end\n")
    run("--state", "1GB", "--nodes", "8", "--log", str(log), "--json", str(path))
    rates = json.loads(path.read_text())["levels"]["failures"]
    assert rates == pytest.approx([2e-6, 1e-6, ics19.SYSTEM_FAILURES])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"", "line 1: '' is not 'seconds,level'"),
        (b"seconds,level\n5,rack\n", "line 2: '5,rack' is not"),
        (b"seconds,level\n5,node\nsoon,node\n", "line 3: seconds 'soon' is not"),
        (b"seconds,level\n5,node\n4,node\n", "line 3: seconds '4' is not a number of at least 5"),
        (b"seconds,level\n", "no time in it"),
    ],
)
def test_an_unreadable_log_is_refused(tmp_path: Path, text: bytes | None, named: str) -> None:
    log = tmp_path / "failures.csv"
    if text is not None:
        log.write_bytes(text)
    said = " ".join(run(*ISSUED, "--log", str(log), code=2).replace("│", " ").split())
    assert "--log" in said and named in said


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--state"),
        ([*ISSUED, "--mtbf-node", "3h"], "--mtbf-node"),
        ([*ISSUED, "--mtbf-system", "1s"], "--mtbf-system"),
        ([*ISSUED, "--mtbf-process", "often"], "--mtbf-process"),
        ([*ISSUED, "--mtbf-node", "-3y"], "--mtbf-node"),
        ([*ISSUED, "--shared-rate", "0"], "--shared-rate"),
        (["--state", "0"], "--state"),
        (["efficiency", "--gpu-failures", "-1"], "--gpu-failures"),
        (["efficiency", "--density", "3"], "--density"),
    ],
)
def test_a_wrong_option_is_refused_by_name(words: list[str], named: str) -> None:
    assert f"'{named}'" in run(*words, code=2)


def test_a_negative_rate_is_refused_by_name(tmp_path: Path) -> None:
    rates = tmp_path / "doctor.json"
    disk = {"name": "disk write", "values": {"bytes_per_s": -1e9}}
    rates.write_text(json.dumps({"sections": {"links": [], "disk": [disk]}}))
    said = run(*ISSUED, "--rates", str(rates), code=2)
    assert "'--rates'" in said and "disk_rate: -1000000000.0 is not" in said
    rates.write_text("{}")
    assert "'--rates'" in run(*ISSUED, "--rates", str(rates), code=2)
