"""A small run of Transformers' Trainer; as a program one rank of two: DIRECTORY, and torchrun's environment."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import torch
import transformers

import ebbtide.transformers

SMALL: dict[str, Any] = {"device_cache": "4MiB", "host_cache": "16MiB", "disk": "256MiB"}


class Stopped(Exception):
    """The run is to end here."""


class Stop(transformers.TrainerCallback):
    def __init__(self, at: int | None) -> None:
        self.at = at

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.at is not None and state.global_step >= self.at:
            raise Stopped


class Words(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 28

    def __getitem__(self, i: int) -> torch.Tensor:
        return (torch.arange(8) * 7 + i) % 50


def masked(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Draws from all generators, as collators that mask do."""
    words = torch.stack(rows)
    mask = torch.rand(words.shape) < 0.2
    if random.random() < 0.5:
        words = words.roll(int(np.random.randint(3)), 1)
    return {"input_ids": words.masked_fill(mask, 51), "labels": words}


def model() -> Any:
    sizes = {"vocab_size": 52, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def train(
    directory: Path,
    stop: int | None = None,
    *,
    every: int = 3,
    best: Any = ("loss", 1),
    patience: int = 0,
    **options: Any,
) -> tuple[dict[int, list[float]], int]:
    """What each step logged, and the step after which it began."""
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    transformers.set_seed(1)
    checkpoint = ebbtide.transformers.Checkpoint(directory / "run", every_n_steps=every, best=best, **SMALL)
    chosen = {
        "output_dir": str(directory / "out"), "num_train_epochs": 4, "per_device_train_batch_size": 4, "learning_rate": 1e-2,
        "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True,
    }  # fmt: skip
    trainer = transformers.Trainer(
        model(),
        transformers.TrainingArguments(**(chosen | options)),
        train_dataset=Words(),
        eval_dataset=Words(),
        data_collator=masked,
        callbacks=[checkpoint, Stop(stop), *([transformers.EarlyStoppingCallback(patience)] if patience else [])],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    try:
        resumed = checkpoint.resume(trainer)
        began = 0 if resumed is None else json.loads((Path(resumed) / "trainer_state.json").read_text())["global_step"]
        trainer.train(resume_from_checkpoint=resumed)
        assert resumed is None or not Path(resumed).exists()
    except Stopped:
        pass
    finally:
        checkpoint.close()
    logs = [one for one in trainer.state.log_history if "loss" in one]
    return {one["step"]: [one["loss"], one["grad_norm"], one["learning_rate"]] for one in logs}, began


if __name__ == "__main__":
    place, ranks = Path(sys.argv[1]), {"ddp_backend": "gloo"}
    runs = [train(place / "whole", **ranks), train(place, 8, **ranks), train(place, **ranks)]
    (place / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(runs))
