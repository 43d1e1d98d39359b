"""A small run of Lightning's Trainer, as a program that may be killed: DIRECTORY; or runs of two ranks: DIRECTORY ranks."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.fabric.plugins.environments import MPIEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

import ebbtide.lightning

# Where mpi4py is installed, a Trainer starts MPI to ask whether there are ranks. A process that has done so ends, without
# a word, when the daemon beside it does.
MPIEnvironment.detect = staticmethod(lambda: False)

SMALL: dict[str, Any] = {"device_cache": "4MiB", "host_cache": "16MiB", "disk": "256MiB"}


class Stopped(Exception):
    """The run is to end here."""


class Noisy(torch.utils.data.Dataset[torch.Tensor]):
    """Reading it draws from all generators."""

    def __len__(self) -> int:
        return 28

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.full((8,), float(i)) + torch.rand(8) + random.random() + float(np.random.rand())


class Endless(torch.utils.data.IterableDataset[torch.Tensor]):
    """Of no length that is known, so that Lightning reads a batch ahead. Each epoch has another order."""

    def __iter__(self) -> Any:
        yield from (torch.full((8,), float(i)) for i in torch.randperm(28))


class Drawing(torch.utils.data.IterableDataset[torch.Tensor]):
    """Draws as each item is read; a buffer from which the next one is drawn shuffles them."""

    def __init__(self, buffer: int = 1) -> None:
        self.buffer = buffer

    def __iter__(self) -> Any:
        held: list[int] = []
        for i in [*range(28), *([-1] * (self.buffer - 1))]:
            held += [i] if i >= 0 else []
            if len(held) == self.buffer or i < 0:
                yield torch.full((8,), float(held.pop(int(torch.randint(len(held), ()))))) + torch.rand(8)


class Sized(Drawing):
    def __len__(self) -> int:
        return 28


class Stateful(torch.utils.data.DataLoader[torch.Tensor]):
    """A loader with a state, which counts what it reads."""

    order: list[int] = []
    at = read = 0

    def __iter__(self) -> Any:
        if self.at in (0, len(self)):
            self.order, self.at = torch.randperm(28).tolist(), 0
        while self.at < len(self):
            self.at += 1
            self.read += 1
            yield torch.tensor(self.order[4 * self.at - 4 : 4 * self.at]).float()[:, None].expand(4, 8)

    def state_dict(self) -> dict[str, Any]:
        return {"order": list(self.order), "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order, self.at = list(state["order"]), state["at"]


class Model(pl.LightningModule):
    def __init__(self, stop: int | None = None, sharded: bool = False, plateau: str | None = None) -> None:
        super().__init__()
        norm = torch.nn.LayerNorm(17) if sharded else torch.nn.BatchNorm1d(17)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 17), torch.nn.Dropout(0.3), norm, torch.nn.Linear(17, 1))
        self.stop, self.sharded, self.plateau = stop, sharded, plateau
        self.losses: list[list[float]] = []

    def configure_model(self) -> None:
        if self.sharded:
            fully_shard(self.net, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch: torch.Tensor, i: int) -> torch.Tensor:
        loss = self.net(batch).square().mean()
        self.log("loss", loss)
        if self.stop is not None and self.global_step >= self.stop:
            raise Stopped
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.losses.append([self.current_epoch, i, loss.item(), rate])
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        torch.rand(1)
        with torch.no_grad():
            for parameter in self.parameters():  # after the callbacks
                parameter.mul_(0.999)

    def on_train_epoch_start(self) -> None:
        torch.rand(2)

    def validation_step(self, batch: torch.Tensor, i: int) -> None:
        self.log("val_loss", self.net(batch).square().mean())

    def configure_optimizers(self) -> Any:
        opt = torch.optim.AdamW(self.parameters(), lr=0.01)
        sched = torch.optim.lr_scheduler
        if self.plateau is None:
            return [opt], [{"scheduler": sched.CosineAnnealingLR(opt, 100), "interval": "step"}]
        plateau = sched.ReduceLROnPlateau(opt, patience=0, threshold=0.5)
        every = 3 if self.plateau == "step" else 1
        return [opt], [{"scheduler": plateau, "monitor": "val_loss", "interval": self.plateau, "frequency": every}]


class Announced(ebbtide.lightning.Checkpoint):
    """Says when the first checkpoint is durable, and waits there to be killed."""

    def on_train_batch_start(self, *args: Any) -> None:
        super().on_train_batch_start(*args)
        if args[0].global_step == 6:
            self._open().wait()
            print("durable", flush=True)
            time.sleep(600)


def train(
    directory: Path,
    stop: int | None = None,
    *,
    every: int = 3,
    loader: Any = None,
    plateau: str | None = None,
    strategy: Any = "auto",
    callbacks: list[Any] | None = None,
    checkpoint: str | None = None,
    quiet: bool = True,
    **options: Any,
) -> list[list[float]]:
    """The losses of a run that resumes, with epoch, batch and learning rate."""
    torch.set_num_threads(1)
    if quiet:
        warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    pl.seed_everything(1, verbose=False)
    model = Model(stop, strategy == "fsdp2", plateau)
    if callbacks is None:
        callbacks = [ebbtide.lightning.Checkpoint(directory, every_n_steps=every, best=("val_loss", 1), **SMALL)]
    if strategy == "fsdp2":
        strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    trainer = pl.Trainer(
        default_root_dir=directory,
        accelerator="cpu",
        devices=1 if strategy == "auto" else 2,
        strategy=strategy,
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **({"max_epochs": 4} | options),
    )
    if loader is None:
        loader = torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True)
    try:
        trainer.fit(model, loader, torch.utils.data.DataLoader(Noisy(), batch_size=4), ckpt_path=checkpoint)
    except Stopped:
        pass
    return model.losses


def train_by_ranks(directory: Path) -> None:
    """Whole runs of two ranks, and resumed ones; a rank's losses are in a file of its number."""
    losses: dict[str, list[Any]] = {}
    for strategy in ("ddp", "fsdp2"):
        whole = train(directory / f"{strategy}-whole", strategy=strategy)
        before = train(directory / f"{strategy}-run", 8, strategy=strategy)
        losses[strategy] = [whole, before, train(directory / f"{strategy}-run", strategy=strategy)]
    (directory / os.environ.get("LOCAL_RANK", "0")).write_text(json.dumps(losses))


if __name__ == "__main__":
    if sys.argv[2:] == ["ranks"]:
        train_by_ranks(Path(sys.argv[1]))
    else:
        train(
            Path(sys.argv[1]), callbacks=[Announced(Path(sys.argv[1]), every_n_steps=3, best=("val_loss", 1), **SMALL)]
        )
