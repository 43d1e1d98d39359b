"""Pictures need an extra: without it a command does the rest, and says what installs it."""

import sys

import typer
from ebbtide.bench.command import app as bench
from ebbtide.demo.command import demo as demo_command
from typer.testing import CliRunner

LINE = 'pip install "ebbtide[plots]"'
demo = typer.Typer()
demo.command()(demo_command)


def test_without_matplotlib_the_demo_ends_well(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = CliRunner().invoke(demo, ["--small", "--shots", "1", "--dir", str(tmp_path), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert LINE in ran.output and "images identical" in ran.output
    assert list((tmp_path / "out").iterdir()) == []


def test_without_matplotlib_the_benchmark_ends_well(monkeypatch, measured, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    tiny = [
        "--checkpoints",
        "4",
        "--size",
        "64KiB",
        "--interval",
        "1ms",
        "--device-cache",
        "1MiB",
        "--host-cache",
        "1MiB",
    ]
    ran = CliRunner().invoke(bench, ["shot", *tiny, "--dir", str(tmp_path), "--plot", str(tmp_path / "plot.png")])
    assert ran.exit_code == 0, ran.output
    assert LINE in " ".join(ran.output.split())
    assert not (tmp_path / "plot.png").exists()
