"""Which versions a manager keeps. Pure: nothing is stored or dropped here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ebbtide import _core
from ebbtide.errors import InvalidArgument


class Best(NamedTuple):
    """The versions with the lowest (or highest) value of a metric are kept."""

    name: str
    most: int
    order: Literal["min", "max"] = "min"

    @staticmethod
    def of(given: object) -> Best:
        right = (
            isinstance(given, tuple)
            and len(given) in (2, 3)
            and isinstance(given[0], str)
            and isinstance(given[1], int)
            and given[1] > 0
            and given[2:] in ((), ("min",), ("max",))
        )
        if not right:
            raise InvalidArgument(f'best={given!r} is not valid: expected ("loss", 3), or ("accuracy", 3, "max")')
        return Best(*given)  # type: ignore[misc]

    def rank(self, value: float) -> float:
        """The lower, the better; what is no number is worst."""
        if math.isnan(value):
            return math.inf
        return -value if self.order == "max" else value


def kept(
    durable: Sequence[int], metrics: Mapping[int, float], *, keep_last: int, keep_every: int, best: Best | None
) -> set[int]:
    """Those of the durable versions, ascending, that are kept. The newest always is."""
    keep = set(_core.retained(durable, keep_last, keep_every))
    if best is not None:
        rated = sorted((best.rank(metrics[v]), -v) for v in durable if v in metrics)
        keep.update(-negative for _, negative in rated[: best.most])
    return keep


def logged(best: Best, values: Mapping[str, Any], *, expected: bool) -> float:
    """The metric among those that a trainer logged. Until it is there a version is the worst; once it is expected, that is said."""
    if best.name in values:
        return float(values[best.name])
    if expected:
        warnings.warn(
            f"best={tuple(best)!r}: {best.name!r} is not logged; what is logged is {', '.join(sorted(values)) or 'nothing'}",
            RuntimeWarning,
            stacklevel=4,
        )
    return math.nan
