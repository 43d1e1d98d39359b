"""What docs/recompute-or-store.md says: how often revolve computes a step anew, and where the measured costs cross."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benches"))
import recompute_figures


def points(store: list[float], recompute: list[float]) -> list[dict[str, Any]]:
    """Of steps of 1, 2, 4, ... s."""
    return [{"step_s": 2.0**i, "store_s": [a], "recompute_s": [b]} for i, (a, b) in enumerate(zip(store, recompute))]


def test_where_the_costs_cross() -> None:
    assert recompute_figures.crossing(points([4, 4, 4], [1, 8, 9])) == pytest.approx(2 ** (2 / 3))
    assert recompute_figures.crossing(points([4, 4, 4], [2, 4, 9])) == pytest.approx(2)
    assert recompute_figures.crossing(points([4, 4, 4], [5, 8, 9])) == 0
    assert recompute_figures.crossing(points([4, 4, 4], [1, 2, 3])) is None


@pytest.mark.parametrize("slots", [3, 5, 10])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_how_often_revolve_computes_a_step_anew(slots: int, most: int) -> None:
    pyrevolve = pytest.importorskip("pyrevolve", reason="pyrevolve is not installed")
    computed: Counter[int] = Counter()

    class State(pyrevolve.Checkpoint):  # type: ignore[misc]
        dtype, size = np.float32, 1

        def get_data(self, timestep: int) -> list[np.ndarray[Any, Any]]:
            return [np.zeros(1, np.float32)]

        get_data_location = get_data

    class Forward(pyrevolve.Operator):  # type: ignore[misc]
        def apply(self, t_start: int, t_end: int) -> None:
            computed.update(range(t_start, t_end))

    class Reverse(pyrevolve.Operator):  # type: ignore[misc]
        def apply(self, t_start: int, t_end: int) -> None:
            pass

    def anew(steps: int) -> int:
        computed.clear()
        revolver = pyrevolve.MemoryRevolver(State(), Forward(), Reverse(), slots, steps)
        revolver.apply_forward()
        revolver.apply_reverse()
        return max(computed.values()) - 1

    longest = math.comb(slots + most, slots)
    assert anew(longest) == most and anew(longest + 1) == most + 1
