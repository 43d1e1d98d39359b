#!/usr/bin/env python3
"""What a save costs a run of Lightning's and of Transformers' Trainer: our callback, our manager alone, and their own save.

All save the same live model and AdamW's state of it, on processors, by turns within one run; the disk is at rest before each.
Blocked: until training may go on. Our saves are durable later, in the background; theirs have then been given to the system,
and are not synced.

  benches/trainers.py --dir /mnt/disk                # writes benches/results/trainers.json
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
import harness
import lightning.pytorch as pl
import torch
import transformers
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

import ebbtide.lightning
import ebbtide.torch
import ebbtide.transformers

WIDTH, LAYERS = 1024, 8
WARM = 3  # turns that are not counted
ROOM: dict[str, Any] = {"device": "cpu", "device_cache": "320MiB", "host_cache": 0, "warm": True, "disk": "4GiB"}
OURS, MANAGER, THEIRS = "the callback", "the manager", "the trainer's own save"
Times = dict[str, list[float]]


def timed(times: Times, name: str, save: Callable[[], Any], rest: Callable[[], Any] = lambda: None) -> None:
    start = time.perf_counter()
    save()
    times.setdefault(name, []).append(time.perf_counter() - start)
    rest()
    os.sync()


def state_bytes(model: torch.nn.Module) -> int:
    """Of the parameters, and of the optimizer's two averages of them."""
    return 3 * sum(parameter.nbytes for parameter in model.parameters())


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return self.net(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class LightningTurns(ebbtide.lightning.Checkpoint):
    """Saves by turns: every fourth step by itself."""

    def __init__(self, top: Path, times: Times) -> None:
        super().__init__(top / "callback", every_n_steps=4, **ROOM)
        self.top, self.times = top, times
        self.manager = ebbtide.torch.Manager(top / "manager", **ROOM)
        self.behind = AsyncCheckpointIO(TorchCheckpointIO())

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, *args: Any) -> None:
        step, path = trainer.global_step, self.top / "own.ckpt"
        if step == 0:
            return
        if step % 4 == 0:
            timed(
                self.times,
                OURS,
                lambda: super(LightningTurns, self).on_train_batch_start(trainer, module, *args),
                self._open().wait,
            )
        elif step % 4 == 1:
            state = {"model": module, "opt": trainer.optimizers[0]}
            timed(self.times, MANAGER, lambda: self.manager.save(step, **state), self.manager.wait)
        elif step % 4 == 2:
            timed(self.times, THEIRS, lambda: trainer.save_checkpoint(path), path.unlink)
        else:
            dump = trainer._checkpoint_connector.dump_checkpoint
            save = lambda: self.behind.save_checkpoint(dump(weights_only=False), path)  # noqa: E731
            timed(self.times, "AsyncCheckpointIO", save, self.behind.teardown)
            path.unlink()


def of_lightning(top: Path, turns: int) -> tuple[Times, int]:
    times: Times = {}
    callback = LightningTurns(top, times)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(accelerator="cpu", devices=1, max_steps=4 * turns + 2, callbacks=[callback], **quiet)
    model = Net()
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(8 * turns + 8, WIDTH), batch_size=1))
    callback.manager.close()
    return times, state_bytes(model)


class TransformersTurns(ebbtide.transformers.Checkpoint):
    """Saves by turns: every third step by itself."""

    def __init__(self, top: Path, times: Times) -> None:
        super().__init__(top / "callback", every_n_steps=3, **ROOM)
        self.times, self.manager = times, ebbtide.torch.Manager(top / "manager", **ROOM)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step, trainer = state.global_step, self._trainer
        if step == 0:
            return
        assert trainer is not None and self._manager is not None
        if step % 3 == 0:
            save = lambda: super(TransformersTurns, self).on_step_begin(args, state, control, **kwargs)  # noqa: E731
            timed(self.times, OURS, save, self._manager.wait)
        elif step % 3 == 1:
            parts = {"model": trainer.model, "opt": kwargs["optimizer"]}
            timed(self.times, MANAGER, lambda: self.manager.save(step, **parts), self.manager.wait)
        else:
            timed(self.times, THEIRS, lambda: trainer._save_checkpoint(trainer.model, trial=None))
            shutil.rmtree(Path(args.output_dir) / f"checkpoint-{step}")


def of_transformers(top: Path, turns: int) -> tuple[Times, int]:
    times: Times = {}
    sizes = {"vocab_size": 4096, "n_positions": 16, "n_embd": 448, "n_layer": 3, "n_head": 4}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    words = [{"input_ids": row, "labels": row} for row in torch.randint(4096, (64, 16))]
    args = transformers.TrainingArguments(
        output_dir=str(top / "own"), max_steps=3 * turns + 2, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, per_device_train_batch_size=1, logging_steps=10,
    )  # fmt: skip
    callback = TransformersTurns(top, times)
    trainer = transformers.Trainer(model, args, train_dataset=words, callbacks=[callback])
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=callback.resume(trainer))
    callback.manager.close()
    return times, state_bytes(model)


def rows(name: str, times: Times, turns: int) -> list[harness.Row]:
    counted = {way: all_of_them[WARM : WARM + turns] for way, all_of_them in times.items()}
    ours, manager, theirs = counted[OURS], counted[MANAGER], counted[THEIRS]
    return [
        *(harness.told(f"{name}: {way}", seconds, " ms", 1e-3) for way, seconds in counted.items()),
        harness.Row(f"{name}: over the manager", "at most 1.1", harness.over(ours, manager), harness.at_most(1.1)),
        harness.Row(f"{name}: over their own", "at most 0.2", harness.over(ours, theirs), harness.at_most(0.2)),
    ]


def main() -> None:
    parser = harness.options(__doc__ or "", repeats=21)
    parser.set_defaults(json=harness.RESULTS / "trainers.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    machine = harness.machine(given.dir)
    machine |= {"torch": torch.__version__, "lightning": pl.__version__, "transformers": transformers.__version__}
    found, sizes = [], {}
    for name, run in (("Lightning", of_lightning), ("Transformers", of_transformers)):
        with tempfile.TemporaryDirectory(prefix="trainers-", dir=given.dir) as directory:
            times, sizes[name] = run(Path(directory), given.repeats + WARM)
            found += rows(name, times, given.repeats)
    machine["load_after"] = os.getloadavg()[0]
    print(harness.table(found))
    document = {
        "figure": "trainers",
        "command": [Path(__file__).name, "--repeats", str(given.repeats)],
        "machine": machine,
        "bytes": sizes,
        "rows": [row.as_json() for row in found],
    }
    given.json.write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(not all(row.holds is None or row.holds(row.median) for row in found))


if __name__ == "__main__":
    main()
