"""The batches of an epoch, drawn again as they were."""

from __future__ import annotations

from typing import Any

from lightning.fabric.utilities.types import _Stateful
from lightning.pytorch.utilities.combined_loader import _SUPPORTED_MODES, CombinedLoader

from ebbtide.torch import _rng


class Replay(CombinedLoader):
    """Draws what another loader draws, and can say after any batch how to come back to it.

    The loader begins at the first batch that is wanted, not before: its order then depends on one state of the random number
    generators, which is known.
    """

    def __init__(self, of: CombinedLoader, position: dict[str, Any] | None = None) -> None:
        super().__init__(of.iterables, of._mode)
        self.limits = of.limits
        self.wanted = False  # True: the next batch's position
        self.position: dict[str, Any] | None = None  # before the batch for which it was wanted
        self._return_to = position
        self._began: dict[str, Any] | None = None  # the generators' states before the epoch's first batch
        self._drawn = 0

    def __iter__(self) -> Replay:
        self._iterator = _SUPPORTED_MODES[self._mode]["iterator"](self.flattened, self._limits)
        self._began, self._drawn = None, 0
        return self

    def __next__(self) -> Any:
        if self._began is None:
            self._begin()
        if self._return_to is not None and self._drawn == self._return_to["drawn"]:
            _rng.restore(self._return_to["rng"])
            self._return_to = None
        if self.wanted:
            self.wanted = False
            self.position = self.here()
        batch = super().__next__()
        self._drawn += 1
        return batch

    def here(self) -> dict[str, Any]:
        """The position before the next batch. Who takes it adds ``trained``: of what is drawn, a fetcher may hold some."""
        loaders = self.flattened
        stateful = bool(loaders) and all(isinstance(loader, _Stateful) for loader in loaders)
        return {
            "drawn": self._drawn,
            "rng": _rng.states(),
            "began": self._began,
            "loaders": self._state_dicts() if stateful else None,
        }

    def _begin(self) -> None:
        back = self._return_to
        if back is None:
            self._began = _rng.states()
            iter(self._iterator)
            return
        self._began = back["began"]
        _rng.restore(back["began"])
        if back["loaders"] is not None:
            self._load_state_dicts(back["loaders"])
        iter(self._iterator)
        if back["loaders"] is None:
            for _ in range(back["trained"]):
                super().__next__()
        self._drawn = back["trained"]
