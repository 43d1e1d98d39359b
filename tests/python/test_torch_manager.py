"""A training run that is killed ends with the bits of one that is not, whatever is found when it resumes."""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_support import resident
from torch_support import torch
from torch_training import train

import ebbtide
from ebbtide._training import retention as _retention
from ebbtide.torch import Manager, _rng

TRAINING = Path(__file__).with_name("torch_training.py")
SMALL = {"device_cache": "4MiB", "host_cache": "8MiB", "disk": "256MiB"}


def manager(disk: Path, **options: Any) -> Manager:
    return Manager(disk / "run", **(SMALL | options))


def test_a_run_that_is_killed_twice_ends_with_the_same_bits(disk: Path) -> None:
    steps, rng = 40, random.Random(11)
    whole = train(str(disk / "whole"), steps)
    began = []
    for life in range(3):
        command = [sys.executable, str(TRAINING), str(disk / "killed"), str(steps), str(disk / "result"), "0.05"]
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert program.stdout is not None
        began.append(int(program.stdout.readline()))
        if life < 2:
            assert program.stdout.readline() == "durable\n"
            time.sleep(0.3 * rng.random())
            program.send_signal(signal.SIGKILL)
            program.wait()
        else:
            assert program.wait(120) == 0
    assert began[0] == 0 < began[1] < began[2], began
    assert torch.equal(torch.load(disk / "result"), whole)


def test_the_states_of_generators_that_an_earlier_version_saved_are_restored() -> None:
    states = _rng.states() | {"python": random.getstate()}  # its words were numbers, not an array
    expected = random.random()
    _rng.restore(states)
    assert random.random() == expected


def test_resume_falls_back_past_damage_with_a_warning(disk: Path) -> None:
    tensor = torch.zeros(1000)
    with manager(disk, keep_last=0) as m:
        m.resume(t=tensor)
        for step in range(4):
            tensor.fill_(step)
            m.step(step)
    seen = ebbtide._core.Inspection.of(disk / "run")
    segment = next((disk / "run").glob("segment-*"))
    data = bytearray(segment.read_bytes())
    for step in (2, 3):  # flip a byte of the payload
        at = data.index(np.full(1000, step, "<f4").tobytes())
        data[at + 50] ^= 1
    segment.write_bytes(data)
    assert len(seen.records()) == 4
    with manager(disk, keep_last=0) as m:
        with pytest.warns(ebbtide.DamagedWarning, match=r"step [23] is skipped: .*segment-"):
            assert m.resume(t=tensor) == 2
        assert (tensor == 1).all()
        m.step(2)
        m.step(3)
    with manager(disk) as m, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert m.resume(t=tensor) == 4 and m.history.versions() == [0, 1, 2, 3]


def test_where_nothing_can_be_read_the_run_begins_anew_and_drops_nothing(disk: Path) -> None:
    tensor = torch.ones(1000)
    with manager(disk) as m:
        m.step(5, t=tensor)
    segment = next((disk / "run").glob("segment-*"))
    data = bytearray(segment.read_bytes())
    data[data.index(tensor.numpy().tobytes())] ^= 1
    segment.write_bytes(data)
    with manager(disk, keep_last=1) as m:
        with pytest.warns(ebbtide.DamagedWarning, match="none of 1 checkpoints can be read: the run begins anew"):
            assert m.resume(t=tensor) == 0
        for step in range(5):
            m.step(step)
            m.wait()
        assert m.history.versions() == [4]  # a version that turned out to be damaged is not listed
        m.step(5)
        m.wait()
        assert m.history.versions() == [5]
    with manager(disk) as m:
        assert m.resume(t=tensor) == 6


def test_another_model_is_refused_by_the_leafs_name_and_nothing_is_loaded(disk: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    with manager(disk) as m:
        assert m.resume(model=model, opt=opt) == 0
        m.step(0, extra={"a": (1, 2)})

    def refused(words: str, **objects: Any) -> None:
        first = next(iter(objects.values()))
        before = [p.clone() for p in first.parameters()] if isinstance(first, torch.nn.Module) else []
        with manager(disk) as m, pytest.raises((ebbtide.SizeMismatch, ebbtide.InvalidArgument), match=words):
            m.resume(**objects)
        assert all(torch.equal(p, q) for p, q in zip(before, first.parameters() if before else ()))

    deeper = torch.nn.Sequential(*model, torch.nn.Linear(1, 1))
    wider = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 1))
    refused(r"^model\['2.weight'\] is not in the checkpoint of step 0", model=deeper)
    refused(r"^model has no '1.weight', which the checkpoint of step 0 has", model=torch.nn.Sequential(model[0]))
    refused(r"^model\['0.weight'\] has the shape \(4, 2\); in .* step 0 it has \(3, 2\)", model=wider)
    other = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    refused(
        r"^opt\['param_groups'\]\[0\] has 2 parameters; .* it has 4",
        model=other,
        opt=torch.optim.SGD(model[0].parameters(), 1),
    )
    refused(r"^sched is not in the checkpoint of step 0, which has model, opt, extra", model=other, sched=opt)
    refused(r"^extra cannot be loaded in place", extra={"a": 1})
    with manager(disk) as m:
        assert m.resume(model=other) == 1
        assert m.values["extra"] == {"a": (1, 2)} and list(m.values) == ["opt", "extra"]
        assert all(map(torch.equal, other.parameters(), model.parameters()))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.random.Generator(np.random.MT19937(0)), r"is a MT19937; the checkpoint of step 0 has a PCG64 there"),
        (torch.Generator(), r"is a generator of PyTorch; the checkpoint of step 0 has no state of one there"),
        (torch.zeros(3, dtype=torch.int8), r"is a tensor; the checkpoint of step 0 has a dict there"),
    ],
    ids=["another generator", "PyTorch's", "tensor"],
)
def test_another_kind_than_numpys_generator_is_refused_before_anything_is_loaded(
    disk: Path, given: Any, words: str
) -> None:
    with manager(disk) as m:
        m.save(0, x=torch.ones(2), odd=np.random.default_rng(0))
    x = torch.zeros(2)
    with manager(disk) as m, pytest.raises(ebbtide.SizeMismatch, match=f"^odd {words}"):
        m.resume(x=x, odd=given)
    assert (x == 0).all()


def test_tensors_that_cannot_take_what_was_saved_are_refused(disk: Path) -> None:
    with manager(disk) as m:
        m.save(0, x=torch.full((2,), 1.5), torchs=torch.Generator(), model=torch.nn.Linear(1, 1))
    for name, given, words in (
        ("x", torch.zeros(2, dtype=torch.int8), r"x is of int8, which cannot take the float32 of step 0"),
        ("x", torch.zeros(2, device="meta"), "x is a meta tensor, without memory to load into"),
        ("model", torch.nn.Linear(1, 1, device="meta"), r"model\['weight'\] is a meta tensor"),
        ("x", torch.Generator(), "x is a generator of PyTorch; the checkpoint of step 0 has no state of one there"),
        ("x", np.random.default_rng(), "x is a PCG64; the checkpoint of step 0 has a Tensor there"),
    ):
        with manager(disk) as m, pytest.raises(ebbtide.SizeMismatch, match=f"^{words}"):
            m.resume(**{name: given})
    half = torch.zeros(2, dtype=torch.bfloat16)
    with manager(disk) as m:
        assert m.resume(x=half) == 1 and (half == 1.5).all()


def test_what_is_kept(disk: Path) -> None:
    losses = {step: abs(step - 13.5) for step in range(30)}
    with manager(disk, every=2, keep_last=2, keep_every=10, best=("loss", 3)) as m:
        for step in range(30):
            done = m.step(step, loss=losses[step])
            assert (done is None) == (step % 2 == 1)
            if done:
                done.wait("storage")
        m.wait()
        assert sorted(m._metrics) == m.history.versions()
    with manager(disk) as m:
        assert m.history.versions() == [0, 10, 12, 14, 16, 20, 26, 28]
    with pytest.raises(ebbtide.InvalidArgument, match="^loss is missing"), manager(disk, best=("loss", 1)) as m:
        m.step(100)
    for bad in ("low", None, 1j, torch.ones(2), 10**400):
        with (
            pytest.raises(ebbtide.InvalidArgument, match="^loss is .*: expected a number"),
            manager(disk, best=("loss", 1)) as m,
        ):
            m.step(100, loss=bad)


def test_the_best_of_earlier_processes_are_known(disk: Path) -> None:
    for start in (0, 5):
        with manager(disk, keep_last=1, best=("acc", 2, "max")) as m:
            assert m.resume() == start
            for step in range(start, start + 5):
                m.step(step, acc=[0.1, 0.9, 0.2, float("nan"), 0.3, 0.4, 0.8, 0.1, 0.2, 0.3][step])
    with manager(disk) as m:
        assert m.history.versions() == [1, 6, 9]


def test_retention_keeps_what_each_rule_asks_for() -> None:
    rng = random.Random(7)
    for _ in range(300):
        durable = sorted(rng.sample(range(60), rng.randrange(1, 20)))
        metrics = {v: rng.choice([rng.random(), float("nan"), 0.5]) for v in durable if rng.random() < 0.9}
        last, every, count = rng.randrange(1, 4), rng.choice([0, 5, 10]), rng.randrange(1, 4)
        best = rng.choice([None, _retention.Best("loss", count), _retention.Best("loss", count, "max")])
        keep = _retention.kept(durable, metrics, keep_last=last, keep_every=every, best=best)
        assert set(durable[-last:]) <= keep <= set(durable)
        assert all(v in keep for v in durable if every and v % every == 0)
        if best is not None:
            gone = [best.rank(metrics[v]) for v in durable if v in metrics and v not in keep]
            better = [best.rank(metrics[v]) for v in keep if v in metrics]
            assert all(sum(b <= g for b in better) >= count for g in gone)


def test_resume_at_an_older_step_takes_another_way(disk: Path) -> None:
    with manager(disk, keep_last=0) as m:
        for step in range(5):
            m.step(step, way="first")
    with manager(disk, keep_last=0) as m:
        assert m.resume(at_most=2) == 3 and m.values == {"way": "first"}
        assert m.history.versions() == [0, 1, 2, 3, 4]
        m.step(3, way="second").wait("storage")
    with manager(disk) as m:
        assert m.resume() == 4 and m.values == {"way": "second"}


def test_resume_before_the_oldest_step_begins_another_way(disk: Path) -> None:
    with manager(disk, keep_last=3) as m:
        for step in range(9):
            m.step(step, way="first")
    with manager(disk, keep_last=3) as m:
        assert m.resume(at_most=2) == 0
        assert m.history.versions() == [6, 7, 8]
        m.step(0, way="second").wait("storage")
        m.step(1, way="second").wait("storage")
    with manager(disk) as m:
        assert m.resume() == 2 and m.values == {"way": "second"}


def test_a_run_that_does_not_resume_says_once_what_is_there_and_drops_its_own(disk: Path) -> None:
    with manager(disk) as m:
        for step in (70, 80, 90):
            m.step(step, run="first")
    with manager(disk, keep_last=2) as m:
        words = r"^history 'training' has checkpoints of an earlier run up to step 90, .* step 0 without resume\(\)"
        with pytest.warns(RuntimeWarning, match=words) as said:
            for step in range(0, 81, 20):
                m.step(step, run="second")
                m.wait()
        assert len(said) == 1 and m.history.versions() == [60, 70, 80, 90]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with manager(disk) as m:
            assert m.resume(at_most=80) == 81 and m.values == {"run": "second"}
            m.step(81)  # one that resumed has nothing to say
        with manager(disk) as m:
            assert m.history.versions() == [70, 80, 81]
            m.step(200)  # nor has one whose steps are higher


@contextlib.contextmanager
def failing() -> Iterator[None]:
    """What is written to files fails meanwhile, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def restored(m: Manager) -> None:
    with contextlib.suppress(ebbtide.UnknownVersion):  # where the save itself found that it had failed
        m.history.restore(2, keep=True)


AFTER: dict[str, Callable[[Manager, Any], Any]] = {
    "a save": lambda m, tensor: m.step(3),
    "wait": lambda m, tensor: m.wait(),
    "resume": lambda m, tensor: m.resume(t=tensor),
    "restore": lambda m, tensor: restored(m),
    "another history": lambda m, tensor: m.store.history("other").checkpoint(0, [np.zeros(3)]).wait("storage"),
    "a drop": lambda m, tensor: m.history.drop(1),
    "nothing": lambda m, tensor: None,
}


@pytest.mark.parametrize("after", AFTER)
def test_steps_that_could_not_be_written_are_said_once_and_are_stored_or_dropped(disk: Path, after: str) -> None:
    tensor = torch.full((200_000,), 0.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with manager(disk, keep_last=0) as m:
            m.resume(t=tensor)
            m.step(0).wait("storage")
            with failing():
                for step in (1, 2):
                    tensor.fill_(step)
                    with pytest.raises((ebbtide.IOFailed, ebbtide.NoSpace), match=f"^version {step} of"):
                        m.step(step).wait("storage")
            AFTER[after](m, tensor)
            for step in range(4, 8):
                tensor.fill_(step)
                m.step(step)
            m.wait()
    told = [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]
    assert all(sum(f"the checkpoint of step {step} " in text for text in told) <= 1 for step in range(8)), told
    with manager(disk) as m:
        found = m.history.versions()
        for step in (1, 2):
            dropped = any(f"the checkpoint of step {step} is not durable, and was dropped" in text for text in told)
            assert (step not in found) == (dropped or (after, step) == ("a drop", 1)), (found, told)
        assert {0, 4, 5, 6, 7} <= set(found)
        for step in found:
            assert m.resume(t=tensor, at_most=step) == step + 1 and (tensor == (2 if step == 3 else step)).all()


def test_a_run_that_was_killed_before_anything_was_durable_says_so(disk: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with manager(disk) as m:
            assert m.resume() == 0  # a new one has nothing to say
        with pytest.warns(RuntimeWarning, match="run is the store of an earlier .* ended before any .* durable"):
            with manager(disk) as m:
                assert m.resume() == 0
                m.step(0)
        with manager(disk) as m:
            assert m.resume() == 1


def test_random_numbers_go_on_unless_they_are_left_out(disk: Path) -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    with manager(disk) as m:
        m.step(0)
    expected = draw()
    draw()
    with manager(disk) as m:
        m.resume()
    assert draw() == expected
    with manager(disk, rng=False) as m:
        m.resume()
    assert draw() != expected


def test_stores_of_another_kind_and_bad_arguments(disk: Path) -> None:
    with ebbtide.open(disk, **SMALL) as store, pytest.raises(ebbtide.InvalidArgument, match="the store is ephemeral"):
        Manager(store)
    with ebbtide.open(disk / "other", durability="process", **SMALL) as store:
        store.history("training").checkpoint(0, [np.zeros(3)])
        with Manager(store) as m, pytest.raises(ebbtide.InvalidArgument, match="not written by ebbtide.torch"):
            m.resume()
        assert store.versions("training") == [0]  # still open
        with pytest.raises(ebbtide.InvalidArgument, match="disk: an open store has its options"):
            Manager(store, disk="1GiB")
    for bad in ({"every": 0}, {"keep_last": -1}, {"keep_every": 1.5}, {"best": "loss"}, {"best": ("loss", 0)}):
        with pytest.raises(ebbtide.InvalidArgument, match=f"^{next(iter(bad))}="):
            manager(disk, **bad)
    (disk / "several" / "rank-0-of-2").mkdir(parents=True)
    with pytest.raises(ebbtide.InvalidArgument, match="written by 2 ranks, and this job has 1"):
        Manager(disk / "several")
    with manager(disk) as m, pytest.raises(ebbtide.InvalidArgument, match="^loader is a DataLoader"):
        m.step(0, loader=torch.utils.data.DataLoader([1]))


def test_a_read_only_store_resumes(disk: Path) -> None:
    tensor = torch.arange(5.0)
    with manager(disk, keep_last=0) as m:
        for step in range(3, 8):
            m.step(step, t=tensor)
    with manager(disk, keep_last=1) as m:  # saves nothing, so it drops nothing
        m.resume()
    with Manager(disk / "run", readonly=True, keep_last=1) as m:
        there = torch.zeros(5)
        assert m.resume(t=there) == 8 and torch.equal(there, tensor)
        assert m.history.versions() == [3, 4, 5, 6, 7]
        with pytest.raises(ebbtide.Unsupported):
            m.step(8)


def test_a_refusal_of_the_store_names_the_programs_own_leaf(disk: Path) -> None:
    class Refusing:
        def checkpoint(self, *given: Any, **options: Any) -> None:
            raise ebbtide.Unsupported("arrays['arrays'][1] is a GPU array")

        def __getattr__(self, name: str) -> Any:
            return getattr(history, name)

    with manager(disk, rng=False) as m:
        history, m.history = m.history, Refusing()
        with pytest.raises(ebbtide.Unsupported, match=r"^model\['z'\] is a GPU array$"):
            m.step(0, model={"a": torch.ones(2), "z": torch.ones(3)})
        m.history = history


def test_a_warm_manager_has_its_memory_before_the_first_save(disk: Path) -> None:
    tensor = torch.ones(20 << 18)  # 20 MiB
    sizes = {"device_cache": "24MiB", "host_cache": "40MiB", "disk": "256MiB"}
    with Manager(disk / "run", warm=True, **sizes) as m:
        before = resident()
        m.step(0, t=tensor)
        assert resident() - before < 4 << 20
    with ebbtide.open(disk / "open", durability="storage", **SMALL) as store:
        with pytest.raises(ebbtide.InvalidArgument, match="^warm: an open store has its options already"):
            Manager(store, warm=True)
