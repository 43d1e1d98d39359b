"""What `offload` has to do with torch.compile: its hooks are invisible to it, and a function that saves everything at its end is warned of."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_Any = TypeVar("_Any", bound=Callable[..., Any])
_dynamo = torch._C._dynamo.eval_frame
compile_with = _dynamo.set_eval_frame
"""Sets what compiles the functions that this thread calls, None for nothing, and returns what did."""


def unseen(function: _Any) -> _Any:
    """``function``, which torch.compile does not compile where compiled code calls it, and which nothing wraps."""
    if hasattr(_dynamo, "set_code_exec_strategy"):
        skip = _dynamo._FrameAction.SKIP
        _dynamo.set_code_exec_strategy(
            function.__code__, _dynamo._FrameExecStrategy(skip, _dynamo._FrameAction.DEFAULT)
        )
    else:  # until PyTorch 2.7
        _dynamo.skip_code(function.__code__)
    return function


class Compiled:
    """Finds out, in one step, whether one compiled function saves most of it: it saves everything at its end."""

    def __init__(self) -> None:
        self.looks = True
        self._found = ""

    def saves(self) -> bool:
        """Whether a compiled function saves the tensor that is being packed."""
        caller: types.FrameType | None = sys._getframe()
        for _ in range(4):  # itself, pack, the hook, Function.apply
            caller = caller and caller.f_back
        return caller is not None and "_functorch" in caller.f_code.co_filename

    def look(self, there: int, expected: int) -> None:
        """Of the ``expected`` bytes that a step stores, ``there`` are in memory as it saves one more."""
        if 2 * there > expected:
            self._found = (
                f"{there} of {expected} bytes that were stored were in memory at one time: a function that torch.compile made saves "
                "everything at its end, so offload frees nothing before. Compile the blocks of a model one by one instead "
                "(for block in model.blocks: block.compile())"
            )

    def end(self) -> None:
        self.looks = False
        if self._found:
            warnings.warn(self._found, RuntimeWarning, stacklevel=4)
