"""What a manager can save and load in place: objects with a state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.random  # NumPy itself imports it at first use, which fails in a program that has no descriptor left
import torch
import torch.utils.data

from ebbtide.errors import InvalidArgument, SizeMismatch


def _keeps_state(part: Any) -> bool:
    return callable(getattr(part, "state_dict", None)) and callable(getattr(part, "load_state_dict", None))


def is_object(part: Any) -> bool:
    """Whether ``part`` can be loaded in place; anything else is a value."""
    return _keeps_state(part) or isinstance(part, (torch.Generator, np.random.Generator, torch.Tensor))


def state_of(name: str, part: Any) -> Any:
    if _keeps_state(part):
        return part.state_dict()
    if isinstance(part, torch.Generator):
        return part.get_state()
    if isinstance(part, np.random.Generator):
        return part.bit_generator.state
    if isinstance(part, torch.utils.data.DataLoader):
        raise InvalidArgument(
            f"{name} is a DataLoader, which has no state: give torchdata's StatefulDataLoader, or the generator of its sampler"
        )
    return part


def check(name: str, part: Any, state: Any, step: int) -> None:
    """Refuses, by the leaf's name, a state that ``part`` cannot load. Changes nothing."""
    if not is_object(part):
        raise InvalidArgument(
            f"{name} cannot be loaded in place: expected an object with state_dict and load_state_dict, a tensor or a generator; "
            "what else was saved is in the manager's `values`"
        )
    if isinstance(part, torch.nn.Module):
        _check_tensors(name, part.state_dict(), state, step)
    elif isinstance(part, torch.optim.Optimizer):
        _check_groups(name, part.param_groups, state, step)
    elif isinstance(part, torch.Tensor):
        _check_tensors(name, {"": part}, {"": state}, step)
    elif isinstance(part, torch.Generator):
        if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
            raise SizeMismatch(
                f"{name} is a generator of PyTorch; the checkpoint of step {step} has no state of one there"
            )
    elif isinstance(part, np.random.Generator):
        kind = part.bit_generator.state["bit_generator"]
        found = state.get("bit_generator", "dict") if isinstance(state, Mapping) else type(state).__name__
        if kind != found:
            raise SizeMismatch(f"{name} is a {kind}; the checkpoint of step {step} has a {found} there")


def load(name: str, part: Any, state: Any) -> None:
    if _keeps_state(part):
        try:
            part.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(f"{name}: {error}") from error
    elif isinstance(part, torch.Generator):
        part.set_state(state.cpu())
    elif isinstance(part, np.random.Generator):
        part.bit_generator.state = state
    else:
        with torch.no_grad():
            part.copy_(state)


def _check_tensors(name: str, here: Mapping[str, Any], saved: Any, step: int) -> None:
    if not isinstance(saved, Mapping):
        raise SizeMismatch(f"{name} is a module; the checkpoint of step {step} has a {type(saved).__name__} there")
    for key in saved:
        if key not in here:
            raise SizeMismatch(f"{name} has no {key!r}, which the checkpoint of step {step} has")
    for key, now in here.items():
        leaf = f"{name}[{key!r}]" if key else name
        if key not in saved:
            raise SizeMismatch(f"{leaf} is not in the checkpoint of step {step}")
        then = saved[key]
        if not isinstance(now, torch.Tensor):
            continue
        if not isinstance(then, torch.Tensor):
            raise SizeMismatch(f"{leaf} is a tensor; the checkpoint of step {step} has a {type(then).__name__} there")
        if now.shape != then.shape:
            raise SizeMismatch(
                f"{leaf} has the shape {tuple(now.shape)}; in the checkpoint of step {step} it has {tuple(then.shape)}"
            )
        if now.is_meta:
            raise SizeMismatch(f"{leaf} is a meta tensor, without memory to load into: Module.to_empty makes it")
        if not torch.can_cast(then.dtype, now.dtype):
            here_is, there_is = (str(one.dtype).rpartition(".")[2] for one in (now, then))
            raise SizeMismatch(f"{leaf} is of {here_is}, which cannot take the {there_is} of step {step}")


def _check_groups(name: str, here: list[dict[str, Any]], saved: Any, step: int) -> None:
    groups = saved.get("param_groups") if isinstance(saved, Mapping) else None
    if not isinstance(groups, list):
        raise SizeMismatch(f"{name} is an optimizer; the checkpoint of step {step} has no optimizer's state there")
    if len(here) != len(groups):
        raise SizeMismatch(
            f"{name} has {len(here)} param_groups; in the checkpoint of step {step} it has {len(groups)}"
        )
    for i, (now, then) in enumerate(zip(here, groups)):
        if len(now["params"]) != len(then["params"]):
            raise SizeMismatch(
                f"{name}['param_groups'][{i}] has {len(now['params'])} parameters; in the checkpoint of step {step} it has "
                f"{len(then['params'])}"
            )
