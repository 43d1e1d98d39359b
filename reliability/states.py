"""A small program's state, which follows from the seed and the step, so that any process can say what it must be."""

from __future__ import annotations

import numpy as np

State = dict[str, np.ndarray]


def make(seed: int, step: int, kilobytes: int) -> State:
    """About so many bytes in five arrays of mixed sizes and types, of random bits (floats too are compared by bits)."""
    random = np.random.default_rng([seed, step])
    floats = kilobytes * 1024 // 4

    def field(count: int) -> np.ndarray:
        return random.standard_normal(max(1, count), dtype=np.float32)

    return {
        "layers.0.weight": field(floats * 5 // 8).reshape(1, -1),
        "layers.1.weight": field(floats // 4),
        "layers.1.bias": field(floats // 16),
        "tokens": random.integers(0, 1 << 30, max(1, floats // 32), dtype=np.int32),
        "step": np.array([step], dtype=np.int32),
    }


def wrong(found: State | None, expected: State) -> str:
    """What differs; empty if nothing does."""
    if found is None:
        return "nothing"
    if found.keys() != expected.keys():
        return f"the names {sorted(found)}"
    for name, array in expected.items():
        other = np.asarray(found[name])
        if other.dtype != array.dtype or other.shape != array.shape:
            return f"{name}: {other.dtype}{other.shape}, not {array.dtype}{array.shape}"
        if other.tobytes() != array.tobytes():
            return f"{name}: {int(np.sum(other.view(np.uint8) != array.view(np.uint8)))} wrong bytes"
    return ""
