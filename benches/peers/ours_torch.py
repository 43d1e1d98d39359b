"""The manager for PyTorch: a state dict of tensors, saved as a training program saves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ebbtide.torch
import torch

from peers.base import Restart, Saver, State


class EbbtideTorch(Saver):
    key, title, packages = "ebbtide_torch", "ebbtide.torch.Manager", ("ebbtide", "torch")
    how = "Manager(...).save(step, state=...), wait()"

    def __init__(
        self, directory: Path, *, keep: int = 0, to_read: bool = False, in_memory: bool = False, **options: Any
    ) -> None:
        super().__init__(directory, keep=keep, to_read=to_read, in_memory=in_memory)
        kept = {"readonly": True} if to_read else {"durability": "storage"}
        self.manager = ebbtide.torch.Manager(directory, keep_last=keep, device="cpu", **(kept | options))

    def convert(self, state: State) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in state.items()}

    def begin(self, step: int, state: Any) -> None:
        self.manager.save(step, state=state)

    def finish(self) -> None:
        self.manager.wait()

    def steps(self) -> list[int]:
        return sorted(self.manager.history.versions(), reverse=True)

    def load(self, step: int) -> State:
        self.manager.resume(at_most=step)
        return {name: tensor.numpy() for name, tensor in self.manager.values["state"].items()}

    def restart(self) -> Restart:
        step = self.manager.resume() - 1
        return Restart(None, None) if step < 0 else Restart(step, self.load(step))

    def forget(self, step: int) -> None:
        self.manager.history.drop(step)

    def close(self) -> None:
        self.manager.close()
