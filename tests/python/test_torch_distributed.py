"""Several ranks: torch.distributed.checkpoint over stores, and managers that agree. Two processes over gloo."""

from __future__ import annotations

import dataclasses
import pickle
import random
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import commands_support
import numpy as np
import pytest
from torch_support import torch

import ebbtide
from ebbtide.torch import Manager, Reader, Writer, _dcp

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


def test_what_two_ranks_offload_of_a_sharded_model_gives_the_same_gradients(disk: Path) -> None:
    run("shard_and_offload", disk)


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


def drawn_sequence(seed: int, disk: Path) -> None:
    """Saves in every mode, against a dictionary: one that said ok loads exactly, and no other takes its place.

    Of two asynchronous saves of one step the threads may begin in any order, and the one that ends last is kept.
    """
    rng = random.Random(seed)
    caching, shapes_change = rng.random() < 0.5, rng.random() < 0.3
    saved: dict[int, set[int]] = {}  # by step, the value of the last save that said ok; of those that may be the last
    begun: list[tuple[int, int, set[int], Any]] = []  # step, value, the values of that step under way, the save

    def state(value: int) -> dict[str, Any]:
        size = 5 + value % 3 if shapes_change else 5
        return {"x": torch.full((size, 4), float(value)), "model": {"y": torch.arange(3) + value}, "step": value}

    def planner() -> Any:
        return dcp.DefaultSavePlanner(enable_plan_caching=caching)

    def end_one() -> None:
        step, value, beside, future = begun.pop(0)
        if future.exception() is None:
            saved[step] = {value} | (saved.get(step, set()) & beside)

    def loads(step: int, value: int) -> bool:
        found = state(-value) | {"x": torch.zeros_like(state(value)["x"])}
        try:
            dcp.load(found, checkpoint_id=str(step), storage_reader=reader, no_dist=True)
        except dcp.api.CheckpointException:  # another value has another shape
            return False
        right = (found["x"] == value).all() and torch.equal(found["model"]["y"], torch.arange(3) + value)
        return found["step"] == value and bool(right)

    with Writer(disk / f"dcp-{seed}", durability="process", **SMALL) as writer:
        for value in range(12):
            step = rng.randrange(6)
            now = {"checkpoint_id": str(step), "storage_writer": writer, "planner": planner(), "no_dist": True}
            what = rng.choice(["save", "async", "async", "end", "drop"])
            if what == "async":
                beside = {one for of, one, _, future in begun if of == step and not future.done()}
                begun.append((step, value, beside, dcp.async_save(state(value), **now)))
            elif what == "save" and step in {one for one, *_ in begun}:  # refused, unless that one has just ended
                while begun:
                    end_one()
            elif what == "save":
                try:
                    dcp.save(state(value), **now)
                    saved[step] = {value}
                except Failed:
                    assert caching and (begun or shapes_change), "nothing was in its way"
            elif what == "drop" and step in saved and not begun:
                writer.drop(step)
                del saved[step]
            elif begun:
                end_one()
        while begun:
            end_one()
    with Reader(disk / f"dcp-{seed}") as reader:
        for step, values in saved.items():
            assert any(loads(step, value) for value in values), (step, values)
        for step in set(range(6)) - saved.keys():
            with pytest.raises(Failed, match=f"has no checkpoint of step {step}|is not there|not a store"):
                dcp.load(state(0), checkpoint_id=str(step), storage_reader=reader, no_dist=True)


@pytest.fixture
def no_cached_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "_cached_save_plan",
        "_cached_final_save_plan",
        "_cached_all_plans",
        "_cached_global_plan",
        "_cached_metadata",
    ):
        monkeypatch.setattr(dcp.planner.SavePlanner, name, {})  # torch keeps the plans of all saves of a process


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(50))
def test_a_save_that_said_ok_loads_exactly(seed: int, disk: Path, no_cached_plans: None) -> None:
    drawn_sequence(seed, disk)


def test_a_step_that_is_being_saved_is_refused_and_stays(disk: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Waits(dcp.DefaultSavePlanner):
        def resolve_data(self, item: Any) -> Any:
            begun.set()
            assert go_on.wait(60)
            return super().resolve_data(item)

    with Writer(disk / "dcp", durability="process", **SMALL) as writer:
        save = {"checkpoint_id": "3", "storage_writer": writer, "no_dist": True}
        first = dcp.async_save({"x": torch.ones(4)}, planner=Waits(), **save)
        assert begun.wait(60)
        with pytest.raises(Failed, match="step 3 is being saved: wait for that save before the next of this step"):
            dcp.save({"x": torch.zeros(4)}, **save)
        dcp.save({"x": torch.full((4,), 5.0)}, **save | {"checkpoint_id": "5"})  # another step passes it
        go_on.set()
        first.result()
        for step, value in ((3, 1), (5, 5)):
            found = {"x": torch.zeros(4)}
            dcp.load(found, checkpoint_id=str(step), storage_reader=Reader(disk / "dcp"), no_dist=True)
            assert (found["x"] == value).all()


def test_metadata_of_another_save_is_refused_and_its_step_is_free(disk: Path) -> None:
    """Planners that cache share metadata, so a save may get that of another one, with other shapes."""

    class Other(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans: Any) -> Any:
            plans, metadata = super().create_global_plan(all_plans)
            chunks = metadata.state_dict_metadata["x"].chunks
            chunks[0] = dataclasses.replace(chunks[0], sizes=torch.Size([5]))
            return plans, metadata

    with Writer(disk / "dcp", durability="process", **SMALL) as writer:
        save = {"checkpoint_id": "3", "storage_writer": writer, "no_dist": True}
        with pytest.raises(Failed, match="no rank wrote x as it is in the metadata"):
            dcp.save({"x": torch.ones(4)}, planner=Other(), **save)
        dcp.async_save({"x": torch.ones(4)}, **save).result()


def test_of_two_saves_of_a_step_the_one_that_ends_last_is_kept(disk: Path) -> None:
    """The second begins, and says ok, before the first has come as far as the Writer, which thus cannot refuse it."""
    begun, go_on = threading.Event(), threading.Event()

    class Waits(dcp.DefaultSavePlanner):
        def set_up_planner(self, *args: Any, **kwargs: Any) -> None:
            begun.set()
            assert go_on.wait(60)
            super().set_up_planner(*args, **kwargs)

    with Writer(disk / "dcp", durability="process", **SMALL) as writer:
        save = {"checkpoint_id": "3", "storage_writer": writer, "no_dist": True}
        first = dcp.async_save({"x": torch.ones(4)}, planner=Waits(), **save)
        assert begun.wait(60)
        dcp.async_save({"x": torch.full((4,), 2.0)}, **save).result()
        go_on.set()
        first.result()
    found = {"x": torch.zeros(4)}
    dcp.load(found, storage_reader=Reader(disk / "dcp"), no_dist=True)
    assert (found["x"] == 1).all()


def test_a_step_whose_save_failed_without_the_writers_knowledge_is_saved_again(disk: Path) -> None:
    class Fails(dcp.DefaultSavePlanner):
        def create_global_plan(self, all_plans: Any) -> Any:
            raise RuntimeError("out of luck")

    with Writer(disk / "dcp", durability="process", **SMALL) as writer:
        save = {"checkpoint_id": "3", "storage_writer": writer, "no_dist": True}
        with pytest.raises(Failed, match="out of luck"):
            dcp.save({"x": torch.ones(4)}, planner=Fails(), **save)
        with pytest.raises(Failed, match=r"on the same thread, or call drop\(3\) before"):
            dcp.async_save({"x": torch.ones(4)}, **save).result()
        writer.drop(3)
        dcp.async_save({"x": torch.ones(4)}, **save).result()
        with pytest.raises(Failed, match="out of luck"):
            dcp.save({"x": torch.ones(4)}, planner=Fails(), **save)
        dcp.save({"x": torch.full((4,), 2.0)}, **save)
    found = {"x": torch.zeros(4)}
    dcp.load(found, storage_reader=Reader(disk / "dcp"), no_dist=True)
    assert (found["x"] == 2).all()


@pytest.mark.parametrize("when", ["resolve_data", "finish"])
def test_a_step_that_is_dropped_while_it_is_saved_is_not_there(when: str, disk: Path) -> None:
    class Drops(dcp.DefaultSavePlanner):
        def resolve_data(self, item: Any) -> Any:
            if when == "resolve_data":
                writer.drop(3)
            return super().resolve_data(item)

    class DropsAtItsEnd(Writer):
        def finish(self, metadata: Any, results: Any) -> None:
            if when == "finish":
                writer.drop(3)
            super().finish(metadata, results)

    with DropsAtItsEnd(disk / "dcp", durability="process", **SMALL) as writer:
        save = {"checkpoint_id": "3", "storage_writer": writer, "no_dist": True}
        with pytest.raises(Failed, match="the step was dropped while it was saved"):
            dcp.save({"x": torch.ones(4), "y": torch.ones(4)}, planner=Drops(), **save)
        with pytest.raises(Failed, match="no checkpoint"):
            dcp.load({"x": torch.zeros(4)}, storage_reader=Reader(disk / "dcp"), no_dist=True)


def test_a_save_that_begins_while_another_cleans_up_is_kept(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second save has written its parts, and not its metadata, when the first one lists what may go."""
    listed, begun, wrote, go_on = _dcp._writes, [], threading.Event(), threading.Event()

    class Waits(Writer):
        def finish(self, metadata: Any, results: Any) -> None:
            if begun:
                wrote.set()
                assert go_on.wait(60)
            elif writer._steps == {3, 5}:
                monkeypatch.setattr(_dcp, "_writes", begins_another)
            super().finish(metadata, results)

    def begins_another(store: ebbtide.Store) -> Any:
        monkeypatch.setattr(_dcp, "_writes", listed)
        begun.append(None)
        begun.append(dcp.async_save({"x": torch.full((4,), 3.0)}, checkpoint_id="3", **save))
        assert wrote.wait(60)
        return listed(store)

    with Waits(disk / "dcp", 3, durability="process", **SMALL) as writer:
        save = {"storage_writer": writer, "no_dist": True}
        dcp.save({"x": torch.zeros(4)}, **save)
        dcp.save({"x": torch.ones(4)}, checkpoint_id="5", **save)
        go_on.set()
        begun[1].result()
    for step in (3, 5):
        found = {"x": torch.zeros(4)}
        dcp.load(found, checkpoint_id=str(step), storage_reader=Reader(disk / "dcp"), no_dist=True)
        assert (found["x"] == (3 if step == 3 else 1)).all()


def test_a_type_that_a_cached_plan_does_not_have_is_refused(disk: Path, no_cached_plans: None) -> None:
    """DCP compares shapes to know whether a plan changed; the metadata would say float32 of float64."""
    with Writer(disk / "dcp", durability="process", **SMALL) as writer:

        def save(step: int, dtype: torch.dtype) -> None:
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            state = {"x": torch.ones(4, dtype=dtype)}
            dcp.save(state, checkpoint_id=str(step), storage_writer=writer, planner=planner, no_dist=True)

        save(0, torch.float32)
        with pytest.raises(Failed, match=r"x is torch\.float64, and this save's plan has torch\.float32"):
            save(1, torch.float64)
        save(2, torch.float32)
    with pytest.raises(Failed, match="has no checkpoint of step 1"):
        dcp.load({"x": torch.zeros(4)}, checkpoint_id="1", storage_reader=Reader(disk / "dcp"), no_dist=True)


def test_parts_of_which_the_metadata_gives_no_number_are_kept(disk: Path) -> None:
    """All ranks of a write once had the coordinator's number. Rank 1 drops what is not of that write, and no more."""
    (disk / "run").mkdir()
    with ebbtide.open(disk / "run" / "rank-0", durability="process", **SMALL) as store:
        known = metadata_of(2)
        known.storage_data = {index: (rank, item) for index, (rank, _, item) in known.storage_data.items()}
        store.history("dcp/1").checkpoint(7, np.frombuffer(pickle.dumps(known), np.uint8))
    with ebbtide.open(disk / "run" / "rank-1", durability="process", **SMALL) as store:
        for number in (7, 8):
            store.history(f"dcp/1/{number}").checkpoint(0, torch.ones(1, 8))
    with Writer(disk / "run", 1, durability="process", **SMALL) as writer:
        writer.set_up_storage_writer(False, rank=1)
        writer.write_data(dcp.SavePlan([]), dcp.DefaultSavePlanner())
    with ebbtide.open(disk / "run" / "rank-1", readonly=True) as store:
        assert store.histories() == ["dcp/1/7"]


def test_a_reader_needs_no_more_for_many_ranks(disk: Path) -> None:
    """64 ranks saved: of their stores one at a time is open, under a limit of 64 descriptors."""
    ranks = 64
    (disk / "run").mkdir()
    for rank in range(ranks):
        with ebbtide.open(disk / "run" / f"rank-{rank}", durability="process", **SMALL) as store:
            store.history("dcp/1/7").checkpoint(0, torch.full((1, 8), float(rank)))
            if rank == 0:
                store.history("dcp/1").checkpoint(9, np.frombuffer(pickle.dumps(metadata_of(ranks)), np.uint8))
    program = """
import resource, sys, torch, ebbtide.torch, torch.distributed.checkpoint as dcp
state = {"x": torch.zeros(64, 8)}
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with ebbtide.torch.Reader(sys.argv[1]) as reader:
    dcp.load(state, storage_reader=reader, no_dist=True)
assert (state["x"] == torch.arange(64.0)[:, None]).all()
"""
    done = subprocess.run([sys.executable, "-c", program, disk / "run"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_disk_that_is_full_for_a_while_costs_the_saves_of_that_while(disk: Path) -> None:
    program = """
import resource, signal, sys, torch, ebbtide.torch, torch.distributed.checkpoint as dcp
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = ebbtide.torch.Writer(sys.argv[1], device_cache="4MiB", host_cache="8MiB", disk="256MiB")
def save(step):
    state = {"x": torch.full((6 << 18,), float(step))}
    dcp.save(state, checkpoint_id=str(step), storage_writer=writer, no_dist=True)
def limit_files(most):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
save(1)
limit_files(7 << 20)
for step in (2, 3):
    try:
        save(step)
    except dcp.api.CheckpointException as error:
        assert "IOFailed" in str(error), error
    else:
        sys.exit("the disk was not full")
limit_files(resource.RLIM_INFINITY)
save(4)
save(2)
writer.close()
"""
    done = subprocess.run([sys.executable, "-c", program, disk / "dcp"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with Reader(disk / "dcp") as reader:
        for step in (1, 2, 4):
            found = {"x": torch.zeros(6 << 18)}
            dcp.load(found, checkpoint_id=str(step), storage_reader=reader, no_dist=True)
            assert (found["x"] == step).all()


def metadata_of(ranks: int) -> Any:
    """What DCP would know of a tensor of which each rank has a row."""
    made = dcp.metadata
    properties = made.TensorProperties(dtype=torch.float32)
    chunks = [made.ChunkStorageMetadata(torch.Size([rank, 0]), torch.Size([1, 8])) for rank in range(ranks)]
    places = {made.MetadataIndex("x", chunk.offsets): (rank, 7, 0) for rank, chunk in enumerate(chunks)}
    tensor = made.TensorStorageMetadata(properties, torch.Size([ranks, 8]), chunks)
    return made.Metadata({"x": tensor}, planner_data={"x": ("x",)}, storage_data=places)


def test_a_writer_and_a_reader_say_why_they_cannot_be_pickled(disk: Path) -> None:
    for one in (Writer(disk / "dcp"), Reader(disk / "dcp")):
        with pytest.raises(TypeError, match=r"cannot be pickled: .* use AsyncCheckpointerType\.THREAD"):
            pickle.dumps(one)


def test_what_thins_out_checkpoints_takes_whole_steps_or_none(disk: Path) -> None:
    """A step is many versions, which keep_last would drop but for the last."""

    def state(value: int) -> dict[str, Any]:
        return {name: torch.full((50,), float(value)) for name in "abc"} | {"step": value}

    def left(where: Path) -> list[int]:
        found = []
        for step in range(6):
            there = state(-1)
            try:
                dcp.load(there, checkpoint_id=str(step), storage_reader=Reader(where), no_dist=True)
            except Failed:
                continue
            assert all(torch.equal(there[name], state(step)[name]) for name in "abc") and there["step"] == step
            found.append(step)
        return found

    with pytest.raises(ebbtide.InvalidArgument, match=r"keep_last=2 would drop parts of checkpoints.* drop\(step\)"):
        Writer(disk / "run", keep_last=2)
    with ebbtide.open(disk / "own", durability="process", keep_last=1, **SMALL) as store:
        with pytest.raises(Failed, match="1 of 4 parts are left: the store was opened with keep_last"):
            dcp.save(state(0), storage_writer=Writer(store), no_dist=True)
    with Writer(disk / "run", durability="process", **SMALL) as writer:
        for step in range(6):
            dcp.save(state(step), checkpoint_id=str(step), storage_writer=writer, no_dist=True)
    whole = disk / "run" / "rank-0"
    with ebbtide.open(whole, durability="process", **SMALL) as store:
        store.history("dcp/4").drop()  # as a job leaves it that was killed before rank 0 was done
        for version in range(3):
            store.checkpoint(version, np.ones(8))
    gc = ["gc", disk / "run", "--keep-last", "2", "--keep-every", "2"]
    for _ in range(2):  # 5 and 3 are the newest whole ones, 2 and 0 are multiples
        assert commands_support.run(*gc).code == 0
        with ebbtide.open(whole, readonly=True) as store:
            steps = {int(name.split("/")[1]) for name in store.histories() if name.startswith("dcp/")}
            assert steps == {0, 2, 3, 4, 5} and store.versions() == [0, 1, 2]
    assert left(disk / "run") == [0, 2, 3, 5]


def test_refusals(disk: Path) -> None:
    with ebbtide.open(disk, **SMALL) as store, pytest.raises(Failed, match="the store is ephemeral"):
        dcp.save({"a": torch.zeros(1)}, storage_writer=Writer(store), no_dist=True)
    with pytest.raises(ebbtide.InvalidArgument, match="checkpoint_id='x' is not valid: expected a step"):
        Writer(disk).reset("x")
    assert Writer.validate_checkpoint_id("12") and not Writer.validate_checkpoint_id("/tmp/x")


# In a process of its own, which has imported nothing.
IMPORTED = """
import sys
import torch
before = set(sys.modules)
import ebbtide.torch
new = {name for name in set(sys.modules) - before if not name.startswith("ebbtide")}
assert "torch.distributed.checkpoint" not in sys.modules and "torch._dynamo" not in sys.modules
assert len(new) < 50, sorted(new)
from ebbtide.torch import Reader, Writer
assert issubclass(Writer, torch.distributed.checkpoint.StorageWriter) and ebbtide.torch.Reader is Reader
assert not hasattr(ebbtide.torch, "Other")
"""


def test_little_is_imported_before_it_is_needed() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
