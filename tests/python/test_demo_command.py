"""`ebbtide demo --small` from end to end, through the real store and through one that returns wrong bytes."""

import json

import ebbtide
import pytest
import typer
from demo_stand_in import StandInStore
from ebbtide._machine import files
from ebbtide.demo import command
from ebbtide.demo.command import demo
from typer.testing import CliRunner

app = typer.Typer()
app.command()(demo)


@pytest.fixture(autouse=True)
def disk_measured(monkeypatch):
    """The disk's rates cost nothing; test_bench_rates measures them."""
    rate = files.FileRate(1e9, 2, 4 << 20, True)
    monkeypatch.setattr(files, "file_rates", lambda directory: (rate, rate))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in ("--small", *arguments)])


@pytest.mark.parametrize(
    "open_store, compares", [(ebbtide.open, False), (StandInStore, True)], ids=["store", "stand-in"]
)
def test_a_small_demo_from_end_to_end(open_store, compares, monkeypatch, tmp_path):
    monkeypatch.setattr(ebbtide, "open", open_store)
    monkeypatch.setattr(command, "LEAST_TO_COMPARE", 0 if compares else command.LEAST_TO_COMPARE)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    result = run("--dir", scratch, "--out", tmp_path / "pictures", "--json", tmp_path / "demo.json")
    assert result.exit_code == 0, result.output
    assert "images identical" in result.output
    pictures = {file.name: file.read_bytes()[:6] for file in (tmp_path / "pictures").iterdir()}
    assert pictures == {
        name: b"\x89PNG\r\n" for name in ["demo-image.png", *(["demo-blocked.png"] if compares else [])]
    }
    assert ("are too small to compare" in " ".join(result.output.split())) != compares
    document = json.loads((tmp_path / "demo.json").read_text())
    assert document["images_identical"] is True
    ways = document["replay"]["ways"]
    assert [way["name"] for way in ways] == ["Ebbtide", "plain O_DIRECT files", "tofile / fromfile"]
    assert all(way["wrong_bytes"] == 0 for way in ways)
    assert list(scratch.iterdir()) == []


def test_most_of_each_shot_goes_to_disk_and_comes_back(tmp_path):
    result = run("--dir", tmp_path, "--out", tmp_path / "out", "--json", tmp_path / "demo.json", "--shots", 1)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "demo.json").read_text())
    config = document["config"]
    history = config["checkpoints_per_shot"] * config["checkpoint_bytes"]
    assert config["device_cache"] + config["host_cache"] <= history / 8
    to_disk, from_disk = document["migration"]["tier_bytes"]["local"]
    assert to_disk > history / 2 and from_disk > history / 2


@pytest.mark.filterwarnings("ignore:overflow")
def test_one_flipped_byte_ends_with_exit_code_1_and_says_where(monkeypatch, tmp_path):
    monkeypatch.setattr(ebbtide, "open", lambda **options: StandInStore(flip_at=9, **options))
    result = run("--dir", tmp_path, "--out", tmp_path, "--json", tmp_path / "demo.json")
    assert result.exit_code == 1
    assert "images differ" in result.output and "images identical" not in result.output
    assert "shot 1" in result.output and "row 30" in result.output
    assert json.loads((tmp_path / "demo.json").read_text())["images_identical"] is False


def test_a_store_that_fails_is_named(monkeypatch, tmp_path):
    def refuse(**_):
        raise ebbtide.Error("the disk is on fire [sic]")

    monkeypatch.setattr(ebbtide, "open", refuse)
    result = run("--dir", tmp_path, "--out", tmp_path)
    assert result.exit_code == 1
    assert "Error: the disk is on fire [sic]" in result.output


def test_wrong_options_are_named(tmp_path):
    for arguments, names in (
        (("--dir", tmp_path / "none"), ("--dir", "not a")),
        (("--host-cache", "lots"), ("--host-cache", "lots")),
        (("--shots", "0"), ("--shots",)),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert all(name in result.output for name in names)
