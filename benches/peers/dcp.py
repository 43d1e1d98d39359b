"""torch.distributed.checkpoint in one process: a new directory for each step, which counts once it has its metadata."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from peers.base import Beside, State, sync_tree

warnings.filterwarnings("ignore", message="torch.distributed is disabled")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Its own exception is no Exception, which a program that goes on would have to know."""
    try:
        yield
    except CheckpointException as error:
        causes = [wrapped[0] for wrapped in error.failures.values()]
        raise RuntimeError(f"CheckpointException: {causes}") from error


class Dcp(Beside):
    key, title, packages = "dcp", "torch.distributed.checkpoint", ("torch",)
    how = (
        "dcp.save to a new directory for each step (its writer syncs files), then fsync of the directories;"
        " dcp.load into tensors of the shapes in the checkpoint's metadata"
    )

    def convert(self, state: State) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array) for name, array in state.items()}

    def steps(self) -> list[int]:
        return [step for step in super().steps() if (self.path(step) / ".metadata").exists()]

    def begin(self, step: int, state: Any) -> None:
        self.directory.mkdir(exist_ok=True)
        with plain_errors():
            dcp.save(state, checkpoint_id=self.path(step), no_dist=True)
        self._durable(self.path(step))

    def _durable(self, path: Path) -> None:
        sync_tree(path)
        self.retain()

    def load(self, step: int) -> State:
        reader = dcp.FileSystemReader(self.path(step))
        with plain_errors():
            found = {
                name: torch.empty(kind.size, dtype=kind.properties.dtype)
                for name, kind in reader.read_metadata().state_dict_metadata.items()
                if isinstance(kind, TensorStorageMetadata)
            }
            dcp.load(found, storage_reader=reader, no_dist=True)
        return {name: tensor.numpy() for name, tensor in found.items()}


class DcpAsync(Dcp):
    key, title = "dcp_async", "torch.distributed.checkpoint, async_save"
    how = "dcp.async_save (default stager, thread), its future, then fsync of the directories"

    _future: Future | None = None

    def begin(self, step: int, state: Any) -> None:
        self.directory.mkdir(exist_ok=True)
        self._step = step
        self._future = dcp.async_save(state, checkpoint_id=self.path(step), no_dist=True)

    def finish(self) -> None:
        if self._future:
            with plain_errors():
                self._future.result()
            self._durable(self.path(self._step))
        self._future = None
