"""A machine as the models see it: what a checkpoint costs on each of three levels, and how often each level is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.errors import InvalidArgument

Three = tuple[float, float, float]


@dataclass(frozen=True)
class Levels:
    """Three levels of checkpoints, each slower and safer than the one before (ics19, sec. 5.2).

    ``write``: seconds that a checkpoint of a level blocks the program. ``read``: seconds of a recovery from it (default:
    as long). ``failures``: failures per second that need this level. ``apart``: the least seconds between two checkpoints
    of a level. Raises InvalidArgument, naming the field, if a number
    is negative or not finite, or if failures of a level are on average closer together than its checkpoint takes.

    >>> Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6)).read
    (8, 60, 200)
    """

    write: Three
    failures: Three
    read: Three | None = None
    apart: Three = (0, 0, 0)

    def __post_init__(self) -> None:
        if self.read is None:
            object.__setattr__(self, "read", self.write)
        for name in ("write", "failures", "read", "apart"):
            values: Sequence[float] = getattr(self, name)
            if len(values) != 3:
                raise InvalidArgument(f"{name}: {values!r} is not three numbers, one a level")
            for level, value in enumerate(values, 1):
                if not (math.isfinite(value) and value >= 0):
                    raise InvalidArgument(f"{name} of level {level}: {value!r} is not a finite number of at least 0")
        for level, (seconds, rate) in enumerate(zip(self.write, self.failures), 1):
            if seconds * rate >= 1:
                raise InvalidArgument(
                    f"failures of level {level}: one each {1 / rate:.4g} s; a checkpoint takes {seconds:.4g} s, and the "
                    "mean time between failures must be longer"
                )


def drained(machine: Levels) -> Levels:
    """The same machine if levels 2 and 3 are written in the background from a copy on level 1.

    Each checkpoint then blocks as long as one of level 1. A failure that strikes while a copy is on its way goes back one
    interval further: on average that is as much work as the copy takes, so that time is added to the recovery. That is
    true to first order, if a copy ends before the next of its level begins, which ``apart`` then asks for.

    >>> drained(Levels(write=(8, 60, 200), failures=(5e-4, 2e-5, 2e-6))).read
    (8, 120, 400)
    """
    assert machine.read is not None
    first, *others = machine.write
    read = (machine.read[0], *(read + write for read, write in zip(machine.read[1:], others)))
    return Levels((first, first, first), machine.failures, read, (0, *others))  # type: ignore[arg-type]
