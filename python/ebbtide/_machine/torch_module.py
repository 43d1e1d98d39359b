"""PyTorch under NumPy's names: the few functions that the demo's physics and the benchmark's checks call."""

from __future__ import annotations

from typing import Any

import numpy as np


class TorchModule:
    """An array module (`xp`) whose arrays are tensors on `device`."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch, self._device = torch, device
        self.float32 = torch.float32
        self.add = torch.add
        self.zeros_like = torch.zeros_like
        self.count_nonzero = torch.count_nonzero

    def multiply(self, one: Any, other: Any, out: Any) -> Any:
        return self._torch.mul(one, float(other) if isinstance(other, np.floating) else other, out=out)

    def asarray(self, array: Any) -> Any:
        return self._torch.tensor(array, device=self._device)

    def empty(self, shape: Any, dtype: Any) -> Any:
        return self._torch.empty(shape, dtype=dtype, device=self._device)

    def zeros(self, shape: Any, dtype: Any) -> Any:
        return self._torch.zeros(shape, dtype=dtype, device=self._device)
