"""`ebbtide bench shot --lend`: ranks whose checkpoints spill into the memory of other processes."""

import dataclasses
import json
import os
import re

import pytest
from bench_stand_in import COUNT, some_rates, tiny_config
from ebbtide._machine import files
from ebbtide._machine.device import NoDevice
from ebbtide.bench import lending, model, rates
from ebbtide.bench.command import app
from ebbtide.bench.config import Config
from ebbtide.bench.rank import Outcome
from typer.testing import CliRunner

MIB = 1 << 20
SHOT = ["shot", "--checkpoints", str(COUNT), "--size", "1MiB", "--interval", "1ms", "--device-cache", "2MiB"]


def bench(*arguments: str, code: int = 0) -> str:
    ran = CliRunner().invoke(app, [*SHOT, *arguments], env={"COLUMNS": "200"})
    assert ran.exit_code == code, ran.output
    return ran.output


@pytest.mark.parametrize("ranks", [1, 2])
def test_each_rank_borrows_and_says_what_went_which_way(tmp_path, measured, ranks):
    out, picture = tmp_path / "shot.json", tmp_path / "shot.png"
    options = ["--host-cache", "0", "--disk", "0", "--verify", "--json", str(out), "--plot", str(picture)]
    text = bench("--lend", "128MiB", "--ranks", str(ranks), "--dir", str(tmp_path), *options)
    document = json.loads(out.read_text())
    assert document["verified"] == {"restores": ranks * COUNT, "wrong": 0, "wrong_bytes": 0}
    assert [rank["borrowed_bytes"] for rank in document["ranks"]] == [128 * MIB] * ranks
    for rank in document["ranks"]:
        moved = rank["moved_bytes"]
        assert moved["device>app"] + moved.get("peer>app", 0) >= COUNT * MIB
        assert moved.get("device>peer", 0) + moved.get("app>peer", 0) >= (COUNT - 2) * MIB, "no other tier had room"
        assert not [route for route in moved if "host" in route or "local" in route]
    for route, count in document["total"]["moved_bytes"].items():
        assert sum(rank["moved_bytes"].get(route, 0) for rank in document["ranks"]) == count
        assert route in text
    blocked = sum(rank["checkpoint_s"] + rank["restore_s"] for rank in document["ranks"])
    assert blocked == pytest.approx(document["total"]["blocked_s"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "EBBTIDE_JOB" not in os.environ
    groups = [name for name in os.listdir(f"/dev/shm/ebbtide-{os.getuid()}") if re.search("bench-[0-9a-f]{32}", name)]
    assert not groups, "no lender is left"


def test_a_lender_that_cannot_lend_is_named(monkeypatch):
    monkeypatch.setattr(lending, "lender_devices", lambda device, ranks: ["cuda:97"])
    with pytest.raises(lending.NotLent, match="(?s)the lender on cuda:97.*97"), lending.lenders("cpu", 1, 64 * MIB):
        pass


def test_a_rank_that_is_lent_too_little_says_so(monkeypatch):
    monkeypatch.setattr(lending, "_PATIENCE", 0.0)

    class Store:
        def stats(self):
            return {"tiers": [{"name": "device", "capacity": 5}, {"name": "peer", "capacity": 64 * MIB}]}

    lending.wait_until_lent(Store(), 64 * MIB)
    with pytest.raises(lending.NotLent, match="64 MiB of 128 MiB"):
        lending.wait_until_lent(Store(), 128 * MIB)


def test_those_gpus_lend_that_no_rank_computes_on(monkeypatch):
    monkeypatch.setattr(lending, "gpus", lambda: 4)
    assert lending.lender_devices("cuda", 1) == ["cuda:1"]
    assert lending.lender_devices("cuda:3", 2) == ["cuda:1", "cuda:2"]
    assert lending.lender_devices("cuda", 3) == ["cuda:3"] * 3
    with pytest.raises(NoDevice, match="4 ranks compute on all 4 GPUs"):
        lending.lender_devices("cuda", 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lend", "1MiB"], "at least 64 MiB"),
        (["--lend", "much"], "--lend"),
        (["--lend", "64MiB", "--device-cache", "0"], "no device cache"),
        (["--lend", "64MiB", "--size", "65MiB"], "1 GiB are enough"),
        (["--lend", "64MiB", "--device", "cuda:97"], "cuda"),
    ],
)
def test_what_cannot_be_lent_is_refused_by_name(tmp_path, arguments, words):
    text = " ".join(bench("--host-cache", "2MiB", "--dir", str(tmp_path), *arguments, code=2).replace("│", " ").split())
    assert words in text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_is_lent_spares_the_disk_in_bound_and_prediction(tmp_path, device):
    def expected(lend: int) -> list[float]:
        config: Config = tiny_config(tmp_path, sizes=((1 << 20,) * COUNT,), lend=lend, device=device)
        slow = files.FileRate(1e6, 1, MIB, True)
        bare = dataclasses.replace(some_rates(config), write=slow, read=slow)
        if device == "cuda" and lend:
            bare = dataclasses.replace(bare, peer=rates.PeerRate(1e11, 1e11))
        slept = [0.001] * COUNT
        outcome = Outcome(0, slept_forward_s=slept, slept_backward_s=slept, stats={"links": []})
        return [one["blocked_s"] for one in model.expect(config, [outcome], rates.mean(bare, bare))]

    assert all(100 * lent < alone for lent, alone in zip(expected(64 * MIB), expected(0)))
