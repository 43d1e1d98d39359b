"""The parts of sharded tensors that this rank has, saved and loaded as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch.distributed.tensor import DTensor

from ebbtide import errors

_SHARD = "of"  # the whole tensor's shape


@contextlib.contextmanager
def as_they_are(trainer: pl.Trainer) -> Iterator[None]:
    """Inside, the trainer's checkpoint has the sharded tensors themselves; the strategy would gather or copy them."""
    strategy = trainer.strategy
    strategy.lightning_module_state_dict = trainer.lightning_module.state_dict
    strategy.optimizer_state = lambda optimizer: optimizer.state_dict()
    try:
        yield
    finally:
        del strategy.lightning_module_state_dict, strategy.optimizer_state


def parts(tree: Any) -> Any:
    """``tree`` with this rank's part in place of each sharded tensor."""
    if isinstance(tree, DTensor):
        return {"part": tree.to_local(), _SHARD: list(tree.shape)}
    if isinstance(tree, dict):
        return {key: parts(value) for key, value in tree.items()}
    return [parts(value) for value in tree] if isinstance(tree, list) else tree


def load(trainer: pl.Trainer, checkpoint: dict[str, Any]) -> None:
    """Load what :func:`parts` made of the model and the optimizers."""
    module = trainer.lightning_module
    here = module.state_dict()
    state = {name: _sharded(name, part, here.get(name)) for name, part in checkpoint["state_dict"].items()}
    module.load_state_dict(state, strict=module.strict_loading)
    for optimizer, saved in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=True):
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        states = {
            number: {name: _sharded(name, part, parameters[number]) for name, part in values.items()}
            for number, values in saved["state"].items()
        }
        optimizer.load_state_dict(saved | {"state": states})


def _sharded(name: str, part: Any, like: Any) -> Any:
    if not (isinstance(part, dict) and _SHARD in part):
        return part
    if not isinstance(like, DTensor) or list(like.shape) != part[_SHARD] or like.to_local().shape != part["part"].shape:
        raise errors.SizeMismatch(
            f"{name}: the checkpoint has a part of the shape {tuple(part['part'].shape)} of a tensor of {tuple(part[_SHARD])}; "
            "the model is sharded otherwise here. Resume with the same sharding and as many ranks"
        )
    return DTensor.from_local(
        part["part"], like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
