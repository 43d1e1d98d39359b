"""torch.save, as it is made safe against a crash: beside, synced, renamed, the directory synced."""

from __future__ import annotations

import os
from typing import Any

import torch

from peers.base import Beside, State, sync


class TorchSave(Beside):
    key, title, packages, suffix = "torch_save", "torch.save + fsync + rename", ("torch",), ".pt"
    how = "torch.save to a file beside, fsync, rename, fsync of the directory; torch.load(weights_only=True)"

    def convert(self, state: State) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in state.items()}

    def begin(self, step: int, state: Any) -> None:
        self.directory.mkdir(exist_ok=True)
        beside = self.directory / "new.tmp"
        with open(beside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path(step))
        sync(self.directory)
        self.retain()

    def load(self, step: int) -> State:
        found = torch.load(self.path(step), weights_only=True)
        return {name: tensor.numpy() for name, tensor in found.items()}
