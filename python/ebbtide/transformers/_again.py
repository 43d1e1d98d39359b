"""The batches of an epoch, drawn again as they were."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import transformers.trainer as trainer

from ebbtide.torch import _rng


class Again:
    """A loader whose first epoch is drawn again up to a step."""

    def __init__(self, loader: Any, position: dict[str, Any], batches: int) -> None:
        self._loader, self._position, self._batches = loader, position, batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        before_last, last = [self._position["began"], *self._position["before"]][-2:]
        steps, per_step = self._position["steps"], self._batches // self._position["steps"]
        _rng.restore(self._position["began"])
        batches = iter(self._loader)
        for number in range(self._batches):
            if number == (steps - 1) * per_step:  # it also reads the first batch that comes next
                _rng.restore(before_last)
            next(batches)
        _rng.restore(last)
        yield from batches


_skip = trainer.skip_first_batches


def draw_again(position: dict[str, Any]) -> None:
    """The trainer skips batches without reading them, so that what draws random numbers draws others: once, it does not."""

    def again(loader: Any, num_batches: int) -> Any:
        skip_again()
        return Again(loader, position, num_batches)

    trainer.skip_first_batches = again


def skip_again() -> None:
    """The trainer's own way."""
    trainer.skip_first_batches = _skip
