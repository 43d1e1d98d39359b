"""The states of the random number generators that a training program uses without naming them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def states() -> dict[str, Any]:
    """Of Python, NumPy and torch, on the CPU and on each GPU if the program uses some."""
    version, words, gauss = random.getstate()
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return {
        "python": (version, np.array(words, np.uint32), gauss),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": [state.cpu() for state in gpus],
    }


def restore(states: dict[str, Any]) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(map(int, words)), gauss))
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"].cpu())
    for gpu, state in enumerate(states["cuda"]):
        if torch.cuda.is_available() and gpu < torch.cuda.device_count():
            torch.cuda.set_rng_state(state.cpu(), gpu)


def seed() -> int:
    """A seed, drawn from PyTorch's generator."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


class Stream:
    """Random numbers of its own on the CPU, from a seed: what runs within ``with`` draws from them, and nothing else does."""

    def __init__(self, seed: int) -> None:
        outside = _get()
        random.seed(seed)
        np.random.seed(seed % (1 << 32))
        torch.default_generator.manual_seed(seed)
        self._other = _get()
        _set(outside)

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        other, self._other = self._other, _get()
        _set(other)


def _get() -> tuple[Any, Any, torch.Tensor]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set(states: tuple[Any, Any, torch.Tensor]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
