"""`ebbtide estimate`: the tiers that `open` would have, the rates that the doctor measured, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ebbtide
import pytest
from commands_support import DAMAGED, OK, REFUSED, run
from ebbtide._machine.files import FileRate
from ebbtide.doctor import disk as doctor_disk
from ebbtide.doctor import gpus, report
from ebbtide.sim.rates import measured_rates

SHOT = ("--checkpoints", 64, "--size", "1MiB", "--interval", "1ms", "--device", "cpu")


@pytest.fixture
def doctors(tmp_path: Path) -> Path:
    """What the doctor writes of a machine with a GPU: made by its own functions."""
    rate = {"depth": 8, "request": 4 << 20, "direct": True}
    links = {"device_copy": 1e12, "device_to_host": 50e9, "host_to_device": 40e9, "both": 80e9}
    sections: Any = {
        "links": [
            gpus.judge_link("cuda:1 copies", links),
            gpus.ok("memory copies", "", copy_in=6e9, copy_out=7e9, copy_two=9e9),
        ],
        "disk": [
            doctor_disk.ok("directory", ""),
            doctor_disk.judge("write", FileRate(bytes_per_s=2e8, **rate)),
            doctor_disk.judge("read", FileRate(bytes_per_s=1e8, **rate)),
        ],
    }
    file = tmp_path / "doctor.json"
    file.write_text(json.dumps(report.document(sections, True, 1.0)))
    return file


def test_the_tiers_are_those_that_open_would_have(disk: Path) -> None:
    found = run("estimate", *SHOT, "--memory", "8MiB", "--disk", "256MiB", "--dir", disk, "--json")
    assert found.code == OK
    with ebbtide.open(disk, device="cpu", memory="8MiB", disk="256MiB") as store:
        tiers = {tier["name"]: tier["capacity"] for tier in store.stats()["tiers"]}
    assert {name: need["capacity"] for name, need in found.json["tiers"].items()} == tiers
    assert found.json["total"] == 64 << 20
    assert found.json["seconds"] >= found.json["blocked_s"] + 127 * 0.001, "it computes for 1 ms before each call"


def test_the_times_are_those_of_the_measured_rates(disk: Path, doctors: Path) -> None:
    tiers = ("--memory", "8MiB", "--disk", "256MiB", "--dir", disk)
    found = run("estimate", *SHOT, *tiers, "--rates", doctors, "--json").json
    moved = found["tiers"]["local"]
    assert found["seconds"] >= moved["written"] / 2e8 + moved["read"] / 1e8, (
        "the disk's reads and writes share its time"
    )
    assert found["rates"] == {"file_write": 2e8, "file_read": 1e8, "copy": 6e9, "device_host": 6e9}
    assert measured_rates(doctors, "cuda:1") == {"file_write": 2e8, "file_read": 1e8, "copy": 1e12, "device_host": 40e9}
    assert measured_rates(doctors, "cuda:0") == {"file_write": 2e8, "file_read": 1e8}, (
        "usual ones, where none was measured"
    )
    said = run("estimate", *SHOT, *tiers, "--rates", doctors).out
    assert f"rates: as measured in {doctors}" in said.replace("\n", "")


def test_what_cannot_be_is_named(disk: Path, tmp_path: Path) -> None:
    small = run("estimate", *SHOT, "--memory", "8MiB", "--disk", "8MiB", "--dir", disk)
    assert small.code == DAMAGED
    assert "cannot be run: version" in small.out
    both = run("estimate", *SHOT, "--memory", "8MiB", "--host-cache", "1MiB", "--dir", disk, "--json")
    assert both.code == REFUSED
    assert both.json["error"]["reason"] == "invalid_argument"
    assert "host_cache" in both.json["error"]["message"]
    odd = run("estimate", *SHOT[:4], "--dir", disk, "--interval", "soon", "--json")
    assert odd.code == REFUSED
    assert "--interval" in odd.json["error"]["message"]
    for text in ("no JSON", "[]", '{"sections": {}}', '{"sections": {"links": [1], "disk": []}}'):
        (tmp_path / "wrong.json").write_text(text)
        wrong = run("estimate", *SHOT, "--dir", disk, "--rates", tmp_path / "wrong.json", "--json")
        assert wrong.code == REFUSED
        assert "wrong.json is not what `ebbtide doctor --json` writes" in wrong.json["error"]["message"]
