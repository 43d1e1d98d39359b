"""A run of Transformers' Trainer that is stopped and resumed has the losses of one that was not, bit for bit."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_support import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

import ebbtide
import ebbtide.torch
import ebbtide.transformers
import transformers_training
from transformers_training import SMALL, train

RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "evaluated by epoch": {"eval_strategy": "epoch", "best": ("eval_loss", 1)},
    "evaluated by step": {"eval_strategy": "steps", "eval_steps": 3},
    "steps": {"max_steps": 25},
    "accumulated": {"gradient_accumulation_steps": 2},
    "stopped early": {
        "eval_strategy": "steps", "eval_steps": 2, "patience": 5, "metric_for_best_model": "loss", "learning_rate": 0.2,
        "restore_callback_states_from_checkpoint": True,
    },
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [3, 7])
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_has_the_losses_of_a_whole_one(disk: Path, name: str, every: int) -> None:
    options = RUNS[name] | {"every": every}
    whole, _ = train(disk / "whole", **options)
    assert name != "stopped early" or 11 < len(whole) < 28
    for stop in (7, 11):
        before, _ = train(disk / str(stop), stop, **options)
        assert before == {step: whole[step] for step in before}
        after, began = train(disk / str(stop), **options)
        assert began == stop // every * every
        assert after == whole


@pytest.mark.filterwarnings("ignore")
def test_workers_draw_what_they_drew(disk: Path) -> None:
    whole, _ = train(disk / "whole", dataloader_num_workers=2, num_train_epochs=2)
    train(disk / "run", 11, dataloader_num_workers=2, num_train_epochs=2)
    assert train(disk / "run", dataloader_num_workers=2, num_train_epochs=2) == (whole, 9)


def test_a_run_that_max_steps_ended_within_an_epoch_goes_on_there(disk: Path) -> None:
    constant = {"lr_scheduler_type": "constant"}
    whole, _ = train(disk / "whole", max_steps=20, **constant)
    train(disk / "run", max_steps=9, **constant)
    left, other = (disk / "run" / "run" / name for name in (".ebbtide-resume-killed", "resume-notes"))
    for directory in (left, other):
        directory.mkdir()
    assert train(disk / "run", max_steps=20, **constant) == (whole, 9)
    assert other.exists() and not left.exists()


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch has no gloo")
def test_two_ranks_resume_alike(disk: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", transformers_training.__file__, str(disk)],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            said = rank.communicate(timeout=240)[0]
            assert rank.returncode == 0, said
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for number in range(2):
        (whole, _), (before, _), (after, began) = json.loads((disk / f"rank-{number}.json").read_text())
        assert len(whole) == 16 and len(before) == 8 and began == 6
        assert before == {step: whole[step] for step in before} and after == whole


def loop(directory: Path, epochs: int, stop: int | None = None) -> list[float]:
    """A program's own loop with Accelerate, as the page has it."""
    accelerate.utils.set_seed(1)
    accelerator, order = accelerate.Accelerator(cpu=True), torch.Generator()
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
    opt = torch.optim.AdamW(net.parameters())
    data = torch.utils.data.DataLoader(torch.randn(28, 8), batch_size=4, shuffle=True, generator=order)
    net, opt, data = accelerator.prepare(net, opt, data)
    losses = []
    with ebbtide.torch.Manager(directory, every=3, **SMALL) as manager:
        step = manager.resume(model=accelerator.unwrap_model(net), opt=opt)
        for epoch in range(step // len(data), epochs):
            order.manual_seed(epoch)
            for batch in accelerate.skip_first_batches(data, step % len(data)):
                if step == stop:
                    return losses
                loss = net(batch).square().mean()
                opt.zero_grad()
                accelerator.backward(loss)
                opt.step()
                manager.step(step, loss=loss.item())
                losses.append(loss.item())
                step += 1
    return losses


def test_a_loop_with_accelerate_goes_on_within_its_epoch(disk: Path) -> None:
    whole = loop(disk / "whole", 3)
    before, after = loop(disk / "run", 3, 12), loop(disk / "run", 3)
    assert len(whole) == 21 and before == whole[:12] and after == whole[10:]


def test_what_cannot_be_saved_is_refused_by_name(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = ebbtide.transformers.Checkpoint(disk / "run", **SMALL)
    kind = SimpleNamespace(distributed_type=SimpleNamespace(value="FSDP"))
    with pytest.raises(ebbtide.Unsupported, match="Accelerate's type FSDP.*NO, MULTI_CPU, MULTI_GPU.*set save_steps"):
        checkpoint.resume(SimpleNamespace(accelerator=kind))
    args = transformers.TrainingArguments(output_dir=str(disk), use_cpu=True, report_to=[])
    with pytest.raises(ebbtide.InvalidArgument, match=r"does not have this callback: give it callbacks=\[checkpoint\]"):
        checkpoint.resume(transformers.Trainer(transformers_training.model(), args))
    one = transformers.Trainer(
        transformers_training.model(), args, train_dataset=transformers_training.Words(), callbacks=[checkpoint]
    )
    with pytest.raises(ebbtide.InvalidArgument, match=r"call trainer.train\(resume_from_checkpoint=checkpoint.resume"):
        one.train()
    with pytest.raises(ebbtide.InvalidArgument, match="every_n_steps=0 is not valid"):
        ebbtide.transformers.Checkpoint(disk / "run", every_n_steps=0)
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.6")
    monkeypatch.delitem(sys.modules, "ebbtide.transformers")
    with pytest.raises(ImportError, match="Transformers 5 or later, and 4.57.6 is installed: pip install"):
        importlib.import_module("ebbtide.transformers")
