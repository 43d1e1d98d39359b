"""safetensors, as it is made safe against a crash: beside, synced, renamed, the directory synced."""

from __future__ import annotations

import os
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from peers.base import Beside, State, sync


class Safetensors(Beside):
    key, title, packages, suffix = (
        "safetensors",
        "safetensors + fsync + rename",
        ("safetensors", "torch"),
        ".safetensors",
    )
    how = "safetensors.torch.save_file to a file beside, fsync, rename, fsync of the directory; load_file"

    def convert(self, state: State) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in state.items()}

    def begin(self, step: int, state: Any) -> None:
        self.directory.mkdir(exist_ok=True)
        beside = self.directory / "new.tmp"
        save_file(state, beside)
        sync(beside)
        os.replace(beside, self.path(step))
        sync(self.directory)
        self.retain()

    def load(self, step: int) -> State:
        return {name: tensor.numpy() for name, tensor in load_file(self.path(step)).items()}
