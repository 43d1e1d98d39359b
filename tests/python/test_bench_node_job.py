"""The job of wag-dbi's figures: its processes write what they are to, read it back, and fail by name."""

import json
import shutil
from collections import namedtuple

import pytest
from ebbtide.bench import node_job, paper
from ebbtide.bench.command import app
from ebbtide.bench.node_job import BUFFERED, FSYNC, MIB, MIXES, OWN_BUFFERS, Mix, pool_of
from ebbtide.bench.paper import wag
from ebbtide.bench.ranks import RankFailed, each_in_a_process
from typer.testing import CliRunner

SMALL = Mix("small", 60, 2_000_000)
WAYS = {way.name: way for way in (FSYNC, BUFFERED, OWN_BUFFERS, pool_of(16 * MIB))}


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
def test_writes_are_those_of_the_paper(mix):
    for rank in range(8):
        drawn = node_job.sizes(mix, rank)
        assert drawn == node_job.sizes(mix, rank) != node_job.sizes(mix, rank + 1)
        assert 0.95 < sum(drawn) / mix.bytes < 1.05
        small = [size for size in drawn if size <= 64]
        large = [size for size in drawn if size >= 512 << 10]
        assert 0.45 < len(small) / len(drawn) < 0.55 and sum(small) < mix.bytes / 200
        assert len(large) / len(drawn) < 0.02 and sum(large) > 0.8 * mix.bytes


@pytest.mark.parametrize("name", WAYS)
def test_each_way_ends_when_all_is_durable_and_comes_back(name, disk):
    found = node_job.checkpoints(SMALL, WAYS[name], disk, 2, processes=2)
    assert len(found.blocked) == len(found.durable) == 2
    assert all(0 < blocked <= durable for blocked, durable in zip(found.blocked, found.durable, strict=True))
    assert node_job.restart(SMALL, WAYS[name], disk, processes=2) > 0
    assert not list(disk.glob("ebbtide-job-*"))


def test_too_little_room_is_told_before_anything_is_written(disk, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(1000))
    with pytest.raises(node_job.TooLittleRoom, match="4 checkpoints of small need 20000000 bytes in .* has 1000 free"):
        node_job.checkpoints(SMALL, FSYNC, disk, 2, processes=2)
    ran = CliRunner().invoke(app, ["paper", "wag:7a", "--dir", str(disk)], env={"COLUMNS": "500"})
    assert ran.exit_code == 2 and "--dir" in ran.output and "1000 free" in ran.output
    assert not list(disk.iterdir())


def _works(meet):
    meet()
    return 1


def _fails(meet):
    raise OSError("no such thing")


def test_a_process_that_fails_is_named_and_ends_the_others():
    with pytest.raises(RankFailed, match=r"(?s)rank 1: .*no such thing"):
        each_in_a_process([_works, _fails])
    assert each_in_a_process([_works, _works]) == [1, 1]


def test_figures(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(wag, "MIXES", (SMALL,))
    monkeypatch.setattr(wag, "ROUNDS", 1)
    monkeypatch.setattr(wag, "BY_POOL", (FSYNC, BUFFERED, pool_of(16 * MIB)))
    for figure in ("7a", "III"):
        found, picture = tmp_path / f"{figure}.json", tmp_path / f"{figure}.png"
        command = ["paper", f"wag:{figure}", "--json", str(found), "--plot", str(picture), "--dir", str(disk)]
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
        rows = json.loads(found.read_text())["rows"]
        assert all(row["values"][0] > 0 for row in rows) and len(rows) >= 2
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert {f"wag:{name}" for name in ("7a", "7b", "8a", "8b", "9", "II", "III")} <= set(paper.FIGURES)
