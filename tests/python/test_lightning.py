"""A run of Lightning's Trainer that is stopped and resumed has the losses of one that was not, bit for bit."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch_support import torch

pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

import ebbtide
import ebbtide.lightning
import lightning_training
from lightning_training import SMALL, Drawing, Endless, Noisy, Sized, Stateful, train

PROGRAM = Path(lightning_training.__file__)
RUNS: dict[str, dict[str, Any]] = {
    "plain": {},
    "validation within epochs": {"val_check_interval": 3},
    "no validation": {"limit_val_batches": 0},
    "steps": {"max_epochs": -1, "max_steps": 25, "val_check_interval": 3},
    "plateau": {"plateau": "epoch"},
    "plateau within epochs": {"plateau": "step", "val_check_interval": 3},
    "accumulated": {"accumulate_grad_batches": 2},
    "loaders anew": {"reload_dataloaders_every_n_epochs": 1, "check_val_every_n_epoch": 2},
}
ITERABLES = {"endless": Endless(), "drawing": Drawing(), "buffer": Drawing(9), "sized buffer": Sized(9)}


def loader(kind: str) -> Any:
    if kind == "stateful":
        return Stateful(Noisy(), batch_size=4)
    if kind == "own generator":
        order = torch.Generator().manual_seed(3)
        return torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True, generator=order)
    if kind in ITERABLES:
        return torch.utils.data.DataLoader(ITERABLES[kind], batch_size=4)
    return torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2)


def same(whole: list[Any], before: list[Any], after: list[Any], steps: int) -> None:
    """What was done before the stop, and from the last save on, is what the whole run did."""
    assert before == whole[: len(before)]
    assert after == whole[-len(after) :]
    assert len(whole) - len(after) == steps


@pytest.mark.parametrize("every", [3, 7])
@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_has_the_losses_of_a_whole_one(disk: Path, name: str, every: int) -> None:
    options, batches = RUNS[name] | {"every": every}, RUNS[name].get("accumulate_grad_batches", 1)
    whole = train(disk / "whole", **options)
    for stop in (7, 8, 11):
        before = train(disk / str(stop), stop, **options)
        after = train(disk / str(stop), **options)
        saved = stop // every * every
        same(whole, before, after, saved if batches == 1 else (saved // 4 * 7 + saved % 4 * 2))


@pytest.mark.parametrize("stop", [11, 14])
@pytest.mark.parametrize("kind", ["stateful", "own generator", "workers", *ITERABLES])
def test_every_loader_comes_back_to_its_batch(disk: Path, kind: str, stop: int) -> None:
    every = 3 if stop == 11 else 7  # within an epoch, between two
    whole = train(disk / "whole", every=every, loader=loader(kind))
    before = train(disk / "run", stop, every=every, loader=loader(kind))
    last = loader(kind)
    after = train(disk / "run", every=every, loader=last)
    same(whole, before, after, stop // every * every)
    assert kind != "stateful" or last.read == len(after)  # nothing was read again


def test_a_run_that_max_steps_ended_within_an_epoch_goes_on_there(disk: Path) -> None:
    whole = train(disk / "whole", max_steps=20)
    before = train(disk / "run", max_steps=9)
    same(whole, before, train(disk / "run", max_steps=20), 9)


def test_a_killed_run_goes_on_where_something_is_durable(disk: Path) -> None:
    whole = train(disk / "whole")
    program = subprocess.Popen([sys.executable, str(PROGRAM), str(disk / "run")], stdout=subprocess.PIPE, text=True)
    deadline = threading.Timer(120, program.kill)
    deadline.start()
    try:
        assert program.stdout is not None and program.stdout.readline() == "durable\n"
    finally:
        deadline.cancel()
        program.kill()
        program.wait()
        program.stdout.close()
    after = train(disk / "run")
    assert 0 < len(after) < len(whole)
    assert after == whole[-len(after) :]


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch has no gloo")
def test_two_ranks_resume_alike_with_ddp_and_with_fsdp2(disk: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(disk), "ranks"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        losses = json.loads((disk / str(rank)).read_text())
        assert losses["ddp"] != losses["fsdp2"]
        for whole, before, after in losses.values():
            same(whole, before, after, 6)


def test_the_plugin_keeps_what_lightning_saves(disk: Path) -> None:
    places, plugins = disk / "checkpoints", [ebbtide.lightning.CheckpointIO(**SMALL)]
    keep = pl.callbacks.ModelCheckpoint(places, save_top_k=2, monitor="loss", every_n_train_steps=3, save_last=True)
    whole = train(disk, callbacks=[keep], plugins=plugins, limit_val_batches=0)
    marks = sorted(file.name for file in places.glob("*.ckpt"))
    assert len(marks) == 3 and "last.ckpt" in marks
    with ebbtide.open(places / "ebbtide", readonly=True) as store:
        assert sorted(store.histories()) == marks
    again = ebbtide.lightning.CheckpointIO()
    last = again.load_checkpoint(places / "last.ckpt")
    assert last["global_step"] == 27 and len(whole) == 28
    one = pl.callbacks.ModelCheckpoint(places)
    assert len(train(disk, callbacks=[one], plugins=[again], limit_val_batches=0, checkpoint=places / "last.ckpt")) == 1
    with pytest.raises(FileNotFoundError, match="other.ckpt was not durable .* has .*last.ckpt"):
        again.load_checkpoint(places / "other.ckpt")
    with pytest.raises(FileNotFoundError, match="no store of ebbtide.lightning.CheckpointIO"):
        again.load_checkpoint(disk / "elsewhere.ckpt")


def test_the_plugin_takes_nothing_away_before_a_newer_one_is_durable(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable = False
    real = ebbtide.Future.done
    plugin = ebbtide.lightning.CheckpointIO(**SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(ebbtide.Future, "done", lambda self, level: durable and real(self, level))
        for name in ("first", "second", "third"):
            plugin.save_checkpoint({"weights": torch.ones(3)}, disk / name)
        plugin.remove_checkpoint(disk / "first")
        plugin.save_checkpoint({"weights": torch.zeros(3)}, disk / "third")
        assert torch.equal(plugin.load_checkpoint(disk / "third")["weights"], torch.zeros(3))
        assert torch.equal(plugin.load_checkpoint(disk / "first")["weights"], torch.ones(3))
    plugin.teardown()
    with pytest.raises(FileNotFoundError):
        plugin.load_checkpoint(disk / "first")
    assert torch.equal(plugin.load_checkpoint(disk / "second")["weights"], torch.ones(3))
    assert not (disk / "first").exists()


def test_the_plugin_loads_what_torch_wrote_and_refuses_urls(disk: Path) -> None:
    plugin = ebbtide.lightning.CheckpointIO(**SMALL)
    plugin.save_checkpoint({"weights": torch.zeros(3)}, disk / "one.ckpt")
    torch.save({"weights": torch.ones(3)}, disk / "other.ckpt")
    assert torch.equal(plugin.load_checkpoint(disk / "other.ckpt")["weights"], torch.ones(3))
    with pytest.raises(ebbtide.InvalidArgument, match="s3://bucket/one.ckpt is a URL"):
        plugin.save_checkpoint({}, "s3://bucket/one.ckpt")
    plugin.teardown()
    assert torch.equal(plugin.load_checkpoint(disk / "one.ckpt")["weights"], torch.zeros(3))


def test_the_plugin_drops_nothing_before_its_own_replacement_is_durable(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = ebbtide.lightning.CheckpointIO(**SMALL)
    plugin.save_checkpoint({"weights": torch.ones(3)}, disk / "last")
    plugin.save_checkpoint({"weights": torch.zeros(3)}, disk / "last")
    (folder,) = plugin._folders.values()
    replacement, real = folder._newest, ebbtide.Future.done
    with monkeypatch.context() as patch:
        patch.setattr(ebbtide.Future, "done", lambda self, level: self is not replacement and real(self, level))
        plugin.save_checkpoint({"weights": torch.ones(3)}, disk / "newest")
        folder._newest.wait("storage")
        plugin.save_checkpoint({"weights": torch.ones(3)}, disk / "newer")
        assert len(folder.store.history("last").versions()) == 2
    plugin.teardown()


def test_what_cannot_be_saved_is_refused_by_name(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = ebbtide.lightning.Checkpoint(disk / "run")
    trainer = SimpleNamespace(strategy=pl.strategies.FSDPStrategy())
    with pytest.raises(ebbtide.Unsupported, match="FSDPStrategy.*use SingleDeviceStrategy, DDPStrategy or ModelPar"):
        callback.setup(trainer, None, "fit")
    with pytest.raises(ebbtide.InvalidArgument, match="every_n_steps=0 is not valid"):
        ebbtide.lightning.Checkpoint(disk / "run", every_n_steps=0)
    with pytest.raises(ebbtide.InvalidArgument, match="hyper_parameters.*pickle=True"):
        ebbtide.lightning.CheckpointIO(**SMALL).save_checkpoint({"hyper_parameters": {"f": print}}, disk / "one")
    monkeypatch.setattr(pl, "__version__", "2.4.1")
    monkeypatch.delitem(sys.modules, "ebbtide.lightning")
    with pytest.raises(ImportError, match="Lightning 2.6 or later, and 2.4.1 is installed: pip install"):
        importlib.import_module("ebbtide.lightning")


def test_a_metric_that_is_never_logged_is_named(disk: Path) -> None:
    callback = ebbtide.lightning.Checkpoint(disk / "run", every_n_steps=3, best=("accuracy", 1, "max"), **SMALL)
    with pytest.warns(RuntimeWarning, match="'accuracy' is not logged; what is logged is loss, val_loss"):
        train(disk, callbacks=[callback], quiet=False)
