"""Several ranks: torch.distributed.checkpoint over stores, and managers that agree. Two processes over gloo."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from torch_support import torch

import ebbtide
from ebbtide.torch import Manager, Reader, Writer

dcp = pytest.importorskip("torch.distributed.checkpoint")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

Failed = dcp.api.CheckpointException
RANK = Path(__file__).with_name("torch_rank.py")
SMALL = {"device_cache": "4MiB", "host_cache": "8MiB", "disk": "256MiB"}
WHOLE = torch.arange(24_000.0).reshape(120, 200)


def run(what: str, disk: Path, ends: int = 0) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(RANK), what, str(rank), str(disk / f"meet-{what}"), str(disk / "run")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            said = rank.communicate(timeout=180)[0]
            assert rank.returncode == ends, said
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_what_two_ranks_saved_is_loaded_by_two_otherwise_and_by_one(disk: Path) -> None:
    run("save", disk)
    run("load", disk)
    for step, given in ((3, 3), (4, 4), (5, None)):
        state = {
            "rows": torch.zeros(120, 200),
            "columns": torch.zeros(120, 200, dtype=torch.float64),
            "same": torch.zeros(120, 200),
            "half": torch.zeros(7, dtype=torch.bfloat16),
            "nothing": torch.empty(0),
            "count": {"step": 0},
        }
        with Reader(disk / "run", given) as reader:
            dcp.load(state, storage_reader=reader)
            assert reader.step == step
        shown = min(step, 4)
        assert torch.equal(state["rows"], WHOLE + shown) and torch.equal(state["columns"], (WHOLE - shown).double())
        assert torch.equal(state["same"], WHOLE * shown) and (state["half"] == shown).all()
        assert state["count"] == {"step": shown}


def test_a_step_that_is_written_anew_is_never_a_mix(disk: Path) -> None:
    """Rank 1 has written its new part when both are killed: the step is the old one still."""
    run("die_anew", disk, ends=-signal.SIGKILL)

    def value(step: int | None) -> float:
        state = {"rows": torch.zeros(120, 200)}
        with Reader(disk / "run", step) as reader:
            dcp.load(state, storage_reader=reader)
            assert reader.step == 3
        assert torch.equal(state["rows"] - state["rows"][0, 0], WHOLE)
        return float(state["rows"][0, 0])

    assert value(None) == value(3) == 10
    run("write_anew", disk)
    assert value(None) == value(3) == 30
    for rank in range(2):
        with ebbtide.open(disk / "run" / f"rank-{rank}", readonly=True) as store:
            assert [name[:6] for name in store.histories()] == ["dcp/3", "dcp/3/"][rank:], "what was replaced is gone"


def test_ranks_that_find_different_checkpoints_load_the_same(disk: Path) -> None:
    run("look_apart", disk)


def test_a_checkpoint_that_all_ranks_have_is_kept(disk: Path) -> None:
    run("keep_common", disk)


def test_managers_agree_on_the_newest_that_all_have(disk: Path) -> None:
    run("manage", disk)
    with pytest.raises(ebbtide.InvalidArgument, match="written by 2 ranks, and this job has 1"):
        Manager(disk / "run")


def test_one_rank_and_an_open_store(disk: Path) -> None:
    model = torch.nn.Linear(4, 3)
    other = torch.nn.Linear(4, 3)
    with warnings.catch_warnings(), ebbtide.open(disk / "one", durability="process", **SMALL) as store:
        warnings.simplefilter("ignore")  # of torch: there is no process group
        writer = Writer(store, 7)
        dcp.save(model.state_dict(), storage_writer=writer)
        state = other.state_dict()
        dcp.load(state, storage_reader=Reader(store))
        assert torch.equal(other.weight, model.weight) and torch.equal(other.bias, model.bias)
        with pytest.raises(Failed, match="has no checkpoint of step 8"):
            dcp.load(state, storage_reader=Reader(store, 8))
        writer.drop(7)
        assert store.histories() == []
        with pytest.raises(Failed, match="has no checkpoint of torch.distributed.checkpoint"):
            dcp.load(state, storage_reader=Reader(store))


def test_a_reader_that_is_used_again_finds_the_newest_again(disk: Path) -> None:
    state = {"x": torch.zeros(3)}
    with Reader(disk / "dcp") as reader, Writer(disk / "dcp", **SMALL) as writer:
        for step in (3, 5):
            dcp.save({"x": torch.full((3,), float(step))}, checkpoint_id=str(step), storage_writer=writer)
            dcp.load(state, storage_reader=reader)
            assert reader.step == step and (state["x"] == step).all()
        dcp.load(state, checkpoint_id="3", storage_reader=reader)
        assert reader.step == 3 and (state["x"] == 3).all()


def test_what_cannot_be_stored_is_refused_by_its_name(disk: Path) -> None:
    turned = torch.tensor([1 + 2j, 3 - 4j]).conj()
    state = {"x": torch.zeros(2, dtype=turned.dtype)}
    with Writer(disk / "dcp", **SMALL) as writer:
        dcp.save({"x": turned}, checkpoint_id="0", storage_writer=writer)
        for bad, words in (
            (torch.eye(2).to_sparse(), "model.w is a tensor without plain memory of its own .*to_dense"),
            (torch.ones(2, device="meta"), "model.w is on the device 'meta'"),
        ):
            with pytest.raises(dcp.api.CheckpointException, match=words):
                dcp.save({"model": {"w": bad}}, checkpoint_id="1", storage_writer=writer)
    with Reader(disk / "dcp") as reader:
        dcp.load(state, storage_reader=reader)
        assert reader.step == 0 and torch.equal(state["x"], turned.resolve_conj())


def test_refusals(disk: Path) -> None:
    with ebbtide.open(disk, **SMALL) as store, pytest.raises(Failed, match="the store is ephemeral"):
        dcp.save({"a": torch.zeros(1)}, storage_writer=Writer(store), no_dist=True)
    with pytest.raises(ebbtide.InvalidArgument, match="checkpoint_id='x' is not valid: expected a step"):
        Writer(disk).reset("x")
    assert Writer.validate_checkpoint_id("12") and not Writer.validate_checkpoint_id("/tmp/x")
