"""`stage="lazy"`: copies that are made late hold what was there when the save was called, whatever the program does since."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_support import torch

import ebbtide
from ebbtide.torch import Manager, _lazy, _manager, _state

SMALL = {"device_cache": "4MiB", "host_cache": "8MiB", "disk": "256MiB"}


class Late:
    """Stands in for torch.cuda and the copies on a GPU: what is called on the stream beside runs when it is waited for."""

    def __init__(self, history: ebbtide.History) -> None:
        self.history, self.called, self.waits = history, [], 0
        stream = SimpleNamespace(wait_event=lambda event: self.run(event))
        self.beside = SimpleNamespace(wait_stream=lambda other: None, record_event=lambda: len(self.called))
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            current_device=lambda: None,  # where tensors in host memory are
            Stream=lambda gpu: self.beside,
            current_stream=lambda gpu: stream,
        )

    def run(self, event: int) -> None:
        self.waits += 1
        for step, checkpoint in self.called[:event]:
            if step not in self.history:
                self.history.checkpoint(step, checkpoint)

    def checkpoint(self, step: int, checkpoint: Any, stream: Any) -> Any:
        assert stream is self.beside
        self.called.append((step, checkpoint))
        return SimpleNamespace(done=lambda level: False)

    def versions(self) -> list[int]:
        return self.history.versions()


@pytest.fixture
def late(disk: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with Manager(disk / "run", keep_last=0, **SMALL) as manager:
        late = Late(manager.history)
        manager.history, manager._lazy = late, _lazy.Lazy(late.cuda)
        monkeypatch.setattr(_state.Storage, "on_gpu", lambda storage: isinstance(storage.of, torch.UntypedStorage))
        yield manager
        manager.history = late.history


def copied(*objects: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    for one in objects:
        tensors += [t for t in torch.utils._pytree.tree_leaves(one.state_dict()) if isinstance(t, torch.Tensor)]
    return [t.clone() for t in tensors]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD], ids=["adamw", "sgd"])
def test_what_is_copied_late_is_what_was_there(late: Any, kind: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    halves = [kind(part.parameters(), 0.1) for part in model]
    average = torch.optim.swa_utils.AveragedModel(model)  # no optimizer owns it
    late.resume(model=model, first=halves[0], second=halves[1], third=halves[2], average=average)
    expected = {}
    for step in range(6):
        loss = model(torch.randn(4, 8)).square().mean()  # changes the buffers
        loss.backward()
        for opt in halves:
            opt.step()
            opt.zero_grad()
        average.update_parameters(model)
        late.step(step)
        expected[step] = copied(model, *halves, average)
    assert late.history.waits == 3 * 5, "each optimizer's step waits, and nothing else does"
    late.before_write()
    for step, tensors in expected.items():
        saved = _state.load(late.history.history.restore(step, keep=True))
        parts = [saved[name] for name in ("model", "first", "second", "third", "average")]
        found = [t for t in torch.utils._pytree.tree_leaves(parts) if isinstance(t, torch.Tensor)]
        assert len(found) == len(tensors) and all(map(torch.equal, found, tensors)), step


def test_resume_waits_before_it_loads(late: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(10))
    opt = torch.optim.SGD([weight], 1.0)
    late.save(0, weight=weight, opt=opt)
    late._load(0, {"weight": torch.zeros(10), "/rng": None, "/metrics": {}}, {"weight": weight})
    assert (weight == 0).all() and late.history.waits == 1
    assert (_state.load(late.history.history.restore(0))["weight"] == 1).all()


def test_what_cannot_be_copied_late_is_refused_by_name(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ebbtide.InvalidArgument, match="^stage='later' is not valid"):
        Manager(disk / "run", stage="later")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ebbtide.Unsupported, match='^stage="lazy" .* PyTorch finds no GPU'):
        Manager(disk / "run", stage="lazy")
    with Manager(disk / "run", **SMALL) as manager:
        late = Late(manager.history)
        manager._lazy = _manager.Lazy(late.cuda)
        with pytest.raises(ebbtide.InvalidArgument, match=r"^model\['table'\] is not on GPU"):
            manager.save(0, model={"table": torch.zeros(100_000)})
        assert manager.history.versions() == []


@pytest.mark.gpu
def test_on_a_gpu_the_program_goes_on_until_its_optimizer_writes(disk: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU for torch")
    options = {"device": "cuda", "device_cache": "64MiB", "host_cache": "128MiB", "disk": "512MiB"}
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.BatchNorm1d(512)).cuda()
    opt = torch.optim.AdamW(model.parameters(), fused=True)
    with Manager(disk / "run", stage="lazy", keep_last=0, **options) as manager:
        manager.resume(model=model, opt=opt)
        current, beside, expected = torch.cuda.current_stream(), manager._lazy._beside, {}
        for step in range(8):
            model(torch.randn(64, 512, device="cuda")).square().mean().backward()
            opt.step()
            expected[step] = copied(model, opt)
            torch.cuda.synchronize()
            if step:  # by then all has been called once
                with torch.cuda.stream(beside):
                    torch.cuda._sleep(400_000_000)
            manager.step(step)
            loss = model(torch.randn(64, 512, device="cuda")).square().mean()
            loss.backward()
            if step:
                current.synchronize()
                assert not beside.query(), "the forward and the backward pass did not wait"
            opt.step()
            assert not step or not current.query(), "the optimizer's step does"
        manager.wait()
        for step, tensors in expected.items():
            assert manager.resume(model=model, opt=opt, at_most=step) == step + 1
            assert all(map(torch.equal, copied(model, opt), tensors)), step
