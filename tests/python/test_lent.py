"""`ebbtide sim lent`: what memory that another GPU lends is worth."""

import json

from ebbtide.cli import app
from typer.testing import CliRunner


def run(*words: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["sim", "lent", *words], env={"COLUMNS": "200"})
    assert ran.exit_code == code, ran.output
    return ran.output


def test_lent_memory_spares_a_shot_the_disk_and_a_burst_the_link_to_the_host(tmp_path):
    run("--json", str(tmp_path / "found.json"))
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["shot"]["above_bound"] <= 0.05
    assert found["shot"]["without_over_with"] >= 20
    assert found["burst"]["without_over_with"] >= 6
    assert 1 <= found["burst"]["over_least"] <= 1.1
    assert found["shot"]["bound"] <= found["shot"]["blocked"]


def test_writers_share_the_memory_of_the_host(tmp_path):
    found = []
    for writers in (1, 4):
        run("--writers", str(writers), "--checkpoints", "96", "--json", str(tmp_path / "found.json"))
        found.append(json.loads((tmp_path / "found.json").read_text()))
    assert found[1]["burst"]["without"] > 1.3 * found[0]["burst"]["without"]
    assert all(one["burst"]["over_least"] <= 1.1 for one in found)


def test_what_cannot_be_is_refused():
    assert "8 GPUs; dgx1v has 8" not in run("--topology", "dgx1v", "--checkpoints", "32", "--writers", "4")
    assert "10 GPUs; nvswitch-h200 has 8" in run("--writers", "5", code=2)
    assert "--lent two" in run("--lent", "128MiB", code=2)
