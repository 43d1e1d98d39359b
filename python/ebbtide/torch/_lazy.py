"""Copies of a state that run beside the program's stream, and optimizers whose next step waits for them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from ebbtide.errors import InvalidArgument, Unsupported
from ebbtide.torch._state import Storage


class Lazy:
    """The copies of one GPU, on a stream of their own.

    They begin after the work that is on the program's stream when a save is called. Each step of an optimizer that was
    given waits for them, on the program's stream; the host does not. For one thread.

    Invariant: what is copied beside the stream is written to by these optimizers alone.
    """

    def __init__(self, cuda: Any = torch.cuda) -> None:
        if not cuda.is_available():
            raise Unsupported(
                'stage="lazy" copies beside the program\'s stream of a GPU, and PyTorch finds no GPU: leave it out'
            )
        self._cuda = cuda
        self._gpu: int = cuda.current_device()
        self._beside = cuda.Stream(self._gpu)
        self._copied: Any = None  # an event behind the copies of the last save
        self._hooked: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._owned: set[int] = set()  # storages, by identity

    def own(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """The parameters and the states of these optimizers may be copied beside the stream."""
        self._owned = set()
        for optimizer in optimizers:
            if optimizer not in self._hooked:
                optimizer.register_step_pre_hook(lambda *_: self.before_write())
                self._hooked.add(optimizer)
            tensors = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for state in optimizer.state.values():
                tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
            self._owned.update(one.untyped_storage()._cdata for one in tensors if one.layout is torch.strided)

    def bytes_of(self, storage: Storage) -> Any:
        """The memory itself, if the optimizers own it, else a copy in the order of the program's stream."""
        if not storage.on_gpu() or storage.of.device.index != self._gpu:
            raise InvalidArgument(
                f'{storage.where} is not on GPU {self._gpu}, whose copies stage="lazy" makes beside the program\'s stream: move it '
                "there, or leave `stage` out"
            )
        whole = storage.array()
        return whole if storage.of._cdata in self._owned else whole.clone()

    def begin(self) -> Any:
        """The stream on which the copies are to be called."""
        self._beside.wait_stream(self._cuda.current_stream(self._gpu))
        return self._beside

    def end(self) -> None:
        """All copies have been called."""
        self._copied = self._beside.record_event()

    def before_write(self) -> None:
        """What is called on the current stream from now on waits for the copies."""
        if self._copied is not None:
            self._cuda.current_stream(self._gpu).wait_event(self._copied)
