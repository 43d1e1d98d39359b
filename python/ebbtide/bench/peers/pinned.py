"""As `pageable`, through one pinned buffer that is kept."""

from __future__ import annotations

import numpy as np

from . import Given, Peer
from .files import padded
from .pageable import Files


def open(given: Given) -> Peer:
    return Pinned(given)


class Pinned(Files):
    def __init__(self, given: Given) -> None:
        super().__init__(given)
        self._buffer = given.device.pinned(padded(max(given.sizes)))

    def buffer(self, size: int) -> np.ndarray:
        return self._buffer
