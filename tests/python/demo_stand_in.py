"""A store that keeps everything in a dict: what the demo needs of `ebbtide.open`, with a byte flipped on request."""

from __future__ import annotations

from typing import Any

import numpy as np


def flip(array: np.ndarray) -> None:
    """Changes one byte: the highest of a float, sign and exponent, so that no rounding can hide it."""
    array.view(np.uint8).reshape(-1)[array.nbytes * 3 // 16 * 4 + 3] ^= 0x40


class StandInHistory:
    def __init__(self, store: StandInStore, order: str | None) -> None:
        self._store, self.order = store, order
        self._kept: dict[int, np.ndarray] = {}

    def __enter__(self) -> StandInHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.clear()

    def checkpoint(self, version: int, array: np.ndarray) -> None:
        assert version not in self._kept
        self._kept[version] = array.copy()
        self._store.count("app>device", array.nbytes)

    def restore(self, version: int, out: np.ndarray) -> np.ndarray:
        out[...] = self._kept.pop(version)
        self._store.count("device>app", out.nbytes)
        self._store.restored += 1
        if self._store.restored == self._store.flip_at:
            flip(out)
        return out


class StandInStore:
    def __init__(self, flip_at: int | None = None, **options: Any) -> None:
        self.options, self.flip_at, self.restored = options, flip_at, 0
        self._links: dict[str, int] = {}

    def __enter__(self) -> StandInStore:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def history(self, name: str, order: str | None = None) -> StandInHistory:
        return StandInHistory(self, order)

    def count(self, link: str, size: int) -> None:
        self._links[link] = self._links.get(link, 0) + size

    def stats(self) -> dict[str, Any]:
        return {
            "tiers": [{"name": "device", "capacity": self.options["device_cache"], "used": 0, "hits": self.restored}],
            "links": [{"name": name, "bytes": size} for name, size in self._links.items()],
            "checkpoints": self.restored,
            "restores": self.restored,
        }
