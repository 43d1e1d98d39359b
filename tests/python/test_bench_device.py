"""Devices of arrays: the same bytes through NumPy, PyTorch and CuPy, and the error without a GPU."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from bench_stand_in import GPUS, StandInGpu, some_rates, tiny_config
from ebbtide import sim
from ebbtide._machine import copies, device
from ebbtide._machine.content import Contents, Landing
from ebbtide._machine.device import Cpu, NoDevice, TorchGpu, select
from ebbtide.bench import model, rates, shot
from ebbtide.bench.command import app
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benches"))
import predicted_figures

SIZE = 4096 + 13


DEVICES = [Cpu, *GPUS]


@pytest.mark.parametrize("make", DEVICES)
def test_bytes_go_there_and_come_back(make):
    place = make()
    with place.use():
        there = place.bytes(SIZE)
        sent = np.arange(SIZE, dtype=np.uint8)
        place.copy(there, place.upload(sent))
        place.synchronize()
        assert np.array_equal(place.download(there), sent)
        stream = place.new_stream()
        with place.on(stream):
            place.copy(there, np.zeros(SIZE, np.uint8))
        stream.synchronize()
        assert not place.download(there).any()


@pytest.mark.parametrize("make", DEVICES)
@pytest.mark.parametrize("wrong", [(), (0,), (SIZE - 1,), (7, 8, 4095)])
def test_wrong_bytes_are_counted_everywhere(make, wrong):
    place = make()
    with place.use():
        contents, landing = Contents(place, 0, 4, SIZE), Landing(place, SIZE)
        place.copy(landing.at(SIZE), contents.of(2, SIZE))
        for at in wrong:
            landing.at(SIZE)[at] ^= 1
        place.synchronize()
        assert landing.wrong_bytes(contents.of(2, SIZE)) == len(wrong)
        assert landing.wrong_bytes(contents.of(3, SIZE)) > 0.9 * SIZE


def test_gpus_are_dealt_out_to_the_ranks(monkeypatch):
    monkeypatch.setattr(device, "_found", lambda: (3, lambda number: number))
    assert [select("cuda", rank) for rank in range(4)] == [0, 1, 2, 0]
    assert [select("cuda:2", rank) for rank in range(2)] == [2, 0]
    with pytest.raises(NoDevice, match="cuda:0 to cuda:2"):
        select("cuda:3")


def test_without_a_gpu_it_is_said_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NoDevice, match="CuPy: .*; PyTorch: .*nvidia-smi.*install .*use the device cpu"):
        select("cuda")
    ran = CliRunner().invoke(app, ["shot", "--device", "cuda", "--checkpoints", "2", "--size", "4KiB"])
    assert ran.exit_code == 2
    assert "--device" in ran.output and "NoDevice" in ran.output


def test_pytorch_stands_in_for_a_cupy_that_finds_no_gpu(monkeypatch):
    cuda = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setitem(
        sys.modules,
        "torch",
        types.SimpleNamespace(cuda=cuda, float32=0, add=0, zeros_like=0, count_nonzero=0),
    )
    chosen = select("cuda:1")
    assert isinstance(chosen, TorchGpu) and chosen.name == "cuda:1"


@pytest.mark.parametrize("make", GPUS)
def test_a_shot_on_a_gpu(make, monkeypatch, tmp_path):
    """The GPU's path through the command line, with ordinary memory in its place."""
    gpu = make()
    monkeypatch.setattr(device, "_found", lambda: (2, lambda number: gpu))
    monkeypatch.setattr(rates, "measure", some_rates)
    out = tmp_path / "shot.json"
    base = ["shot", "--device", "cuda", "--checkpoints", "33", "--size", "64KiB", "--interval", "1ms", "--verify"]
    caches = ["--device-cache", "256KiB", "--host-cache", "256KiB", "--dir", str(tmp_path)]
    ran = CliRunner().invoke(app, [*base, *caches, "--json", str(out)])
    assert ran.exit_code == 0, ran.output
    document = json.loads(out.read_text())
    assert document["checkpoint"]["bare_copy_s"] > 0 and document["restore"]["bare_copy_s"] > 0
    assert document["machine"]["before"]["device_copy_s"] == 1e-5
    assert document["verified"] == {"restores": 33, "wrong": 0, "wrong_bytes": 0}
    assert "device copy 10 µs" in ran.output and "a bare copy amid the traffic" in ran.output


def test_bare_copies_are_timed_every_sixteenth_iteration(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "_found", lambda: (1, lambda number: StandInGpu()))
    config = tiny_config(tmp_path, device="cuda", sizes=((4096,) * 33,), interval=0.001)
    (outcome,) = shot.run_all(shot.jobs(config), tight=False)
    assert len(outcome.bare_forward_s) == len(outcome.bare_backward_s) == 3
    assert min(outcome.slept_forward_s) >= 0.001, "they belong to the interval, not to the call"


@pytest.mark.parametrize("make", GPUS)
def test_a_gpus_bare_rates_are_measured(make, monkeypatch, tmp_path):
    gpu = make()
    monkeypatch.setattr(device, "_found", lambda: (1, lambda number: gpu))
    monkeypatch.setattr(copies, "SPAN", 1 << 20)
    measured = rates.measure(tiny_config(tmp_path, device="cuda", disk=0))
    assert set(measured.table()) == {"device_copy", "d2h", "h2d", "both"}
    assert measured.write is None and measured.copies.device_copy_busy_s > 0


def test_a_gpus_machine_has_its_links(tmp_path):
    config = tiny_config(tmp_path, device="cuda:1", host_cache=1 << 20)
    bare = some_rates(config).table()
    machine = model.machine(config, bare)
    assert machine.links["app>device"].bytes_per_s == bare["device_copy"] == pytest.approx((1 << 16) / 1e-5)
    assert machine.links["device>host"].bytes_per_s == machine.links["app>host"].bytes_per_s == bare["d2h"]
    assert machine.links["app>device"].group is None
    assert machine.gpu_groups["bus"] == bare["both"] and "bus" not in machine.groups, "each rank has a bus of its own"


def test_a_callers_own_copy_is_one_transfer(tmp_path):
    """As in a store: in pieces it would pay for a launch each."""
    config = tiny_config(tmp_path, device="cuda", sizes=((128 << 20,),), device_cache=256 << 20, disk=0)
    bare = {"device_copy": 1e12, "d2h": 5e10, "h2d": 5e10, "both": 1e11}
    copied = 128 * 2**20 / 1e12 + model.LAUNCH_S
    ran = sim.run(model.machine(config, bare), sim.Shot([128 << 20], interval=0.1))
    assert ran.checkpoint_blocked_s == pytest.approx(copied, rel=0.01)


def test_a_run_has_the_rates_of_its_links(tmp_path):
    config = tiny_config(tmp_path, device="cuda", host_cache=1 << 20)
    bare = model.machine(config, some_rates(config).table())
    moved = {"device>host": {"bytes": 3_000, "busy_s": 2.0}, "host>device": {"bytes": 0, "busy_s": 0.0}}
    ran = model.as_it_ran(bare, model.rates_of_run(moved, {"app>device": 7e9, "device>app": None}))
    assert ran.links["device>host"].bytes_per_s == 1500
    assert ran.links["device>host"].group is None and ran.links["device>host"].latency == 0, "its rate has both in it"
    assert ran.links["app>device"].bytes_per_s == 7e9
    assert ran.links["app>device"].latency == bare.links["app>device"].latency > 0
    for name in ("host>device", "device>app"):
        assert ran.links[name] == bare.links[name], "nothing was seen of it"


def test_the_simulator_is_judged_where_a_shot_repeats():
    def said(measured, predicted):
        return predicted_figures.verdict(measured, predicted)

    assert said([1.0, 1.1, 1.05], [1.2, 1.2, 1.2]) == "holds"
    assert said([1.0, 1.1, 1.05], [1.3, 1.3, 1.3]) == "DOES NOT HOLD"
    assert said([0.030, 0.031], [0.040, 0.040]) == "holds", "within 10 ms"
    assert said([1.0, 1.3], [5.0, 5.0]) == "shown: its spread" and said([1.0], [5.0]) == "shown: one run"
