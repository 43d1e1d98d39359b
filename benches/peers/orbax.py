"""Orbax's CheckpointManager, of arrays of NumPy (a state that is changed in place) and of JAX."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import numpy as np
import orbax.checkpoint as ocp

from peers.base import Saver, State, sync_tree

logging.getLogger("absl").setLevel(logging.ERROR)


class Orbax(Saver):
    key, title, packages = "orbax", "Orbax", ("orbax-checkpoint", "jax")
    how = (
        "CheckpointManager.save(StandardSave), wait_until_finished, then fsync of files and directories; restore of"
        " all_steps(), newest first"
    )
    background: ClassVar[bool] = False

    def __init__(self, directory: Path, *, keep: int = 0, to_read: bool = False, in_memory: bool = False) -> None:
        super().__init__(directory, keep=keep, to_read=to_read, in_memory=in_memory)
        policy = ocp.checkpoint_managers.LatestN(keep) if keep else None  # none: all are kept
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policy, enable_async_checkpointing=self.background and not to_read, read_only=to_read
        )
        self._step: int | None = None
        self._to_read = to_read
        self._manager = ocp.CheckpointManager(directory.resolve(), options=options)

    def begin(self, step: int, state: Any) -> None:
        if not self._manager.save(step, args=ocp.args.StandardSave(state)):
            raise RuntimeError(f"step {step} was not saved")
        self._step = step
        if not self.background:
            self.finish()

    def finish(self) -> None:
        self._manager.wait_until_finished()
        self._manager.check_for_errors()
        if self._step is not None:
            sync_tree(self.directory / str(self._step))
        self._step = None

    def steps(self) -> list[int]:
        return sorted(self._manager.all_steps(read=True), reverse=True)

    def load(self, step: int) -> State:
        found = self._manager.restore(step, args=ocp.args.StandardRestore())
        return {name: np.asarray(array) for name, array in found.items()}

    def forget(self, step: int) -> None:
        self._manager.delete(step)

    def close(self) -> None:
        self._manager.close()


class OrbaxAsync(Orbax):
    key, title, background = "orbax_async", "Orbax, async", True
    how = "CheckpointManager with enable_async_checkpointing, of NumPy arrays; wait_until_finished, then fsync"


class OrbaxJaxAsync(OrbaxAsync):
    key, title, in_place = "orbax_jax_async", "Orbax, async, of jax arrays", False
    how = "the same of JAX's arrays, which are never changed in place: there is nothing to copy before save returns"

    def convert(self, state: State) -> Any:
        return {name: jax.block_until_ready(jax.numpy.asarray(array)) for name, array in state.items()}
