"""A large machine for a day: alike nodes against each by itself, against the exact model, and against what can be counted."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import ebbtide
import pytest
from ebbtide.cli import app
from ebbtide.models.cluster import Cluster, expected, report, run
from ebbtide.models.efficiency import Pattern, drained, efficiency
from typer.testing import CliRunner


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_simulated_once_are_as_each_by_itself(seed: int) -> None:
    """100 nodes, with failures of GPUs so frequent that some come within these hours."""
    cluster = Cluster(100, gpu_failures=300)
    once, each = run(cluster, seed, 8000), run(cluster, seed, 8000, apart=True)
    assert once.failures == each.failures and sum(once.failures) > 0
    assert each.simulated == 100 * once.simulated and each.events > 90 * once.events
    for name in ("work", "blocked", "lost", "recovery", "checkpoints", "on_disk", "on_shared", "shared_load"):
        assert getattr(once, name) == pytest.approx(getattr(each, name), rel=0.02), name


@pytest.mark.parametrize(("nodes", "factor"), [(1000, 10), (3000, 50), (10000, 10)])
def test_many_days_are_what_the_exact_model_expects(nodes: int, factor: float) -> None:
    cluster = Cluster(nodes, gpu_failures=factor)
    days = [run(cluster, seed).efficiency for seed in range(40)]
    error = statistics.stdev(days) / len(days) ** 0.5
    # A failure of the file system's level comes once in two months: the mean of 40 days need not have one.
    rates = cluster.levels.failures
    often = replace(drained(cluster.levels), failures=(rates[0], rates[1], 0))
    without = efficiency(often, Pattern(cluster.interval, 1, cluster.shared_every))
    assert expected(cluster) - 3 * error - 0.002 < statistics.mean(days) < without + 3 * error + 0.002


@pytest.mark.parametrize("seed", range(5))
def test_every_second_is_counted_once(seed: int) -> None:
    for cluster in (Cluster(10000, gpu_failures=50), Cluster(5000, gpus=16, interval=400, every=3, gpu_failures=20)):
        day = run(cluster, seed)
        assert day.work + day.blocked + day.lost + day.recovery == pytest.approx(day.seconds)
        assert 0 <= day.on_shared <= day.on_disk <= day.checkpoints and day.on_disk > 0
        assert day.failures[1] == day.apart


def test_without_failures_it_is_what_can_be_worked_out_by_hand() -> None:
    """160 s of work and 4 s for a checkpoint of 256 GB at 64 GB/s; the disk takes 143 s, the file system 187 s: each second one.

    The file system is busy from the first checkpoint that is on the disk on. Of that time, its load is what the versions take that
    go there; the rest was for others, which were dropped.
    """
    cluster = Cluster(1000, gpu_failures=0)
    assert (cluster.memory_seconds, cluster.shared_every) == (4, 2)
    day = run(cluster, seed=3, seconds=16400)
    assert day.failures == (0, 0, 0) and (day.simulated, day.apart) == (1, 0)
    assert (day.checkpoints, day.blocked, day.work) == (100, 400, 16000)
    assert day.on_disk == 99 and day.on_shared in (48, 49)
    needed = 187.06 / (2 * 164)  # 57%, but for the time until the first is on the disk
    assert cluster.shared_seconds == pytest.approx(187.06, abs=0.01)
    assert day.shared_load == pytest.approx(needed, rel=0.03)
    busy = day.shared_load + day.written_and_dropped
    assert busy == pytest.approx(1 - (164 + cluster.disk_seconds) / 16400, rel=0.02)


def test_nothing_is_written_and_dropped_where_each_version_goes_to_the_file_system() -> None:
    day = run(Cluster(300, gpu_failures=0), seed=3, seconds=16400)
    assert day.written_and_dropped == 0 < day.shared_load


def test_a_large_machine_takes_few_events() -> None:
    """What makes a day of 1,000 nodes quick: one node's events, whatever the number of nodes. A second is for some 10^5."""
    few, many = (run(Cluster(nodes, gpu_failures=0), 5) for nodes in (1000, 10000))
    assert few.events < 20_000 and many.events < 20_000


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"nodes": 0}, "nodes: 0"),
        ({"nodes": 10, "gpus": 7}, "gpus: 7"),
        ({"nodes": 10, "state": -1}, "state: -1"),
        ({"nodes": 10, "interval": 100}, "interval: 100 s is not longer than the 143 s"),
        ({"nodes": 10, "every": -1}, "every: -1"),
        ({"nodes": 10, "gpu_failures": float("nan")}, "gpu_failures: nan"),
    ],
)
def test_a_machine_that_cannot_be_is_refused_by_field(given: dict, named: str) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match=f"^{named}"):
        Cluster(**given)


def command(*words: object, code: int = 0) -> str:
    ran = CliRunner().invoke(app, ["sim", "cluster", *map(str, words)], env={"COLUMNS": "300"})
    assert ran.exit_code == code, ran.output
    return " ".join(ran.output.replace("│", " ").split())


def test_the_command_writes_what_it_says(tmp_path: Path) -> None:
    out = tmp_path / "day.json"
    said = command("--nodes", 1000, "--runs", 3, "--gpu-failures", 10, "--json", out)
    found = json.loads(out.read_text())
    cluster = Cluster(1000, gpu_failures=10)
    assert [day["work"] for day in found["days"]] == [run(cluster, seed).work for seed in range(3)]
    assert found["expected"] == expected(cluster) and f"{100 * found['efficiency']:.2f}%" in said
    assert "nodes simulated" in said


def test_the_picture_has_a_point_for_each_machine() -> None:
    swept = report.sweep(days=2)
    assert report.picture(swept).count("<circle") == len(swept) == len(report.SIZES) * len(report.FACTORS)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--nodes", 0], "--nodes"),
        (["--gpus", 5], "--gpus"),
        (["--interval", "1s"], "--interval"),
        (["--gpu-failures", -1], "--gpu-failures"),
        (["--time", "0s"], "--time"),
        (["--nodes", 5000, "--apart"], "--apart"),
    ],
)
def test_the_command_names_the_option(words: list[object], named: str) -> None:
    assert named in command(*words, code=2)
