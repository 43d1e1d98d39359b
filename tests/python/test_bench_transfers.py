"""Copies of memory in pieces: every way of ics19's figure 9 copies the pieces that it is to."""

import json

import numpy as np
import pytest
from bench_stand_in import GPUS
from ebbtide._machine.device import Cpu
from ebbtide.bench import paper, transfers
from ebbtide.bench.command import app
from ebbtide.bench.paper import Scale
from typer.testing import CliRunner

SIZE, COUNT = 4096, 9
SMALL = Scale("quick", 6, 64 << 10, (1,), (0.001,), (12,), 1 << 20)


@pytest.mark.parametrize("make", [Cpu, *GPUS])
def test_all_pieces_are_copied(make, monkeypatch):
    monkeypatch.setattr(transfers, "TURNS", 1)
    device = make()
    with device.use():
        sent = np.random.default_rng(1).integers(0, 256, 2 * SIZE * COUNT, np.uint8)
        memory, expected = device.upload(sent), sent.reshape(COUNT, 2, SIZE)[:, 0].ravel()
        pieces = [memory[2 * n * SIZE :][:SIZE] for n in range(COUNT)]
        for copied in (
            lambda host: transfers._alone(device, pieces, host),
            lambda host: transfers._gathered(device, memory, SIZE, COUNT, host),
        ):
            host = device.pinned(SIZE * COUNT)
            assert copied(host) > 0
            assert np.array_equal(host, expected)
    assert transfers._stored(Cpu(), [sent[:SIZE], sent[SIZE:]]) > 0


def test_the_figure(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(paper, "QUICK", SMALL)
    found = tmp_path / "9.json"
    ran = CliRunner().invoke(app, ["paper", "ics19:9", "--json", str(found), "--dir", str(disk)])
    assert ran.exit_code == 0, ran.output
    rows = json.loads(found.read_text())["rows"]
    places = {(row["labels"]["copies"], row["labels"]["bytes of a copy"]) for row in rows}
    ways, sizes = (
        (transfers.ALONE, transfers.GATHERED, transfers.STORE),
        ("4 KiB", "16 KiB", "64 KiB", "256 KiB", "1024 KiB"),
    )
    assert places == {(way, size) for way in ways for size in sizes}
    assert all(row["values"][0] > 0 for row in rows)
