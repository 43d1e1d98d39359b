"""The batches of an epoch, drawn again as they were."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from lightning.fabric.utilities.types import _Stateful
from lightning.pytorch.utilities.combined_loader import _SUPPORTED_MODES, CombinedLoader

from ebbtide.torch import _parts, _rng


class Replay(CombinedLoader):
    """Draws batches with random numbers of their own, and can say after any batch how to come back to it.

    Each epoch's numbers come from one seed, whatever the training draws meanwhile. The loader begins at the first batch that is
    wanted, not before: the seed then depends on one state of the random number generators, which is known.
    """

    def __init__(self, of: CombinedLoader, position: dict[str, Any] | None = None) -> None:
        super().__init__(of.iterables, of._mode)
        self.limits = of.limits
        self.wanted = False  # True: the next batch's position
        self.position: dict[str, Any] | None = None  # before the batch for which it was wanted
        self._return_to = position
        self._stream: _rng.Stream | None = None  # the epoch's random numbers
        self._began: dict[str, Any] = {}  # what the epoch began with
        self._drawn = 0

    def __iter__(self) -> Replay:
        self._iterator = _SUPPORTED_MODES[self._mode]["iterator"](self.flattened, self._limits)
        self._stream, self._drawn = None, 0
        return self

    def __next__(self) -> Any:
        stream = self._stream or self._begin()
        if self._return_to is not None and self._drawn == self._return_to["drawn"]:
            _rng.restore(self._return_to["rng"])
            self._return_to = None
        if self.wanted:
            self.wanted = False
            self.position = self.here()
        with stream:
            batch = super().__next__()
        self._drawn += 1
        return batch

    def here(self) -> dict[str, Any]:
        """The position before the next batch. Who takes it adds ``trained``: of what is drawn, a fetcher may hold some."""
        assert self._stream is not None, "a batch was drawn"
        loaders, now = self.flattened, None
        if loaders and all(isinstance(loader, _Stateful) for loader in loaders):
            with self._stream:
                now = {"loaders": self._state_dicts(), "rng": _rng.states(), "generators": self.generators()}
        return {"drawn": self._drawn, "rng": _rng.states(), "began": self._began, "now": now}

    def generators(self) -> dict[str, Any]:
        """The states of the generators that the loaders, their samplers and their datasets have."""
        return {name: _parts.state_of(name, generator) for name, generator in self._named().items()}

    def restore(self, generators: dict[str, Any]) -> None:
        here = self._named()
        for name, state in generators.items():
            if name in here:
                _parts.load(name, here[name], state)
            else:
                warnings.warn(
                    f"the training loader had a generator {name}, and has none now: it draws otherwise than it would have",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _named(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number, loader in enumerate(self.flattened):
            batches = getattr(loader, "batch_sampler", None)
            parts = {"loader": loader, "batch_sampler": batches, "sampler": getattr(batches, "sampler", None)}
            parts["dataset"] = getattr(loader, "dataset", None)
            for part, owner in parts.items():
                for name, value in getattr(owner, "__dict__", {}).items():
                    if isinstance(value, (torch.Generator, np.random.Generator)):
                        found[f"{number}.{part}.{name}"] = value
        return found

    def _begin(self) -> _rng.Stream:
        back = self._return_to
        self._began = {"seed": _rng.seed(), "generators": self.generators()} if back is None else back["began"]
        now = None if back is None else back["now"]
        self._stream = _rng.Stream(self._began["seed"])
        if back is not None:
            self.restore((now or self._began)["generators"])
            self._drawn = back["trained"]
        with self._stream:
            if now is not None:
                self._load_state_dicts(now["loaders"])
            iter(self._iterator)
            if now is not None:
                _rng.restore(now["rng"])
            else:
                for _ in range(self._drawn):
                    super().__next__()
        return self._stream
